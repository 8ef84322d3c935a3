package kcptest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Project is a widely used project with CustomResourceDefinitions.
type Project struct {
	Name string
	// Module is the Go module with the definitions, Versions are one or two versions of it, and Sums their checksums.
	Module         string
	Versions, Sums [2]string
	// Definitions is a pattern for the files with the definitions, relative to the module.
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
	GatewayAPI = Project{
		Name: "Gateway API", Module: "sigs.k8s.io/gateway-api", Versions: [2]string{"v1.6.0"},
		Sums:        [2]string{"h1:735YBRj5NXFrOGX0GoSjwzUIzbz8kiEOfADsqHFmHgE="},
		Definitions: "config/crd/standard/gateway.networking.k8s.io_*routes.yaml",
	}
	FluxSource = Project{
		Name: "Flux' source-controller", Module: "github.com/fluxcd/source-controller", Versions: [2]string{"v1.9.0"},
		Sums:        [2]string{"h1:5msg2yyjVYDULZos+2ve8MZzcSqTpusiXmrOeBhc9yY="},
		Definitions: "config/crd/bases/*.yaml",
	}
	FluxKustomize = Project{
		Name: "Flux' kustomize-controller", Module: "github.com/fluxcd/kustomize-controller", Versions: [2]string{"v1.9.5"},
		Sums:        [2]string{"h1:/XY2zy3K7fntyppEXIHG7oRMzmfgIt50eJzUfaPX1Kc="},
		Definitions: "config/crd/bases/*.yaml",
	}
)

// Files returns the files with the definitions of one version.
func (p Project) Files(t testing.TB, version int) []string {
	t.Helper()
	files, err := p.Find(Context(t), version)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// Find returns the same files as Files, for callers without a test.
func (p Project) Find(ctx context.Context, version int) ([]string, error) {
	dir, err := moduleDirectory(ctx, p.Module+"@"+p.Versions[version], p.Sums[version])
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(dir, p.Definitions))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("finding definitions of %s %s: no file matches %s", p.Name, p.Versions[version], p.Definitions)
	}
	return files, err
}

// Install applies the definitions of one version, and waits until their resources are served.
func (p Project) Install(t testing.TB, cluster *Cluster, version int) {
	t.Helper()
	cluster.Kubectl(t, "apply", "--server-side", "--filename="+strings.Join(p.Files(t, version), ","))
	for _, name := range strings.Fields(cluster.Kubectl(t, "get", "crd", "--output=name")) {
		cluster.WaitForDefinition(t, strings.TrimPrefix(name, "customresourcedefinition.apiextensions.k8s.io/"))
	}
}

// moduleDirectory downloads a version of a module into the module cache, and returns its directory.
func moduleDirectory(ctx context.Context, module, sum string) (string, error) {
	command := exec.CommandContext(ctx, "go", "mod", "download", "-json", module)
	command.Dir = os.TempDir()
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("downloading %s: %w\n%s", module, err, bytes.TrimSpace(out))
	}
	var found struct{ Dir, Sum string }
	if err := json.Unmarshal(out, &found); err != nil {
		return "", err
	}
	if found.Sum != sum {
		return "", fmt.Errorf("%s has the checksum %s, want %s", module, found.Sum, sum)
	}
	return found.Dir, nil
}
