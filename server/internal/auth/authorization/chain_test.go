package authorization

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// world returns the chain over objects.
func world(t *testing.T, objects ...runtime.Object) authorizer.Authorizer {
	t.Helper()
	set := setOf(t, objects...)
	chain, err := New(Config{Order: []string{AlwaysAllowGroups, AlwaysAllowPaths, RBAC}, AlwaysAllowPaths: []string{"/readyz"}, Set: set, Rules: NewRules(set)})
	if err != nil {
		t.Fatal(err)
	}
	return chain
}

// setOf returns informers that hold objects.
func setOf(t testing.TB, objects ...runtime.Object) *informers.Set {
	t.Helper()
	factory := informers.NewFactory()
	factory.Index()
	set, err := informers.NewSet(factory)
	if err != nil {
		t.Fatal(err)
	}
	for _, obj := range objects {
		i := map[string]*informers.Informer{
			"*v1.Role": set.Roles.Informer, "*v1.RoleBinding": set.RoleBindings.Informer, "*v1.ClusterRole": set.ClusterRoles.Informer,
			"*v1.ClusterRoleBinding": set.ClusterRoleBindings.Informer, "*v1alpha1.LogicalCluster": set.LogicalClusters.Informer,
		}[typeName(obj)]
		if err := i.Indexer().Add(obj); err != nil {
			t.Fatal(err)
		}
	}
	return set
}

func typeName(obj runtime.Object) string {
	switch obj.(type) {
	case *rbacv1.Role:
		return "*v1.Role"
	case *rbacv1.RoleBinding:
		return "*v1.RoleBinding"
	case *rbacv1.ClusterRole:
		return "*v1.ClusterRole"
	case *rbacv1.ClusterRoleBinding:
		return "*v1.ClusterRoleBinding"
	}
	return "*v1alpha1.LogicalCluster"
}

func at(cluster, name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: labels, Annotations: map[string]string{logicalcluster.AnnotationKey: cluster}}
}

func logicalClusterIn(cluster string, phase corev1alpha1.LogicalClusterPhase, requiredGroups string) *corev1alpha1.LogicalCluster {
	lc := &corev1alpha1.LogicalCluster{ObjectMeta: at(cluster, corev1alpha1.LogicalClusterName, nil)}
	lc.Status.Phase = phase
	if requiredGroups != "" {
		lc.Annotations[corev1alpha1.RequiredGroupsAnnotation] = requiredGroups
	}
	return lc
}

func ofType(lc *corev1alpha1.LogicalCluster, id string) *corev1alpha1.LogicalCluster {
	lc.Annotations[tenancyv1alpha1.TypeAnnotation] = id
	return lc
}

func binding(cluster, role string, subjects ...rbacv1.Subject) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{ObjectMeta: at(cluster, role+"-binding", nil), Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}}
}

func userSubject(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}
}

func groupSubject(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: name}
}

