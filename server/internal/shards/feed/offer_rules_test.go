package feed

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/logicalcluster"
)

func role(name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
}

func resourceRule(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}

func urlRule(url string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{NonResourceURLs: []string{url}, Verbs: verbs}
}

func subject(kind, name string) rbacv1.Subject { return rbacv1.Subject{Kind: kind, Name: name} }

func bindingTo(role string, subjects ...rbacv1.Subject) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "binding"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects: subjects,
	}
}

const (
	apisGroup, tenancyGroup = "apis.kcp.io", "tenancy.kcp.io"
	consumers               = "apis.kcp.io:binding:system:authenticated"
)

func TestRolesAreOfferedForTheirRulesOrForBindingsOfConsumers(t *testing.T) {
	none, provider, typed := [2]bool{}, [2]bool{true, false}, [2]bool{false, true}
	for name, test := range map[string]struct {
		role     *rbacv1.ClusterRole
		has      [2]bool // exports, types
		bindings []*rbacv1.ClusterRoleBinding
		want     []string
	}{
		"no rules":                           {role("r"), provider, nil, nil},
		"bind exports":                       {role("r", resourceRule(apisGroup, "apiexports", "bind")), none, nil, []string{"apis"}},
		"bind one export":                    {role("r", rbacv1.PolicyRule{APIGroups: []string{apisGroup}, Resources: []string{"apiexports"}, ResourceNames: []string{"a"}, Verbs: []string{"bind"}}), none, nil, []string{"apis"}},
		"all verbs of exports":               {role("r", resourceRule(apisGroup, "apiexports", "*")), none, nil, []string{"apis"}},
		"bind in all groups":                 {role("r", resourceRule("*", "apiexports", "bind")), none, nil, []string{"apis"}},
		"bind all resources":                 {role("r", resourceRule(apisGroup, "*", "bind")), none, nil, []string{"apis"}},
		"get exports":                        {role("r", resourceRule(apisGroup, "apiexports", "get", "list")), provider, nil, nil},
		"bind in another group":              {role("r", resourceRule("example.com", "apiexports", "bind")), provider, nil, nil},
		"bind another resource":              {role("r", resourceRule(apisGroup, "apibindings", "bind")), provider, nil, nil},
		"content with one verb":              {role("r", resourceRule(apisGroup, "apiexports/content", "get")), none, nil, []string{"apis"}},
		"content of all resources":           {role("r", resourceRule("*", "*/content", "list")), none, nil, []string{"apis"}},
		"content without verbs":              {role("r", resourceRule(apisGroup, "apiexports/content")), provider, nil, nil},
		"status of exports":                  {role("r", resourceRule(apisGroup, "apiexports/status", "*")), provider, nil, nil},
		"use types":                          {role("r", resourceRule(tenancyGroup, "workspacetypes", "use")), none, nil, []string{"tenancy"}},
		"initialize types":                   {role("r", resourceRule(tenancyGroup, "workspacetypes", "initialize")), none, nil, []string{"tenancy"}},
		"terminate types":                    {role("r", resourceRule(tenancyGroup, "workspacetypes", "terminate")), none, nil, []string{"tenancy"}},
		"all verbs of types":                 {role("r", resourceRule(tenancyGroup, "workspacetypes", "*")), none, nil, []string{"tenancy"}},
		"get types":                          {role("r", resourceRule(tenancyGroup, "workspacetypes", "get")), typed, nil, nil},
		"use workspaces":                     {role("r", resourceRule(tenancyGroup, "workspaces", "use")), typed, nil, nil},
		"use types in another group":         {role("r", resourceRule(apisGroup, "workspacetypes", "use")), typed, nil, nil},
		"everything":                         {role("r", resourceRule("*", "*", "*")), none, nil, []string{"apis", "tenancy"}},
		"read everything":                    {role("r", resourceRule("*", "*", "get", "list", "watch")), provider, nil, nil},
		"rules apart":                        {role("r", resourceRule(apisGroup, "pods", "bind"), resourceRule("example.com", "apiexports", "bind")), provider, nil, nil},
		"the second rule":                    {role("r", resourceRule("", "pods", "get"), resourceRule(apisGroup, "apiexports", "bind")), none, nil, []string{"apis"}},
		"access with exports":                {role("r", urlRule("/", "access")), provider, nil, []string{"core"}},
		"access with types":                  {role("r", urlRule("/", "access")), typed, nil, []string{"core"}},
		"access without either":              {role("r", urlRule("/", "access")), none, nil, nil},
		"access below":                       {role("r", urlRule("/*", "access")), provider, nil, []string{"core"}},
		"access to everything":               {role("r", urlRule("*", "*")), provider, nil, []string{"core"}},
		"access to a path":                   {role("r", urlRule("/metrics", "access")), provider, nil, nil},
		"get of the root path":               {role("r", urlRule("/", "get")), provider, nil, nil},
		"all words":                          {role("r", resourceRule("*", "*", "*"), urlRule("*", "*")), typed, nil, []string{"apis", "tenancy", "core"}},
		"an aggregated role":                 {&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "r"}, AggregationRule: &rbacv1.AggregationRule{}, Rules: []rbacv1.PolicyRule{resourceRule(apisGroup, "apiexports", "bind")}}, none, nil, []string{"apis"}},
		"an aggregated role without rules":   {&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "r"}, AggregationRule: &rbacv1.AggregationRule{}}, provider, nil, nil},
		"bound to a group of consumers":      {role("r", resourceRule("example.com", "*", "get")), none, []*rbacv1.ClusterRoleBinding{bindingTo("r", subject("Group", consumers))}, []string{"apis"}},
		"bound to a user of consumers":       {role("r"), none, []*rbacv1.ClusterRoleBinding{bindingTo("r", subject("User", "apis.kcp.io:binding:alice"))}, []string{"apis"}},
		"bound to consumers, uses types":     {role("r", resourceRule(tenancyGroup, "workspacetypes", "use")), none, []*rbacv1.ClusterRoleBinding{bindingTo("r", subject("Group", consumers))}, []string{"apis", "tenancy"}},
		"bound to others":                    {role("r"), provider, []*rbacv1.ClusterRoleBinding{bindingTo("r", subject("Group", "system:authenticated"))}, nil},
		"bound to a service account":         {role("r"), provider, []*rbacv1.ClusterRoleBinding{bindingTo("r", subject("ServiceAccount", consumers))}, nil},
		"another role is bound":              {role("r"), provider, []*rbacv1.ClusterRoleBinding{bindingTo("other", subject("Group", consumers))}, nil},
		"the prefix is not at the beginning": {role("r"), provider, []*rbacv1.ClusterRoleBinding{bindingTo("r", subject("Group", "x:"+consumers))}, nil},
	} {
		s := newSurroundings("a", []*rbacv1.ClusterRole{test.role}, test.bindings, test.has[0], test.has[1])
		if got := s.wordsOfRole(test.role); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
		if got := isRoleWithWords(test.role, s); got != (len(test.want) > 0) {
			t.Errorf("%s: offered is %t", name, got)
		}
	}
}

