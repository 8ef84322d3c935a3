package apisharing

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// claims are the permission claims of the export widgets in a manifest.
const claims = `  permissionClaims:
  - {group: "", resource: configmaps, verbs: [get, list]}
  - {group: "", resource: secrets, verbs: ["*"]}
`

func TestBindWithPlugins(t *testing.T) {
	t.Parallel()
	p, consumer := provider(t), server.Cluster(t)
	p.Apply(t, export("v1")+claims)
	kubectl := consumer.Command(t, "kubectl", kcptest.Masters).WithPlugins(t)
	contains := func(text string, wanted ...string) {
		t.Helper()
		text = strings.Join(strings.Fields(text), " ")
		for _, want := range wanted {
			if !strings.Contains(text, want) {
				t.Errorf("missing %q in:\n%s", want, text)
			}
		}
	}
	bind := []string{"kcp", "bind", "apiexport", p.Name + ":widgets"}
	contains(kubectl.Run(t, append(bind, "--dry-run=server", "--accept-all-permission-claims", "-o", "yaml")...), "resource: secrets", "state: Accepted")
	contains(kubectl.Run(t, "kcp", "claims", "get", "apibinding", "-o", "yaml"), "[]")
	contains(kubectl.Run(t, append(bind, "--accept-permission-claim", "configmaps.core")...), `APIBinding "widgets" is bound to `+p.Name+":widgets.")
	contains(kubectl.Run(t, "kcp", "claims", "get", "apibinding", "widgets"), "widgets configmaps.core get,list Accepted", "widgets secrets.core * Open")
	sees(t, p, consumer.Name, "kube-root-ca.crt", "kube-root-ca.crt") // in two namespaces
	contains(kubectl.Run(t, "kcp", "claims", "reject", "apibinding", "widgets", "--resource", "secrets.core"), "Rejected secrets.core (*)")
	contains(kubectl.Run(t, "get", "apibinding", "widgets", "-o", "jsonpath={.spec.permissionClaims}"), `"state":"Accepted"`, `"state":"Rejected"`)
	contains(kubectl.Run(t, "kcp", "get", "apis"), "widgets example.org v1 Widget APIBinding widgets → "+p.Name+":widgets")
	consumer.Apply(t, "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: gadgets.example.com}\nspec:\n"+
		"  group: example.com\n  names: {plural: gadgets, kind: Gadget}\n  scope: Cluster\n  versions:\n"+
		"  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}\n")
	consumer.WaitForDefinition(t, "gadgets.example.com")
	contains(kubectl.Run(t, "kcp", "get", "apis"), "gadgets example.com v1 Gadget CustomResourceDefinition", "secrets v1 Secret built in",
		"apibindings apis.kcp.io v1alpha2,v1alpha1 APIBinding built in")

	// The export replaces a claim.
	p.Apply(t, export("v1")+strings.Replace(claims, "resource: secrets", "resource: serviceaccounts", 1))
	kcptest.Eventually(t, "the binding has the new claim", func(context.Context) error {
		if list := kubectl.Run(t, "kcp", "claims", "get", "apibinding"); !strings.Contains(list, "serviceaccounts.core") {
			return fmt.Errorf("the claim is missing in %s", list)
		}
		return nil
	})
	contains(kubectl.Run(t, "kcp", "claims", "update", "apibinding", "widgets"), "Removed secrets.core, which is no longer claimed")
	contains(kubectl.Run(t, "kcp", "claims", "accept", "apibinding", "widgets"), "Accepted serviceaccounts.core (*)")
}

func TestPluginExplainsWhyExportIsNotBound(t *testing.T) {
	t.Parallel()
	p, consumer, other := provider(t), server.Cluster(t), provider(t)
	consumer.Grant(t, kcptest.Alice, "cluster-admin")
	as := func(user kcptest.User) kcptest.Command { return consumer.Command(t, "kubectl", user).WithPlugins(t) }
	refused := as(kcptest.Alice).Fail(t, "kcp", "bind", "apiexport", p.Name+":widgets")
	if want := "no permission to bind to export " + p.Name + ":widgets"; !strings.Contains(refused, want) {
		t.Errorf("missing %q in %s", want, refused)
	}
	bind(t, consumer, other)
	failed := as(kcptest.Masters).Fail(t, "kcp", "bind", "apiexport", p.Name+":widgets", "--name", "second", "--timeout", "2s")
	for _, want := range []string{`APIBinding "second" in ` + consumer.Name + " is not bound after 2s", "NamingConflicts", "widgets.example.org"} {
		if !strings.Contains(failed, want) {
			t.Errorf("missing %q in %s", want, failed)
		}
	}
}

func TestConsumerWithoutReadAccessRejectsClaims(t *testing.T) {
	t.Parallel()
	p, consumer := provider(t), server.Cluster(t)
	p.Apply(t, export("v1")+claims)
	consumer.Grant(t, kcptest.Alice, "cluster-admin")
	p.Apply(t, "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: bind}\nrules:\n"+
		"- {apiGroups: [apis.kcp.io], resources: [apiexports], resourceNames: [widgets], verbs: [bind]}\n")
	p.Kubectl(t, "create", "clusterrolebinding", "bind", "--clusterrole=bind", "--user="+kcptest.Alice.Name)
	kubectl := consumer.Command(t, "kubectl", kcptest.Alice).WithPlugins(t)
	kubectl.Run(t, "kcp", "bind", "apiexport", p.Name+":widgets", "--reject-all-permission-claims")
	if text := kubectl.Run(t, "kcp", "claims", "get", "apibinding"); strings.Count(text, "Rejected") != 2 {
		t.Errorf("got claims\n%s", text)
	}
}
