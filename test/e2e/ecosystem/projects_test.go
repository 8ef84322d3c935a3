package ecosystem

import (
	"strings"
	"testing"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// project is the API of a widely used project, with a different version in each of two clusters.
type project struct {
	kcptest.Project
	// served is a definition that must be established, field is one of its fields, and manifest an object.
	served, field, manifest string
}

var projects = []project{
	{
		Project: kcptest.CertManager, served: "certificates.cert-manager.io", field: "certificates.spec.dnsNames",
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
		Project: kcptest.ArgoCD, served: "applications.argoproj.io", field: "applications.spec.syncPolicy.automated.prune",
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
		Project: kcptest.PrometheusOperator, served: "prometheuses.monitoring.coreos.com", field: "servicemonitors.spec.endpoints",
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

func TestClustersCanHaveDifferentVersionsOfProject(t *testing.T) {
	t.Parallel()
	for _, p := range projects {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			var clusters [2]*kcptest.Cluster
			for i := range clusters {
				clusters[i] = server.Cluster(t)
				p.Install(t, clusters[i], i)
			}
			for i, cluster := range clusters {
				p.use(t, cluster, i)
			}
			schemas := [2]string{}
			for i, cluster := range clusters {
				schemas[i] = cluster.Kubectl(t, "get", "crd", p.served, "--output=jsonpath={.spec}")
			}
			if schemas[0] == schemas[1] {
				t.Errorf("%s and %s have the same schema: choose other versions", p.Versions[0], p.Versions[1])
			}
		})
	}
}

// use applies objects twice with server-side apply, reads them, and runs kubectl explain.
func (p project) use(t *testing.T, cluster *kcptest.Cluster, version int) {
	t.Helper()
	cluster.Apply(t, p.manifest, "--server-side")
	if again := cluster.Apply(t, p.manifest, "--server-side"); !strings.Contains(again, "serverside-applied") {
		t.Errorf("applying the same again:\n%s", again)
	}
	resource, group, _ := strings.Cut(p.served, ".")
	if out := cluster.Kubectl(t, "get", p.served, "shop", "--output=name"); !strings.Contains(out, "/shop") {
		t.Errorf("%s %s: reading an object of %s:\n%s", p.Name, p.Versions[version], resource, out)
	}
	if out := cluster.Kubectl(t, "explain", p.field); !strings.Contains(out, "FIELD: ") || !strings.Contains(out, "DESCRIPTION") {
		t.Errorf("%s %s: explaining %s:\n%s", p.Name, p.Versions[version], p.field, out)
	}
	if out := cluster.Kubectl(t, "api-resources", "--api-group="+group, "--output=name"); !strings.Contains(out, p.served) {
		t.Errorf("%s %s: discovery of %s:\n%s", p.Name, p.Versions[version], group, out)
	}
	strict := strings.Replace(p.manifest, "spec: {", "spec: {noSuchField: 1, ", 1)
	if strict != p.manifest {
		refusal := cluster.Command(t, "kubectl", kcptest.Masters).Input(strict).Fail(t, "apply", "--server-side", "--filename=-")
		if !strings.Contains(refusal, "noSuchField") {
			t.Errorf("%s %s: an unknown field:\n%s", p.Name, p.Versions[version], refusal)
		}
	}
}
