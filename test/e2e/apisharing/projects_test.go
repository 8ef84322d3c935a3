package apisharing

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// certificate is a Certificate of a self-signed Issuer, in the workspace of a consumer.
const certificate = `
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: own}
spec: {selfSigned: {}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: web}
spec:
  secretName: web-tls
  dnsNames: [web.example.org]
  issuerRef: {name: own}
`

// exportOf converts the definitions of a project into schemas of a provider, and exports all of them.
func exportOf(t *testing.T, provider *kcptest.Cluster, project kcptest.Project, name string) {
	t.Helper()
	arguments := []string{"kcp", "crd", "snapshot", "--prefix=v1"}
	for _, file := range project.Files(t, 1) {
		arguments = append(arguments, "--filename="+file)
	}
	kubectl := provider.Command(t, "kubectl", kcptest.Masters).WithPlugins(t)
	provider.Apply(t, kubectl.Run(t, arguments...), "--server-side")
	export := "apiVersion: apis.kcp.io/v1alpha2\nkind: APIExport\nmetadata: {name: " + name + "}\nspec:\n  resources:\n"
	for _, line := range strings.Fields(provider.Kubectl(t, "get", "apiresourceschemas", "--output=name")) {
		_, of, _ := strings.Cut(line, "/")
		parts := strings.SplitN(of, ".", 3)
		export += fmt.Sprintf("  - {group: %s, name: %s, schema: %s, storage: {crd: {}}}\n", parts[2], parts[1], of)
	}
	provider.Apply(t, export)
	waitForIdentity(t, provider, name)
}

func TestDefinitionsOfProjectCanBeExportedAndBound(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	p, consumer, other := server.Cluster(t), server.Cluster(t), server.Cluster(t)
	exportOf(t, p, kcptest.CertManager, "cert-manager")
	for _, c := range []*kcptest.Cluster{consumer, other} {
		c.Bind(t, p, "cert-manager")
	}
	var kinds []string
	for _, group := range []string{"cert-manager.io", "acme.cert-manager.io"} {
		kinds = append(kinds, strings.Fields(consumer.Kubectl(t, "api-resources", "--api-group="+group, "--output=name"))...)
	}
	if got, want := len(kinds), len(kcptest.CertManager.Files(t, 1)); got != want {
		t.Errorf("the consumer has %v, want %d kinds", kinds, want)
	}
	if out := consumer.Kubectl(t, "explain", "certificate.spec.dnsNames"); !strings.Contains(out, "DNS subject alternative names") {
		t.Errorf("unexpected output of kubectl explain:\n%s", out)
	}
	consumer.Apply(t, certificate)
	refusal := consumer.Command(t, "kubectl", kcptest.Masters).Input(strings.Replace(certificate, "  secretName: web-tls\n", "", 1)).Fail(t, "apply", "--server-side", "--force-conflicts", "-f", "-", "--field-manager=other", "--validate=false", "--dry-run=server", "--namespace=kube-system")
	if !strings.Contains(refusal, "spec.secretName: Required value") {
		t.Errorf("a certificate without a secret: got %q", refusal)
	}

	// The controller of the provider sees the certificate of the consumer, and writes its status and Secret.
	certificates := schema.GroupVersionResource{Group: "cert-manager.io", Version: "v1", Resource: "certificates"}
	all, err := viewOf(t, kcptest.Masters, p, "cert-manager", "*").Resource(certificates).List(ctx, metav1.ListOptions{})
	if err != nil || len(all.Items) != 1 || all.Items[0].GetAnnotations()["kcp.io/cluster"] != consumer.Name {
		t.Fatalf("the provider got %v, %v", all, err)
	}
	issued := all.Items[0].DeepCopy()
	conditions := []any{map[string]any{"type": "Ready", "status": "True", "reason": "Ready", "message": "issued", "lastTransitionTime": "2026-01-02T03:04:05Z"}}
	if err := unstructured.SetNestedSlice(issued.Object, conditions, "status", "conditions"); err != nil {
		t.Fatal(err)
	}
	if _, err := viewOf(t, kcptest.Masters, p, "cert-manager", consumer.Name).Resource(certificates).Namespace("default").UpdateStatus(ctx, issued, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if out := strings.Fields(consumer.Kubectl(t, "get", "certificates", "--no-headers")); len(out) < 3 || out[0] != "web" || out[1] != "True" || out[2] != "web-tls" {
		t.Errorf("got output %q", out)
	}
	if out := other.Kubectl(t, "get", "certificates,issuers", "--output=name"); out != "" {
		t.Errorf("the other consumer got %s", out)
	}
}

// Deleting the workspace of a provider does not delete bound APIs or objects of consumers.
func TestConsumersKeepAPIWhenWorkspaceOfProviderIsDeleted(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	org := server.Named("root").CreateWorkspace(t, kcptest.Masters, kcptest.Workspace("providers-"+kcptest.Suffix(), "", ""))
	p := org.CreateWorkspace(t, kcptest.Masters, kcptest.Workspace("provider", "", ""))
	consumer := org.CreateWorkspace(t, kcptest.Masters, kcptest.Workspace("consumer", "", ""))
	p.Apply(t, widgetSchema("v1", 100)+"---"+export("v1"))
	waitForIdentity(t, p, "widgets")
	bind(t, consumer, p)
	create(t, consumer, "one")
	of := server.Named(org.GetWorkspace(t, "provider").Spec.Cluster)
	workspaces := org.Objects(t, kcptest.Workspaces)
	if err := workspaces.Delete(ctx, "provider", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.WaitUntilGone(t, workspaces, "provider")
	kcptest.WaitForCondition(t, consumer.Objects(t, kcptest.APIBindings), "widgets", "APIExportValid", "False", "APIExportNotFound")
	waitForPhase(t, consumer, "Bound")
	create(t, consumer, "two")
	wantDocuments(t, consumer, "/clusters/"+consumer.Name, documents, true)
	_, err := view(t, kcptest.Masters, of, "*").Resource(widgets).List(ctx, metav1.ListOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)

	// A new workspace at the path of the provider gets no permissions that were granted to the former one.
	next := child(t, org, "provider")
	exporting(t, next)
	kcptest.WaitForCondition(t, consumer.Objects(t, kcptest.APIBindings), "widgets", "APIExportValid", "False", "APIExportInvalidReference")
	waitForPhase(t, consumer, "Bound")
	create(t, consumer, "three")
	seen, err := view(t, kcptest.Masters, next, "*").Resource(widgets).List(ctx, metav1.ListOptions{})
	if err != nil || len(seen.Items) > 0 {
		t.Errorf("the next provider got %v (%v)", seen, err)
	}

	// Consumers can still delete their bindings, and their objects are deleted with them.
	unbindAndWatch(t, consumer)
	wantDocuments(t, consumer, "/clusters/"+consumer.Name, documents, false) // the server waits until it knows
	_, err = consumer.Objects(t, widgets).Namespace("default").List(ctx, metav1.ListOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonNotFound)
}
