package ecosystem

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// project is the API of a project that many people run.
type project struct {
	name string
	// versions of its module, one for each of two clusters, and the checksums of these.
	module   string
	versions [2]string
	sums     [2]string
	// definitions is a pattern of the files with its CustomResourceDefinitions below the module.
	definitions string
	// served is a definition that must be established, field one of its fields, manifest an object.
	served, field, manifest string
}

var projects = []project{
	{
		name: "cert-manager", module: "github.com/cert-manager/cert-manager", versions: [2]string{"v1.20.0", "v1.21.2"},
		sums:        [2]string{"h1:czZamsFJ1YdKPhpv+SopJZN9t3W68vQBnFYUevSHGqY=", "h1:UWgoYM+KLNtRlqmoWOKjKBOBUPVHeepQ6/ac3ERJW68="},
		definitions: "deploy/crds/*.yaml", served: "certificates.cert-manager.io", field: "certificates.spec.dnsNames",
		manifest: `
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: shop}
spec: {secretName: shop-tls, dnsNames: [shop.example.com], issuerRef: {name: ca, kind: Issuer}}
---
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: ca}
spec: {selfSigned: {}}
`,
	},
	{
		name: "Argo CD", module: "github.com/argoproj/argo-cd/v3", versions: [2]string{"v3.4.0", "v3.5.0"},
		sums:        [2]string{"h1:yZwfaOIzE/aQTA52mOfeZQbribmyxKYvMgirQja4eX0=", "h1:iqnPFSKaQ0l3hREMH2Rk55VDcxrvBFaSO0g9bifZKzc="},
		definitions: "manifests/crds/*-crd.yaml", served: "applications.argoproj.io", field: "applications.spec.syncPolicy.automated.prune",
		manifest: `
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: shop}
spec:
  project: default
  source: {repoURL: "https://example.com/shop.git", path: deploy, targetRevision: main}
  destination: {server: "https://kubernetes.default.svc", namespace: shop}
---
apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: default}
spec: {sourceRepos: ["*"]}
`,
	},
	{
		name: "prometheus-operator", module: "github.com/prometheus-operator/prometheus-operator", versions: [2]string{"v0.70.0", "v0.85.0"},
		sums:        [2]string{"h1:kMufKWvqJl08Kh0oue3VLmTsowYKKqCQJa7tqXo+DJI=", "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s="},
		definitions: "example/prometheus-operator-crd/*.yaml", served: "prometheuses.monitoring.coreos.com", field: "servicemonitors.spec.endpoints",
		manifest: `
apiVersion: monitoring.coreos.com/v1
kind: Prometheus
metadata: {name: shop}
spec: {replicas: 2, serviceMonitorSelector: {}}
---
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata: {name: shop}
spec: {selector: {matchLabels: {app: shop}}, endpoints: [{port: web}]}
`,
	},
}

func TestDifferentVersionsOfOneProjectLiveInTwoClusters(t *testing.T) {
	t.Parallel()
	for _, p := range projects {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			var clusters [2]*kcptest.Cluster
			for i := range clusters {
				clusters[i] = server.Cluster(t)
				p.install(t, clusters[i], i)
			}
			for i, cluster := range clusters {
				p.use(t, cluster, i)
			}
			schemas := [2]string{}
			for i, cluster := range clusters {
				schemas[i] = cluster.Kubectl(t, "get", "crd", p.served, "--output=jsonpath={.spec}")
			}
			if schemas[0] == schemas[1] {
				t.Errorf("%s and %s have the same schema: they show nothing", p.versions[0], p.versions[1])
			}
		})
	}
}

// install applies the definitions of one version.
func (p project) install(t *testing.T, cluster *kcptest.Cluster, version int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(moduleDirectory(t, p.module+"@"+p.versions[version], p.sums[version]), p.definitions))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s %s has no definitions in %s: %v", p.name, p.versions[version], p.definitions, err)
	}
	cluster.Kubectl(t, "apply", "--server-side", "--filename="+strings.Join(files, ","))
	for _, name := range strings.Fields(cluster.Kubectl(t, "get", "crd", "--output=name")) {
		cluster.WaitForDefinition(t, strings.TrimPrefix(name, "customresourcedefinition.apiextensions.k8s.io/"))
	}
}

// use makes objects, twice by server-side apply, reads them, and asks for their documentation.
func (p project) use(t *testing.T, cluster *kcptest.Cluster, version int) {
	t.Helper()
	cluster.Apply(t, p.manifest, "--server-side")
	if again := cluster.Apply(t, p.manifest, "--server-side"); !strings.Contains(again, "serverside-applied") {
		t.Errorf("applying the same again:\n%s", again)
	}
	resource, group, _ := strings.Cut(p.served, ".")
	if out := cluster.Kubectl(t, "get", p.served, "shop", "--output=name"); !strings.Contains(out, "/shop") {
		t.Errorf("%s %s: reading an object of %s:\n%s", p.name, p.versions[version], resource, out)
	}
	if out := cluster.Kubectl(t, "explain", p.field); !strings.Contains(out, "FIELD: ") || !strings.Contains(out, "DESCRIPTION") {
		t.Errorf("%s %s: explaining %s:\n%s", p.name, p.versions[version], p.field, out)
	}
	if out := cluster.Kubectl(t, "api-resources", "--api-group="+group, "--output=name"); !strings.Contains(out, p.served) {
		t.Errorf("%s %s: discovery of %s:\n%s", p.name, p.versions[version], group, out)
	}
	strict := strings.Replace(p.manifest, "spec: {", "spec: {noSuchField: 1, ", 1)
	if strict != p.manifest {
		refusal := cluster.Command(t, "kubectl", kcptest.Masters).Input(strict).Fail(t, "apply", "--server-side", "--filename=-")
		if !strings.Contains(refusal, "noSuchField") {
			t.Errorf("%s %s: an unknown field:\n%s", p.name, p.versions[version], refusal)
		}
	}
}

// moduleDirectory downloads a module at a version into the module cache, and returns where it is.
func moduleDirectory(t *testing.T, module, sum string) string {
	t.Helper()
	command := exec.CommandContext(kcptest.Context(t), "go", "mod", "download", "-json", module)
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
