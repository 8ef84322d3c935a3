package authorization

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/logicalcluster"
)

func warrantOf(groups string, nested ...string) string {
	extra := ""
	for _, n := range nested {
		extra += fmt.Sprintf(`,"extra":{%q:[%q]}`, WarrantKey, n)
	}
	return fmt.Sprintf(`{"user":"eve","groups":[%q]%s}`, groups, extra)
}

func TestGuardedGroupsCannotBeReachedIndirectly(t *testing.T) {
	chain := world(t, logicalClusterIn("a", corev1alpha1.LogicalClusterPhaseReady, ""), binding("a", "cluster-admin", userSubject("alice")))
	ctx := logicalcluster.WithName(context.Background(), "a")
	for name, c := range map[string]struct {
		groups                           []string
		verb, resource, subresource, arg string
		want                             bool
	}{
		"a group, constrained":                 {nil, "impersonate:user-info", "groups", "", "devs", true},
		"a guarded group, constrained":         {nil, "impersonate:user-info", "groups", "", AdminGroup, false},
		"a guarded group, as policies name it": {nil, "impersonate", "groups", "", BindingPrefix + WorkspaceBootstrapper, false},
		"the same in a warrant":                {nil, "impersonate", "userextras", WarrantKey, warrantOf(BindingPrefix + BindingPrefix + AdminGroup), false},
		"a group that one holds, as policies":  {[]string{user.AllAuthenticated}, "impersonate", "groups", "", BindingPrefix + user.AllAuthenticated, true},
		"all groups at once":                   {nil, "impersonate:user-info", "groups", "", "*", false},
		"all groups at once, as a master":      {[]string{user.SystemPrivilegedGroup}, "impersonate:user-info", "groups", "", "*", true},
		"an extra value":                       {nil, "impersonate", "userextras", "color", "red", true},
		"all extra values at once":             {nil, "impersonate:user-info", "userextras", "*", "*", false},
		"all warrants at once":                 {nil, "impersonate", "userextras", WarrantKey, "*", false},
		"a warrant":                            {nil, "impersonate", "userextras", WarrantKey, warrantOf("devs"), true},
		"a warrant of a guarded group":         {nil, "impersonate", "userextras", WarrantKey, warrantOf(user.SystemPrivilegedGroup), false},
		"a warrant of a group one holds":       {[]string{AdminGroup}, "impersonate", "userextras", WarrantKey, warrantOf(AdminGroup), true},
		"a warrant in a warrant":               {nil, "impersonate", "userextras", WarrantKey, warrantOf("devs", warrantOf("x", warrantOf(AdminGroup))), false},
		"the former key of a cluster":          {nil, "impersonate", "userextras", FormerClusterNameKey, "a", false},
		"... as a master":                      {[]string{user.SystemPrivilegedGroup}, "impersonate", "userextras", FormerClusterNameKey, "a", false},
		"... in a warrant": {nil, "impersonate", "userextras", WarrantKey,
			warrantOf("devs", `{"user":"x","extra":{"authentication.kubernetes.io/cluster-name":["a"]}}`), false},
		"a warrant that cannot be parsed":     {nil, "impersonate", "userextras", WarrantKey, `{"groups":`, true},
		"a question about a request in-force": {nil, "impersonate-on:user-info:list", "groups", "", AdminGroup, true},
	} {
		a := authorizer.AttributesRecord{User: &user.DefaultInfo{Name: "alice", Groups: c.groups}, Verb: c.verb, APIGroup: "authentication.k8s.io",
			Resource: c.resource, Subresource: c.subresource, Name: c.arg, ResourceRequest: true}
		decision, reason, err := chain.Authorize(ctx, a)
		if err != nil || (decision == allow) != c.want {
			t.Errorf("%s: allowed %t, want %t (%s, %v)", name, decision == allow, c.want, reason, err)
		}
	}
}

func TestAnImpersonatedIdentityIsLimitedToTheClusterWithAllItsWarrants(t *testing.T) {
	alice := &user.DefaultInfo{Name: "alice"}
	master := &user.DefaultInfo{Name: "root", Groups: []string{user.SystemPrivilegedGroup}}
	eve := &user.DefaultInfo{Name: "eve", Groups: []string{"devs"}, Extra: map[string][]string{
		ScopesKey: {"cluster:a,cluster:b"}, WarrantKey: {`{"user":"bob","extra":{"authorization.kcp.io/warrant":["{\"user\":\"carol\"}"]}}`, `{`}}}
	limited := &user.DefaultInfo{Name: "eve", Groups: []string{"devs"}, Extra: map[string][]string{
		ScopesKey: {"cluster:a,cluster:b", "cluster:a"},
		WarrantKey: {`{"user":"bob","extra":{"authentication.kcp.io/scopes":["cluster:a"],"authorization.kcp.io/warrant":` +
			`["{\"user\":\"carol\",\"extra\":{\"authentication.kcp.io/scopes\":[\"cluster:a\"]}}"]}}`}}}
	for name, c := range map[string]struct {
		impersonator *Impersonator
		user         user.Info
		want         user.Info
	}{
		"no impersonation":                {nil, eve, nil},
		"the impersonator himself":        {&Impersonator{alice}, alice, nil},
		"an equal user is not the same":   {&Impersonator{alice}, &user.DefaultInfo{Name: "alice"}, &user.DefaultInfo{Name: "alice", Extra: map[string][]string{ScopesKey: {"cluster:a"}}}},
		"a user impersonates":             {&Impersonator{alice}, eve, limited},
		"someone unknown impersonates":    {&Impersonator{}, eve, limited},
		"a member of masters may roam":    {&Impersonator{master}, eve, eve},
		"one becomes a member of masters": {&Impersonator{alice}, master, &user.DefaultInfo{Name: "root", Groups: master.Groups, Extra: map[string][]string{ScopesKey: {"cluster:a"}}}},
	} {
		ctx := request.WithUser(logicalcluster.WithName(context.Background(), "a"), c.user)
		if c.impersonator != nil {
			ctx = WithImpersonator(ctx, c.impersonator)
		}
		got := ImpersonatedUser(ctx)
		if by := impersonatorOf(got); by != nil {
			if by != user.Info(c.impersonator.User) {
				t.Errorf("%s: by %v", name, by)
			}
			got = got.(impersonated).DefaultInfo
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for _, i := range EffectiveIdentities(limited, "c") {
		if i.GetName() != user.Anonymous {
			t.Errorf("outside of its cluster, the impersonated user acts as %s", i.GetName())
		}
	}
}

func TestARequestIsAuthorizedWithTheLimitedIdentity(t *testing.T) {
	chain := world(t, logicalClusterIn("a", corev1alpha1.LogicalClusterPhaseReady, ""), binding("a", "cluster-admin", userSubject("alice"), groupSubject("system:cluster:b")))
	inB := &user.DefaultInfo{Name: "eve", Groups: []string{user.AllAuthenticated}, Extra: map[string][]string{ScopesKey: {"cluster:b"}}}
	ctx := request.WithUser(logicalcluster.WithName(context.Background(), "a"), inB)
	a := authorizer.AttributesRecord{User: inB, Verb: "get", Resource: "secrets", ResourceRequest: true}
	if decision, reason, err := chain.Authorize(ctx, a); err != nil || decision != allow {
		t.Errorf("a real member of b is not allowed: %s, %v", reason, err)
	}
	ctx = WithImpersonator(ctx, &Impersonator{&user.DefaultInfo{Name: "alice"}})
	if decision, _, err := chain.Authorize(ctx, a); err != nil || decision == allow {
		t.Errorf("an impersonated member of b is allowed (%v)", err)
	}
}
