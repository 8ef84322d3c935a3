package kcptest

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Project is one that many people run, with CustomResourceDefinitions.
type Project struct {
	Name string
	// Module is the Go module that the definitions are in, Versions two versions of it, and Sums the checksums of these.
	Module         string
	Versions, Sums [2]string
	// Definitions is a pattern of the files with the definitions below the module.
	Definitions string
}

// The projects that tests install.
var (
	CertManager = Project{
		Name: "cert-manager", Module: "github.com/cert-manager/cert-manager", Versions: [2]string{"v1.20.0", "v1.21.2"},
		Sums:        [2]string{"h1:czZamsFJ1YdKPhpv+SopJZN9t3W68vQBnFYUevSHGqY=", "h1:UWgoYM+KLNtRlqmoWOKjKBOBUPVHeepQ6/ac3ERJW68="},
		Definitions: "deploy/crds/*.yaml",
	}
	ArgoCD = Project{
		Name: "Argo CD", Module: "github.com/argoproj/argo-cd/v3", Versions: [2]string{"v3.4.0", "v3.5.0"},
		Sums:        [2]string{"h1:yZwfaOIzE/aQTA52mOfeZQbribmyxKYvMgirQja4eX0=", "h1:iqnPFSKaQ0l3hREMH2Rk55VDcxrvBFaSO0g9bifZKzc="},
		Definitions: "manifests/crds/*-crd.yaml",
	}
	PrometheusOperator = Project{
		Name: "prometheus-operator", Module: "github.com/prometheus-operator/prometheus-operator", Versions: [2]string{"v0.70.0", "v0.85.0"},
		Sums:        [2]string{"h1:kMufKWvqJl08Kh0oue3VLmTsowYKKqCQJa7tqXo+DJI=", "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s="},
		Definitions: "example/prometheus-operator-crd/*.yaml",
	}
)

// Files returns the files with the definitions of one version.
func (p Project) Files(t testing.TB, version int) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(moduleDirectory(t, p.Module+"@"+p.Versions[version], p.Sums[version]), p.Definitions))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s %s has no definitions in %s: %v", p.Name, p.Versions[version], p.Definitions, err)
	}
	return files
}

// Install applies the definitions of one version, and waits until what they define is served.
func (p Project) Install(t testing.TB, cluster *Cluster, version int) {
	t.Helper()
	cluster.Kubectl(t, "apply", "--server-side", "--filename="+strings.Join(p.Files(t, version), ","))
	for _, name := range strings.Fields(cluster.Kubectl(t, "get", "crd", "--output=name")) {
		cluster.WaitForDefinition(t, strings.TrimPrefix(name, "customresourcedefinition.apiextensions.k8s.io/"))
	}
}

// moduleDirectory downloads a module at a version into the module cache, and returns where it is.
func moduleDirectory(t testing.TB, module, sum string) string {
	t.Helper()
	command := exec.CommandContext(Context(t), "go", "mod", "download", "-json", module)
	command.Dir = t.TempDir()
	out, err := command.Output()
	if err != nil {
		t.Fatalf("downloading %s: %v\n%s", module, err, bytes.TrimSpace(out))
	}
	var found struct{ Dir, Sum string }
	if err := json.Unmarshal(out, &found); err != nil {
		t.Fatal(err)
	}
	if found.Sum != sum {
		t.Fatalf("%s has the checksum %s, want %s", module, found.Sum, sum)
	}
	return found.Dir
}
