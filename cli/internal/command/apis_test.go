package command

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/cli/internal/apis"
	"github.com/kcplane/kcp/cli/internal/fake"
)

func claim(group, resource string, verbs ...string) apisv1alpha2.PermissionClaim {
	return apisv1alpha2.PermissionClaim{GroupResource: apisv1alpha2.GroupResource{Group: group, Resource: resource}, Verbs: verbs}
}

// sharing returns a server with an export in root:org that has two claims and binds immediately.
func sharing(t *testing.T) *fake.Server {
	server := forest(t)
	roles := claim("rbac.authorization.k8s.io", "roles", "*")
	roles.DefaultSelector = &apisv1alpha2.PermissionClaimSelector{LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"for": "widgets"}}}
	roles.IdentityHash = "abc"
	claims := []apisv1alpha2.PermissionClaim{claim("", "configmaps", "get", "list"), roles}
	server.Export("root:org", "widgets", claims...)
	server.Binding = func(b *apisv1alpha2.APIBinding) {
		b.Status.Phase, b.Status.APIExportClusterName, b.Status.ExportPermissionClaims = apisv1alpha2.APIBindingPhaseBound, "c0", claims
	}
	return server
}

const bound = "APIBinding \"widgets\" created. Waiting for it to be bound...\nAPIBinding \"widgets\" is bound to root:org:widgets."

// claimStates returns the claims in a binding as resource=state(verbs).
func claimStates(server *fake.Server, path string) string {
	var texts []string
	for _, c := range server.Bound(path, "widgets").Spec.PermissionClaims {
		texts = append(texts, c.Resource+"="+string(c.State)+"("+strings.Join(c.Verbs, ",")+")")
	}
	return strings.Join(texts, " ")
}

func TestBindExport(t *testing.T) {
	server := sharing(t)
	u := at(t, server, "/clusters/root:org:team-a")
	u.prints(bound, "kcp", "bind", "apiexport", "root:org:widgets", "--accept-permission-claim", "configmaps", "--reject-all-permission-claims")
	if got := claimStates(server, "root:org:team-a"); got != "configmaps=Accepted(get,list) roles=Rejected(*)" {
		t.Errorf("claims are %s", got)
	}
	if roles := server.Bound("root:org:team-a", "widgets").Spec.PermissionClaims[1]; roles.IdentityHash != "abc" ||
		roles.Selector.MatchLabels["for"] != "widgets" || roles.DefaultSelector != nil {
		t.Errorf("claim is %v", roles)
	}
	u.fails(`root:org:team-a already has an APIBinding "widgets"; choose another name with --name`, "kcp", "bind", "apiexport", "root:org:widgets")
	u.prints("apibinding.apis.kcp.io/ours", "kcp", "bind", "apiexport", "root:org:widgets", "--name", "ours", "-o", "name")
	if got := server.Bound("root:org:team-a", "ours"); len(got.Spec.PermissionClaims) > 0 {
		t.Errorf("no claims requested, got %v", got.Spec)
	}
	u.prints(bound, "kcp", "bind", "apiexport", ":root:org:widgets", "-w", "..:team-b", "--accept-all-permission-claims", "--reject-permission-claim",
		"roles.rbac.authorization.k8s.io")
	if got := claimStates(server, "root:org:team-b"); got != "configmaps=Accepted(get,list) roles=Rejected(*)" {
		t.Errorf("claims are %s", got)
	}
	_, stderr, err := u.run("kcp", "bind", "apiexport", "widgets", "-w", "..")
	if reference := server.Bound("root:org", "widgets").Spec.Reference.Export; err != nil || reference.Path != "" ||
		!strings.Contains(stderr, `Warning: APIBinding "widgets" to widgets neither accepts nor rejects the permission claim on configmaps.core (get, list).`) {
		t.Errorf("%q, %v, %v", stderr, err, reference)
	}
}

func TestClaimsOfUnreadableExportAreAcceptedOnceBound(t *testing.T) {
	server := sharing(t)
	server.Hidden = map[string]bool{"apiexports": true}
	u := at(t, server, "/clusters/root:org:team-a")
	u.prints(bound, "kcp", "bind", "apiexport", "root:org:widgets", "--accept-all-permission-claims")
	if got := claimStates(server, "root:org:team-a"); got != "configmaps=Accepted(get,list) roles=Accepted(*)" {
		t.Errorf("claims are %s", got)
	}
	u.fails("--dry-run with permission claims requires reading the APIExport", "kcp", "bind", "apiexport", "root:org:widgets", "--accept-all-permission-claims", "--dry-run")
	u.fails("the APIExport does not claim secrets.core; it claims configmaps.core, roles.rbac.authorization.k8s.io",
		"kcp", "bind", "apiexport", "root:org:widgets", "--name", "other", "--accept-permission-claim", "secrets.core")
}

