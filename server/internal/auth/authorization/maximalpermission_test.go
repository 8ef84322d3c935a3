package authorization

import (
	"context"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/internal/tenancy/exports"
	"github.com/kcplane/kcp/server/internal/tenancy/pathindex"
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

// elsewhere has no cluster of this shard but consumer.
type elsewhere struct{ loaded, deleted bool }

func (elsewhere) Here(cluster logicalcluster.Name) bool      { return cluster == "consumer" }
func (e elsewhere) Deleted(logicalcluster.Name, string) bool { return e.deleted }
func (e elsewhere) Loaded(cluster logicalcluster.Name) bool  { return e.loaded && cluster != "consumer" }

func TestABoundResourceIsRefusedWhileThePolicyOfItsProviderIsNotLoaded(t *testing.T) {
	bound := &apisv1alpha2.APIBinding{ObjectMeta: at("consumer", "widgets", nil)}
	bound.Spec.Reference.Export = &apisv1alpha2.ExportBindingReference{Name: "widgets", Path: "provider"}
	bound.Status.APIExportClusterName = "provider"
	bound.Status.BoundResources = []apisv1alpha2.BoundAPIResource{{Group: "example.org", Resource: "widgets"}}
	export, _ := limitedExport(t)
	open := export.DeepCopy()
	open.Spec.MaximalPermissionPolicy = nil
	admin := binding("consumer", "cluster-admin", userSubject("tina"))
	widgets := schema.GroupResource{Group: "example.org", Resource: "widgets"}
	workspaces := schema.GroupResource{Group: "tenancy.kcp.io", Resource: "workspaces"}
	for name, test := range map[string]struct {
		elsewhere exports.Elsewhere
		export    *apisv1alpha2.APIExport
		resource  schema.GroupResource
		want      authorizer.Decision
		err       bool
	}{
		"no other shards, and no export":              {nil, nil, widgets, allow, false},
		"an unknown export":                           {elsewhere{loaded: true}, nil, widgets, noOpinion, true},
		"an export without a policy, not yet loaded":  {elsewhere{}, open, widgets, noOpinion, true},
		"an export without a policy":                  {elsewhere{loaded: true}, open, widgets, allow, false},
		"a deleted export":                            {elsewhere{loaded: true, deleted: true}, nil, widgets, allow, false},
		"a deleted export, not yet loaded":            {elsewhere{deleted: true}, nil, widgets, noOpinion, true},
		"a deleted export that was created again":     {elsewhere{loaded: true, deleted: true}, export, widgets, noOpinion, false},
		"an export with a policy that trusts no user": {elsewhere{loaded: true}, export, widgets, noOpinion, false},
		"another resource":                            {elsewhere{}, nil, schema.GroupResource{Resource: "secrets"}, allow, false},
		"an unknown export of root":                   {elsewhere{loaded: true}, nil, workspaces, noOpinion, true},
	} {
		t.Run(name, func(t *testing.T) {
			objects := objecttest.New(t)
			all, err := exports.New(objects.Set, pathindex.New(objects.Set), exports.SystemOf([]schema.GroupResource{workspaces}), nil)
			if err != nil {
				t.Fatal(err)
			}
			if test.elsewhere != nil {
				all.Share(test.elsewhere)
			}
			objects.Show(bound)
			objects.Show(admin)
			objects.Show(logicalClusterIn("consumer", corev1alpha1.LogicalClusterPhaseReady, ""))
			if test.export != nil {
				objects.Share(func(logicalcluster.Name) (string, []logicalcluster.Name) { return "east", nil })
				objects.Offer("east", test.export)
			}
			chain, err := New(Config{Set: objects.Set, Rules: NewRules(objects.Set), Exports: all, Order: []string{RBAC}})
			if err != nil {
				t.Fatal(err)
			}
			decision, reason, err := chain.Authorize(logicalcluster.WithName(t.Context(), "consumer"), authorizer.AttributesRecord{
				User: &user.DefaultInfo{Name: "tina", Groups: []string{user.AllAuthenticated}}, Verb: "create", APIGroup: test.resource.Group,
				Resource: test.resource.Resource, ResourceRequest: true,
			})
			if decision != test.want || (err != nil) != test.err || (test.err && !apierrors.IsServiceUnavailable(err)) {
				t.Errorf("got decision %v, %q, %v, want %v, error %v", decision, reason, err, test.want, test.err)
			}
		})
	}
}
