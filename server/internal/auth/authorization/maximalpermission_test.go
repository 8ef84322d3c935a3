package authorization

import (
	"context"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// limitedExport returns an export of the cluster provider whose policy trusts subjects.
func limitedExport(t *testing.T, subjects ...rbacv1.Subject) (*apisv1alpha2.APIExport, *Rules) {
	export := &apisv1alpha2.APIExport{ObjectMeta: at("provider", "widgets", nil)}
	export.Spec.MaximalPermissionPolicy = &apisv1alpha2.MaximalPermissionPolicy{Local: &apisv1alpha2.LocalAPIExportPolicy{}}
	return export, NewRules(setOf(t, binding("provider", "cluster-admin", subjects...)))
}

func TestAPolicyMustAllowTheImpersonatorAsWell(t *testing.T) {
	export, rules := limitedExport(t, groupSubject(BindingPrefix+"trusted"), userSubject(BindingPrefix+"system:kcp:serviceaccount:consumer:ns:bot"))
	named := func(name string, groups ...string) *user.DefaultInfo {
		return &user.DefaultInfo{Name: name, Groups: append(groups, user.AllAuthenticated)}
	}
	bot := named("system:serviceaccount:ns:bot")
	bot.Extra = map[string][]string{logicalcluster.UserExtraKey: {"consumer"}}
	warranted := named("mallory")
	warranted.Extra = map[string][]string{WarrantKey: {warrantOf("trusted")}}
	for name, c := range map[string]struct {
		by, as *user.DefaultInfo
		want   bool
	}{
		"a member":                 {nil, named("tina", "trusted"), true},
		"another user":             {nil, named("mallory"), false},
		"another user as a member": {named("mallory"), named("tina", "trusted"), false},
		"another user with a warrant of a member":             {named("mallory"), warranted, false},
		"another user as a service account":                   {named("mallory"), bot, false},
		"a service account as a member":                       {bot, named("x", "trusted"), true},
		"a member as another one":                             {named("tina", "trusted"), named("tom", "trusted"), true},
		"a member as another user":                            {named("tina", "trusted"), named("mallory"), false},
		"a member of masters as a member":                     {named("root", user.SystemPrivilegedGroup), named("tina", "trusted"), true},
		"a member of masters who is none here, as a member":   {&user.DefaultInfo{Name: "r", Groups: []string{user.SystemPrivilegedGroup}, Extra: map[string][]string{ScopesKey: {"cluster:x"}}}, named("tina", "trusted"), false},
		"an administrator of the installation, as a member":   {named("admin", AdminGroup), named("tina", "trusted"), false},
		"a member who is scoped to elsewhere, as another one": {&user.DefaultInfo{Name: "tina", Groups: []string{"trusted"}, Extra: map[string][]string{ScopesKey: {"cluster:x"}}}, named("tom", "trusted"), false},
	} {
		ctx := request.WithUser(logicalcluster.WithName(context.Background(), "consumer"), c.as)
		var u user.Info = c.as
		if c.by != nil {
			u = ImpersonatedUser(WithImpersonator(ctx, &Impersonator{User: c.by}))
		}
		a := authorizer.AttributesRecord{User: u, Verb: "create", APIGroup: "example.org", Resource: "widgets", ResourceRequest: true}
		if got, reason, err := rules.WithinPolicy(ctx, export, "consumer", a); err != nil || got != c.want {
			t.Errorf("%s: allowed %t, want %t (%s, %v)", name, got, c.want, reason, err)
		}
	}
}

func TestAPolicyDoesNotTrustNamesAssignedByConsumers(t *testing.T) {
	export, rules := limitedExport(t, groupSubject(BindingPrefix+"trusted"), userSubject(BindingPrefix+"tina"), groupSubject(BindingPrefix+"system:cluster:friend"))
	issued := func(cluster string) *user.DefaultInfo {
		return &user.DefaultInfo{Name: "tina", Groups: []string{"trusted", user.AllAuthenticated}, Extra: map[string][]string{logicalcluster.UserExtraKey: {cluster}, ScopesKey: {scopePrefix + cluster}}}
	}
	for cluster, want := range map[string]bool{"consumer": false, "friend": true, "provider": true} {
		a := authorizer.AttributesRecord{User: issued(cluster), Verb: "create", APIGroup: "example.org", Resource: "widgets", ResourceRequest: true}
		got, reason, err := rules.WithinPolicy(context.Background(), export, logicalcluster.Name(cluster), a)
		if err != nil || got != want {
			t.Errorf("a user of the issuer of %s: allowed %t, want %t (%s, %v)", cluster, got, want, reason, err)
		}
	}
}