func TestBindErrors(t *testing.T) {
	server := sharing(t)
	u := at(t, server, "/clusters/root:org:team-a")
	bind := func(args ...string) []string { return append([]string{"kcp", "bind", "apiexport"}, args...) }
	u.fails("requires one APIExport as PATH:NAME", bind()...)
	server.Hidden = map[string]bool{"apibindings": true}
	u.fails("did you mean root:org:widgets?", bind("org:widgets")...)
	server.Hidden = nil
	u.fails(`invalid APIExport "root:org:"`, bind("root:org:")...)
	u.fails(`invalid APIExport "..:widgets": must be the absolute path`, bind("..:widgets")...)
	u.fails("the APIExport does not claim secrets.core; it claims configmaps.core", bind("root:org:widgets", "--reject-permission-claim", "secrets.core")...)
	u.fails("permission claim on configmaps.core is both accepted and rejected",
		bind("root:org:widgets", "--reject-permission-claim", "configmaps.core", "--accept-permission-claim", "configmaps")...)
	u.fails("none of the others can be", bind("root:org:widgets", "--accept-all-permission-claims", "--reject-all-permission-claims")...)
	u.fails("must be one of none, client, server", bind("root:org:widgets", "--dry-run=maybe")...)
	u.fails(`is not a workspace`, bind("root:org:widgets", "-s", server.URL)...)
	if b := server.Bound("root:org:team-a", "widgets"); b != nil {
		t.Errorf("binding exists after errors: %v", b)
	}
	server.Binding = func(b *apisv1alpha2.APIBinding) {
		b.Status.Conditions = []corev1alpha1.Condition{
			{Type: "APIExportValid", Status: metav1.ConditionFalse, Reason: "APIExportNotFound", Message: "APIExport root:org|widgets not found"},
			{Type: "Ready", Status: metav1.ConditionFalse, Reason: "WaitingForEstablished", Message: "APIExport root:org|widgets not found"},
		}
	}
	u.fails("is not bound after 300ms: phase is Binding; APIExportNotFound: APIExport root:org|widgets not found. The server keeps trying",
		bind("root:org:widgets", "--timeout", "300ms")...)
	_, stderr, _ := u.run(bind("root:org:widgets", "--timeout", "300ms", "--name", "again")...)
	if want := "APIBinding \"again\": phase is Binding; APIExportNotFound: APIExport root:org|widgets not found\n"; stderr != want {
		t.Errorf("progress is %q", stderr)
	}
}

func TestBindWaitsUntilResourcesAreServed(t *testing.T) {
	server := sharing(t)
	served := []metav1.APIResourceList{{GroupVersion: "example.org/v1", APIResources: []metav1.APIResource{{Name: "widgets", Kind: "Widget"}}}}
	u := at(t, server, "/clusters/root:org:team-a")
	server.Binding = func(b *apisv1alpha2.APIBinding) {
		b.Status.Phase, b.Status.BoundResources = apisv1alpha2.APIBindingPhaseBound, []apisv1alpha2.BoundAPIResource{{Group: "example.org", Resource: "widgets"}}
	}
	u.fails(`APIBinding "early" is bound, but the workspace does not serve widgets.example.org yet`,
		"kcp", "bind", "apiexport", "root:org:widgets", "--name", "early", "--timeout", "300ms")
	server.Serve("root:org:team-a", served)
	u.prints(bound, "kcp", "bind", "apiexport", "root:org:widgets")
}

func TestDryRunBindsNothing(t *testing.T) {
	server := sharing(t)
	u := at(t, server, "/clusters/root:org:team-a")
	u.prints("APIBinding \"widgets\" created (client dry run).", "kcp", "bind", "apiexport", "root:org:widgets", "--dry-run")
	for _, run := range []string{"client", "server"} {
		stdout, _, err := u.run("kcp", "bind", "apiexport", "root:org:widgets", "--accept-all-permission-claims", "--dry-run="+run, "-o", "yaml")
		if err != nil || !strings.HasPrefix(stdout, "apiVersion: apis.kcp.io/v1alpha2\nkind: APIBinding\n") || strings.Count(stdout, "state: Accepted") != 2 {
			t.Errorf("%s: %v, %s", run, err, stdout)
		}
	}
	if b := server.Bound("root:org:team-a", "widgets"); b != nil {
		t.Errorf("dry run created %v", b)
	}
}