func TestBindingsAreOfferedForTheirRolesOrTheirSubjects(t *testing.T) {
	group := subject("Group", "team")
	roles := []*rbacv1.ClusterRole{
		role("binder", resourceRule(apisGroup, "apiexports", "bind")), role("user", resourceRule(tenancyGroup, "workspacetypes", "use")),
		role("entrance", urlRule("/", "access")), role("reader", resourceRule("", "pods", "get")),
	}
	ofNamespacedRole := bindingTo("binder", group)
	ofNamespacedRole.RoleRef.Kind = "Role"
	for name, test := range map[string]struct {
		binding *rbacv1.ClusterRoleBinding
		exports bool
		want    []string
	}{
		"of a role for exports":             {bindingTo("binder", group), false, []string{"apis"}},
		"of a role for types":               {bindingTo("user", group), false, []string{"tenancy"}},
		"of a role for access, exports":     {bindingTo("entrance", group), true, []string{"core"}},
		"of a role for access, no exports":  {bindingTo("entrance", group), false, nil},
		"of another role":                   {bindingTo("reader", group), true, nil},
		"of a role of the server":           {bindingTo("cluster-admin", group), true, nil},
		"of a role that does not exist":     {bindingTo("missing", group), true, nil},
		"of a namespaced role":              {ofNamespacedRole, true, nil},
		"without subjects":                  {bindingTo("binder"), false, []string{"apis"}},
		"of consumers":                      {bindingTo("cluster-admin", subject("Group", consumers)), false, []string{"apis"}},
		"of one consumer":                   {bindingTo("reader", group, subject("User", "apis.kcp.io:binding:alice")), false, []string{"apis"}},
		"of consumers, of a role for types": {bindingTo("user", subject("Group", consumers)), false, []string{"apis", "tenancy"}},
		"of a service account with the prefix": {bindingTo("reader", subject("ServiceAccount", "apis.kcp.io:binding:alice")), true,
			nil},
	} {
		s := newSurroundings("a", roles, []*rbacv1.ClusterRoleBinding{test.binding}, test.exports, false)
		if got := s.wordsOfBinding(test.binding); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
		if got := isBindingWithWords(test.binding, s); got != (len(test.want) > 0) {
			t.Errorf("%s: offered is %t", name, got)
		}
	}
}