func TestPermissionsToReadConfigMapsByCluster(t *testing.T) {
	const ready = corev1alpha1.LogicalClusterPhaseReady
	chain := world(t,
		logicalClusterIn("a", ready, ""),
		logicalClusterIn("b", ready, ""),
		logicalClusterIn("guarded", ready, "club,gold;staff"),
		logicalClusterIn("young", corev1alpha1.LogicalClusterPhaseScheduling, ""),
		binding("a", "cluster-admin", userSubject("alice")),
		binding("b", "cluster-admin", userSubject("bob"), groupSubject("system:cluster:a"), userSubject("system:kcp:serviceaccount:a:ns:bot")),
		binding("guarded", "cluster-admin", userSubject("alice"), userSubject("bob")),
		binding("young", "cluster-admin", userSubject("alice")),
		binding("a", "view", userSubject("viewer")),
		&rbacv1.ClusterRole{ObjectMeta: at("b", "cluster-admin", nil)}, // a role of the cluster hides the default role only in that cluster
	)
	authenticated := func(name string, groups ...string) *user.DefaultInfo {
		return &user.DefaultInfo{Name: name, Groups: append(groups, user.AllAuthenticated)}
	}
	with := func(u *user.DefaultInfo, key string, values ...string) *user.DefaultInfo {
		u.Extra = map[string][]string{key: values}
		return u
	}
	bot := func(cluster string) *user.DefaultInfo {
		return with(authenticated("system:serviceaccount:ns:bot", "system:serviceaccounts"), logicalcluster.UserExtraKey, cluster)
	}
	clusters := []string{"a", "b", "guarded", "young", "missing", "system:admin", "*"}
	for name, c := range map[string]struct {
		user    user.Info
		allowed []string
	}{
		"anonymous":                           {&user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}, nil},
		"a stranger":                          {authenticated("mallory"), nil},
		"a member of system:masters":          {authenticated("root", user.SystemPrivilegedGroup), clusters},
		"the administrator of workspaces":     {authenticated("admin", AdminGroup), []string{"a", "b", "guarded"}},
		"the owner of a":                      {authenticated("alice"), []string{"a"}},
		"the owner of a, in the right club":   {authenticated("alice", "club", "gold"), []string{"a", "guarded"}},
		"the owner of a, with half a card":    {authenticated("alice", "club"), []string{"a"}},
		"the owner of a, scoped to b":         {with(authenticated("alice"), ScopesKey, "cluster:b"), nil},
		"the owner of b, whose role is empty": {authenticated("bob", "staff"), []string{"guarded"}},
		"a viewer without access":             {authenticated("viewer"), nil},
		"a user with a warrant of alice":      {with(authenticated("mallory"), WarrantKey, `{"user":"alice"}`), []string{"a"}},
		"a service account of a":              {bot("a"), nil},
		"a user called like a scope group":    {authenticated("system:cluster:a"), nil},
	} {
		for _, cluster := range clusters {
			ctx := logicalcluster.WithName(context.Background(), logicalcluster.Name(cluster))
			if cluster == "*" {
				ctx = logicalcluster.WithWildcard(context.Background())
			}
			a := authorizer.AttributesRecord{User: c.user, Verb: "get", Namespace: "default", Resource: "configmaps", Name: "x", ResourceRequest: true}
			decision, reason, err := chain.Authorize(ctx, a)
			if err != nil {
				t.Errorf("%s in %s: %v", name, cluster, err)
			}
			if want := slices.Contains(c.allowed, cluster); (decision == allow) != want {
				t.Errorf("%s in %s: allowed %t, want %t (%s)", name, cluster, decision == allow, want, reason)
			}
		}
	}
}

func TestRolesOfTheClusterAreAggregatedIntoTheStandardOnes(t *testing.T) {
	chain := world(t,
		logicalClusterIn("a", corev1alpha1.LogicalClusterPhaseReady, ""),
		logicalClusterIn("b", corev1alpha1.LogicalClusterPhaseReady, ""),
		&rbacv1.ClusterRole{ObjectMeta: at("a", "widgets-view", map[string]string{"rbac.authorization.k8s.io/aggregate-to-view": "true"}),
			Rules: []rbacv1.PolicyRule{rule([]string{"example.com"}, []string{"widgets"}, "get")}},
		binding("a", "admin", userSubject("alice")), binding("a", accessRole, userSubject("alice")),
		binding("b", "admin", userSubject("alice")), binding("b", accessRole, userSubject("alice")),
	)
	for cluster, want := range map[logicalcluster.Name]bool{"a": true, "b": false} {
		a := authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "alice"}, Verb: "get", APIGroup: "example.com", Resource: "widgets", ResourceRequest: true}
		decision, _, err := chain.Authorize(logicalcluster.WithName(context.Background(), cluster), a)
		if err != nil || (decision == allow) != want {
			t.Errorf("in %s: allowed %t, want %t (%v)", cluster, decision == allow, want, err)
		}
	}
}

func TestGuardedGroupsCanOnlyBeImpersonatedByTheirMembers(t *testing.T) {
	chain := world(t, logicalClusterIn("a", corev1alpha1.LogicalClusterPhaseReady, ""), binding("a", "cluster-admin", userSubject("alice")))
	ctx := logicalcluster.WithName(context.Background(), "a")
	for _, c := range []struct {
		groups []string
		group  string
		want   bool
	}{
		{nil, "devs", true},
		{nil, user.SystemPrivilegedGroup, false},
		{nil, AdminGroup, false},
		{nil, LogicalClusterAdminGroup, false},
		{nil, ExternalAdminGroup, false},
		{nil, WorkspaceBootstrapper, false},
		{nil, user.AllAuthenticated, false},
		{[]string{user.AllAuthenticated}, user.AllAuthenticated, true},
		{[]string{AdminGroup}, AdminGroup, true},
		{[]string{user.SystemPrivilegedGroup}, AdminGroup, true},
	} {
		a := authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "alice", Groups: c.groups}, Verb: "impersonate", Resource: "groups", Name: c.group, ResourceRequest: true}
		decision, reason, err := chain.Authorize(ctx, a)
		if err != nil || (decision == allow) != c.want {
			t.Errorf("%v impersonates %s: allowed %t, want %t (%s, %v)", c.groups, c.group, decision == allow, c.want, reason, err)
		}
	}
}