func TestAcceptAndRejectClaims(t *testing.T) {
	server := sharing(t)
	u := at(t, server, "/clusters/root:org:team-a")
	u.prints(bound, "kcp", "bind", "apiexport", "root:org:widgets")
	get := func(want string, flags ...string) {
		t.Helper()
		stdout, _, err := u.run(append([]string{"kcp", "claims", "get", "apibinding"}, flags...)...)
		if got := strings.Join(strings.Fields(stdout), " "); err != nil || got != want {
			t.Errorf("claims are %q, %v; want %q", got, err, want)
		}
	}
	const roles = "widgets roles.rbac.authorization.k8s.io *"
	get("APIBINDING CLAIM VERBS STATE widgets configmaps.core get,list Open " + roles + " Open")
	u.prints("Accepted configmaps.core (get, list)", "kcp", "claims", "accept", "apibinding", "widgets", "--resource", "configmaps.core")
	u.prints("Accepted roles.rbac.authorization.k8s.io (*)", "kcp", "claims", "accept", "widgets", "--identity-hash", "abc")
	u.prints("APIBinding \"widgets\" is up to date, nothing changed", "kcp", "claims", "accept", "apibinding", "widgets")
	u.prints("Rejected configmaps.core (get, list)", "kcp", "claims", "reject", "apibindings", "widgets", "--resource", "configmaps")
	get("APIBINDING CLAIM VERBS STATE OBJECTS IDENTITY HASH widgets configmaps.core get,list Rejected all "+roles+" Accepted for=widgets abc", "widgets", "-o", "wide")

	// The export changes its claims.
	server.Binding = func(b *apisv1alpha2.APIBinding) {
		b.Status.ExportPermissionClaims = []apisv1alpha2.PermissionClaim{claim("", "configmaps", "get"), claim("", "secrets", "get")}
	}
	get("APIBINDING CLAIM VERBS STATE widgets configmaps.core get Rejected for get,list widgets secrets.core get Open widgets roles.rbac.authorization.k8s.io NotClaimed", "widgets")
	_, stderr, err := u.run("ws", "use", ".:..:team-a")
	for _, want := range []string{
		`Warning: APIBinding "widgets" to root:org:widgets accepts or rejects the permission claim on configmaps.core for get, list, but the APIExport now claims get.`,
		`Warning: APIBinding "widgets" to root:org:widgets neither accepts nor rejects the permission claim on secrets.core (get).`,
		"Run kubectl kcp claims get apibinding widgets",
	} {
		if err != nil || !strings.Contains(stderr, want) {
			t.Errorf("missing %q in %q, %v", want, stderr, err)
		}
	}
	server.Hidden = map[string]bool{"apibindings": true}
	if _, stderr, err := u.run("ws", "use", ":root:org:team-a"); err != nil || stderr != "" {
		t.Errorf("warned about bindings that the user may not read: %q, %v", stderr, err)
	}
	server.Hidden = nil
	u.prints("Rejected configmaps.core (get)\nRemoved roles.rbac.authorization.k8s.io, which is no longer claimed", "kcp", "claims", "update", "apibinding", "widgets")
	get("APIBINDING CLAIM VERBS STATE widgets configmaps.core get Rejected widgets secrets.core get Open", "widgets")
	u.prints("APIBinding \"widgets\" is up to date, nothing changed", "kcp", "claims", "update", "widgets")

	u.fails(`root:org:team-a has no APIBinding "gadgets"; it has widgets`, "kcp", "claims", "accept", "apibinding", "gadgets")
	u.fails(`root:org:team-b has no APIBinding "gadgets"; it has no APIBindings`, "kcp", "claims", "get", "apibinding", "gadgets", "-w", "..:team-b")
	u.fails("the APIExport does not claim pods.core; it claims configmaps.core, secrets.core", "kcp", "claims", "reject", "widgets", "--resource", "pods.core")
	u.fails("the APIExport does not claim anything with the identity hash x", "kcp", "claims", "reject", "widgets", "--identity-hash", "x")
	u.fails("requires the name of one APIBinding", "kcp", "claims", "accept", "one", "two")
	u.prints("[]", "kcp", "claims", "get", "apibinding", "-w", "..:team-b", "-o", "json")
}