func TestLogicalClustersHaveTheWordsOfTheirContent(t *testing.T) {
	for name, test := range map[string]struct {
		exports, types bool
		want           []string
	}{
		"exports": {true, false, []string{"apis"}}, "types": {false, true, []string{"tenancy"}},
		"both": {true, true, []string{"apis", "tenancy"}}, "an ancestor": {false, false, []string{"core"}},
	} {
		s := newSurroundings("a", nil, nil, test.exports, test.types)
		if got := s.wordsOf(&corev1alpha1.LogicalCluster{}); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}

func TestTheOfferedKindsAreThoseOfTheSpecification(t *testing.T) {
	content, clusters, workspaces := kindsOf(objecttest.New(t).Set)
	rules := map[string]string{}
	export := &apisv1alpha2.APIExport{}
	withExports := newSurroundings("a", nil, nil, true, false)
	for _, k := range content {
		rule := ""
		switch {
		case k.isRBAC():
			rule = "words"
		case k.offered(export, newSurroundings("a", nil, nil, false, false)):
			rule = "always"
		case k.offered(export, withExports):
			rule = "with exports"
		case k.offered(export, newSurroundings(logicalcluster.Root, nil, nil, false, false)):
			rule = "in root"
		}
		rules[k.resource.Resource+"."+k.resource.Version+"."+k.resource.Group+" "+k.name] = rule
	}
	for _, k := range []*kind{clusters, workspaces} {
		rules[k.resource.Resource+"."+k.resource.Version+"."+k.resource.Group+" "+k.name] = "carried"
	}
	const admission = ".v1.admissionregistration.k8s.io "
	want := map[string]string{
		"apiexports.v1alpha2.apis.kcp.io APIExport":                                                          "always",
		"apiexportendpointslices.v1alpha1.apis.kcp.io APIExportEndpointSlice":                                "always",
		"apiresourceschemas.v1alpha1.apis.kcp.io APIResourceSchema":                                          "always",
		"apiconversions.v1alpha1.apis.kcp.io APIConversion":                                                  "always",
		"mutatingwebhookconfigurations" + admission + "MutatingWebhookConfiguration":                         "with exports",
		"validatingwebhookconfigurations" + admission + "ValidatingWebhookConfiguration":                     "with exports",
		"validatingadmissionpolicies" + admission + "ValidatingAdmissionPolicy":                              "with exports",
		"validatingadmissionpolicybindings" + admission + "ValidatingAdmissionPolicyBinding":                 "with exports",
		"mutatingadmissionpolicies" + admission + "MutatingAdmissionPolicy":                                  "with exports",
		"mutatingadmissionpolicybindings" + admission + "MutatingAdmissionPolicyBinding":                     "with exports",
		"clustercachedresources.v1alpha1.cache.kcp.io ClusterCachedResource":                                 "always",
		"clustercachedresourceendpointslices.v1alpha1.cache.kcp.io ClusterCachedResourceEndpointSlice":       "always",
		"shards.v1alpha1.core.kcp.io Shard":                                                                  "in root",
		"logicalclustermigrations.v1alpha1.migration.kcp.io LogicalClusterMigration":                         "in root",
		"workspacetypes.v1alpha1.tenancy.kcp.io WorkspaceType":                                               "always",
		"workspaceauthenticationconfigurations.v1alpha1.tenancy.kcp.io WorkspaceAuthenticationConfiguration": "always",
		"clusterroles.v1.rbac.authorization.k8s.io ClusterRole":                                              "words",
		"clusterrolebindings.v1.rbac.authorization.k8s.io ClusterRoleBinding":                                "words",
		"logicalclusters.v1alpha1.core.kcp.io LogicalCluster":                                                "carried",
		"workspaces.v1alpha1.tenancy.kcp.io Workspace":                                                       "carried",
	}
	for kind, rule := range want {
		if rules[kind] != rule {
			t.Errorf("%s: got %q, want %q", kind, rules[kind], rule)
		}
	}
	if len(rules) != len(want) {
		t.Errorf("got %d kinds, want %d: %v", len(rules), len(want), rules)
	}
}