func TestThePolicyOfRootAppliesToPathsOfTheServer(t *testing.T) {
	chain := world(t, logicalClusterIn("root", corev1alpha1.LogicalClusterPhaseReady, ""), binding("root", metricsReaderRole, userSubject("prometheus")))
	for _, c := range []struct {
		user, path string
		want       bool
	}{
		{"mallory", "/readyz", true}, {"mallory", "/metrics", false}, {"prometheus", "/metrics", true}, {"prometheus", "/debug/pprof", false},
	} {
		a := authorizer.AttributesRecord{User: &user.DefaultInfo{Name: c.user}, Verb: "get", Path: c.path}
		decision, _, err := chain.Authorize(context.Background(), a)
		if err != nil || (decision == allow) != c.want {
			t.Errorf("%s gets %s: allowed %t, want %t (%v)", c.user, c.path, decision == allow, c.want, err)
		}
	}
}

func TestRolesOfSystemAdminCanBeBoundEverywhere(t *testing.T) {
	role := func(cluster, name, resource string) *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{ObjectMeta: at(cluster, name, nil), Rules: []rbacv1.PolicyRule{rule([]string{""}, []string{resource}, "get")}}
	}
	rules := NewRules(setOf(t,
		role("system:admin", "shared", "configmaps"), role("system:admin", "own", "secrets"), role("a", "own", "configmaps"), role("b", "foreign", "secrets"),
		binding("a", "shared", userSubject("alice")), binding("a", "own", userSubject("bob")), binding("a", "foreign", userSubject("carol")),
	))
	for _, c := range []struct {
		cluster        logicalcluster.Name
		user, resource string
		want           bool
	}{
		{"a", "alice", "configmaps", true},
		{"b", "alice", "configmaps", false}, // the role is bound in a
		{"a", "bob", "configmaps", true},
		{"a", "bob", "secrets", false}, // the role of the cluster comes first
		{"a", "carol", "secrets", false},
	} {
		ctx, u := logicalcluster.WithName(t.Context(), c.cluster), &user.DefaultInfo{Name: c.user}
		decision, _, err := rules.Authorize(ctx, authorizer.AttributesRecord{User: u, Verb: "get", Resource: c.resource, ResourceRequest: true})
		if err != nil || (decision == allow) != c.want {
			t.Errorf("%s gets %s in %s: allowed %t, want %t (%v)", c.user, c.resource, c.cluster, decision == allow, c.want, err)
		}
		shown, _, _, _ := Resolver{rules}.RulesFor(ctx, u, "")
		got := slices.ContainsFunc(shown, func(r authorizer.ResourceRuleInfo) bool { return slices.Contains(r.GetResources(), c.resource) })
		if got != c.want {
			t.Errorf("the rules of %s in %s have %s: %t, want %t", c.user, c.cluster, c.resource, got, c.want)
		}
	}
}

// The role binding of an owner arrives in the informer while requests of the owner are being authorized.
func TestOwnersAreAdministratorsWhileTheirBindingArrives(t *testing.T) {
	lc := logicalClusterIn("a", corev1alpha1.LogicalClusterPhaseReady, "")
	lc.Spec.CreatedBy = &corev1alpha1.UserInfo{Username: "owner"}
	set := setOf(t, lc)
	stored := set.ClusterRoleBindings.Indexer()
	ended := make(chan struct{})
	var arriving sync.WaitGroup
	defer arriving.Wait()
	defer close(ended)
	arriving.Go(func() {
		for binding := bindTo(OwnersBindingName, "cluster-admin", "owner"); ; {
			select {
			case <-ended:
				return
			default:
			}
			if err := errors.Join(stored.Add(binding), stored.Delete(binding)); err != nil {
				t.Error(err)
			}
		}
	})
	ctx := logicalcluster.WithName(t.Context(), "a")
	for range 50_000 {
		bindings, err := localPolicy{set: set}.ListClusterRoleBindings(ctx)
		if err != nil || len(bindings) != 1 || bindings[0].Name != OwnersBindingName {
			t.Fatalf("got %d bindings: %v", len(bindings), err)
		}
	}
}