func TestGetAPIs(t *testing.T) {
	server := forest(t)
	server.Serve("root:org", []metav1.APIResourceList{
		{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "secrets", Kind: "Secret", Namespaced: true}}},
		{GroupVersion: "example.org/v1", APIResources: []metav1.APIResource{
			{Name: "widgets", Kind: "Widget", ShortNames: []string{"wdg"}, Namespaced: true}, {Name: "widgets/status", Kind: "Widget"}}},
		{GroupVersion: "example.org/v1beta1", APIResources: []metav1.APIResource{
			{Name: "widgets", Kind: "Widget", Namespaced: true}, {Name: "gadgets", Kind: "Gadget"}}},
	}, "gadgets.example.org")
	widgets := apis.NewBinding("ours", "root:apis", "widgets")
	widgets.Status.BoundResources = []apisv1alpha2.BoundAPIResource{
		{Group: "example.org", Resource: "widgets", Schema: apisv1alpha2.BoundAPIResourceSchema{Name: "v1.widgets.example.org"}}}
	server.Bind("root:org", widgets)
	u := at(t, server, "/clusters/root:org")
	lists := func(want string, flags ...string) {
		t.Helper()
		stdout, _, err := u.run(append([]string{"kcp", "get", "apis"}, flags...)...)
		if got := strings.Join(strings.Fields(stdout), " "); err != nil || got != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	lists("RESOURCE GROUP VERSIONS KIND PROVIDED BY secrets v1 Secret built in gadgets example.org v1beta1 Gadget CustomResourceDefinition " +
		"widgets example.org v1,v1beta1 Widget APIBinding ours → root:apis:widgets")
	lists("secrets gadgets.example.org widgets.example.org", "-o", "name")
	lists("RESOURCE SHORTNAMES GROUP VERSIONS KIND NAMESPACED SCHEMA PROVIDED BY secrets v1 Secret true built in "+
		"gadgets example.org v1beta1 Gadget false CustomResourceDefinition "+
		"widgets wdg example.org v1,v1beta1 Widget true v1.widgets.example.org APIBinding ours → root:apis:widgets", "-o", "wide")
	stdout, _, err := u.run("kcp", "get", "apis", "-o", "yaml", "-w", ":root:org")
	if err != nil || !strings.Contains(stdout, "  providedBy:\n    export: root:apis:widgets\n    kind: APIBinding\n    name: ours\n    schema: v1.widgets.example.org\n") {
		t.Errorf("%s, %v", stdout, err)
	}
	server.Hidden = map[string]bool{"customresourcedefinitions": true}
	lists("RESOURCE GROUP VERSIONS KIND PROVIDED BY secrets v1 Secret unknown gadgets example.org v1beta1 Gadget unknown " +
		"widgets example.org v1,v1beta1 Widget APIBinding ours → root:apis:widgets")
	_, stderr, _ := u.run("kcp", "get", "apis")
	if want := "Note: you may not list the CustomResourceDefinitions of root:org, so some providers are unknown\n"; stderr != want {
		t.Errorf("note is %q", stderr)
	}
	u.fails(`access to workspace "root:closed" denied`, "kcp", "get", "apis", "-w", ":root:closed")
}

func TestCompletionOfExportsBindingsAndClaims(t *testing.T) {
	server := sharing(t)
	u := at(t, server, "/clusters/root:org:team-a")
	u.prints(bound, "kcp", "bind", "apiexport", "root:org:widgets")
	u.completes([]string{"root:"}, "kcp", "bind", "apiexport", "")
	u.completes([]string{"root:org:team-a:", "root:org:team-b:", "root:org:widgets"}, "kcp", "bind", "apiexport", "root:org:")
	u.completes([]string{":root:org:widgets"}, "kcp", "bind", "apiexport", ":root:org:w")
	u.completes(nil, "kcp", "bind", "apiexport", "root:org:widgets", "")
	u.completes([]string{"configmaps.core"}, "kcp", "bind", "apiexport", "root:org:widgets", "--accept-permission-claim", "c")
	u.completes([]string{"none", "client", "server"}, "kcp", "bind", "apiexport", "--dry-run=")
	u.completes([]string{"widgets"}, "kcp", "claims", "get", "apibinding", "")
	u.completes([]string{"apibinding"}, "kcp", "claims", "accept", "")
	u.completes([]string{"widgets"}, "kcp", "claims", "update", "apibinding", "w")
	u.completes([]string{"configmaps.core", "roles.rbac.authorization.k8s.io"}, "kcp", "claims", "reject", "apibinding", "widgets", "--resource", "")
	u.completes([]string{"apibinding"}, "kcp", "claims", "get", "api")
}
