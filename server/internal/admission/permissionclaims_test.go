package admission

import (
	"maps"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/internal/tenancy/claims"
)

// bindingTo returns a binding of the workspace team to an export of the workspace provider.
func bindingTo(name, export string, accepted ...apisv1alpha2.AcceptablePermissionClaim) *apisv1alpha2.APIBinding {
	b := objecttest.In("team", &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: name}})
	b.Spec.Reference.Export = &apisv1alpha2.ExportBindingReference{Path: "root:provider", Name: export}
	b.Spec.PermissionClaims = accepted
	b.Status.APIExportClusterName = "provider"
	return b
}

// acceptedClaim returns an accepted claim on a resource of example.org.
func acceptedClaim(resource string, selector apisv1alpha2.PermissionClaimSelector) apisv1alpha2.AcceptablePermissionClaim {
	c := apisv1alpha2.AcceptablePermissionClaim{State: apisv1alpha2.ClaimAccepted}
	c.Group, c.Resource, c.Verbs, c.Selector = "example.org", resource, []string{"*"}, selector
	return c
}

func TestObjectsHaveTheLabelsOfAcceptedClaims(t *testing.T) {
	everything := apisv1alpha2.PermissionClaimSelector{MatchAll: true}
	labelled := apisv1alpha2.PermissionClaimSelector{LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}
	provider := claims.Export{Cluster: "provider", Name: "widgets"}
	key, claimed := provider.Label(&apisv1alpha2.PermissionClaim{GroupResource: apisv1alpha2.GroupResource{Group: "example.org", Resource: "widgets"}})
	_, ofBinding := provider.ReflexiveLabel()
	rejected := acceptedClaim("widgets", everything)
	rejected.State = apisv1alpha2.ClaimRejected
	for name, test := range map[string]struct {
		write
		kind     string
		accepted []apisv1alpha2.AcceptablePermissionClaim
		by       *apisv1alpha2.PermissionClaimSelector
		want     map[string]string
		refused  string
	}{
		"an object of a claimed resource gets the label":  {write{object: `{}`}, "", []apisv1alpha2.AcceptablePermissionClaim{acceptedClaim("widgets", everything)}, nil, map[string]string{key: claimed}, ""},
		"other labels are kept":                           {write{object: `metadata: {labels: {a: b}}`}, "", []apisv1alpha2.AcceptablePermissionClaim{acceptedClaim("widgets", everything)}, nil, map[string]string{"a": "b", key: claimed}, ""},
		"an object that a claim selects gets the label":   {write{object: `metadata: {labels: {app: web}}`}, "", []apisv1alpha2.AcceptablePermissionClaim{acceptedClaim("widgets", labelled)}, nil, map[string]string{"app": "web", key: claimed}, ""},
		"an object that no claim selects does not get it": {write{object: `metadata: {labels: {app: db}}`}, "", []apisv1alpha2.AcceptablePermissionClaim{acceptedClaim("widgets", labelled)}, nil, map[string]string{"app": "db"}, ""},
		"an object of another resource does not get it":   {write{object: `{}`}, "", []apisv1alpha2.AcceptablePermissionClaim{acceptedClaim("gadgets", everything)}, nil, nil, ""},
		"a rejected claim adds no label":                  {write{object: `{}`}, "", []apisv1alpha2.AcceptablePermissionClaim{rejected}, nil, nil, ""},
		"a label of the client is removed":                {write{object: `metadata: {labels: {claimed.internal.apis.kcp.io/abc: forged}}`}, "", nil, nil, map[string]string{}, ""},
		"a write of the status gets the label":            {write{object: `{}`, before: `{}`, subresource: "status"}, "", []apisv1alpha2.AcceptablePermissionClaim{acceptedClaim("widgets", everything)}, nil, map[string]string{key: claimed}, ""},
		"another subresource is not changed":              {write{object: `{}`, before: `{}`, subresource: "scale"}, "", []apisv1alpha2.AcceptablePermissionClaim{acceptedClaim("widgets", everything)}, nil, nil, ""},
		"a review is not changed":                         {write{group: "authorization.k8s.io", object: `{}`}, "", []apisv1alpha2.AcceptablePermissionClaim{acceptedClaim("widgets", everything)}, nil, nil, ""},
		"a provider's write gets the labels of the selector": {write{object: `{}`}, "", []apisv1alpha2.AcceptablePermissionClaim{acceptedClaim("widgets", labelled)}, &labelled,
			map[string]string{"app": "web", key: claimed}, ""},
		"a provider's write with another label is refused": {write{object: `metadata: {labels: {app: db}}`}, "", []apisv1alpha2.AcceptablePermissionClaim{acceptedClaim("widgets", labelled)}, &labelled,
			nil, "403 Forbidden: protected label app must have value web"},
		"a binding gets the label of its export": {write{group: "apis.kcp.io", object: toWidgets}, "APIBinding", nil, nil, map[string]string{key: ofBinding}, ""},
		"a binding without a reference does not": {write{group: "apis.kcp.io", object: toNothing}, "APIBinding", nil, nil, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if test.group == "" {
				test.group = "example.org"
			}
			if test.kind == "" {
				test.kind = "Widget"
			}
			config := newConfig(t, nil, append(at("root", "root:provider", "root:team"), bindingTo("widgets", "widgets", test.accepted...))...)
			a, ctx := test.attributes(t, test.kind), in(t, "team")
			if test.by != nil {
				ctx = WithClaim(ctx, test.by)
			}
			plugin := permissionClaims{rules{config}}
			err := plugin.Admit(ctx, a, nil)
			wantOutcome(t, a, err, test.refused)
			if err != nil {
				return
			}
			m := a.GetObject().(metav1.Object)
			if !maps.Equal(m.GetLabels(), test.want) {
				t.Errorf("got labels %v, want %v", m.GetLabels(), test.want)
			}
			wantOutcome(t, a, plugin.Validate(ctx, a, nil), "")
		})
	}
}

func TestLabelsOfClaimsCannotBeChangedAfterwards(t *testing.T) {
	config := newConfig(t, nil, append(at("root", "root:provider", "root:team"),
		bindingTo("widgets", "widgets", acceptedClaim("widgets", apisv1alpha2.PermissionClaimSelector{MatchAll: true})))...)
	plugin := permissionClaims{rules{config}}
	const refused = "403 Forbidden: the labels claimed.internal.apis.kcp.io/* are managed by the server and cannot be changed"
	for name, test := range map[string]struct {
		change func(map[string]string)
		want   string
	}{
		"an unchanged object is admitted":      {func(map[string]string) {}, ""},
		"another label is admitted":            {func(labels map[string]string) { labels["a"] = "b" }, ""},
		"a removed label is refused":           {func(labels map[string]string) { clear(labels) }, refused},
		"an added label of a claim is refused": {func(labels map[string]string) { labels[apisv1alpha2.ClaimedLabelPrefix+"abc"] = "forged" }, refused},
		"another value of the label is refused": {func(labels map[string]string) {
			for key := range labels {
				labels[key] = "forged"
			}
		}, refused},
	} {
		t.Run(name, func(t *testing.T) {
			a := write{group: "example.org", object: `{}`}.attributes(t, "Widget")
			if err := plugin.Admit(in(t, "team"), a, nil); err != nil {
				t.Fatal(err)
			}
			m := a.GetObject().(metav1.Object)
			labels := m.GetLabels()
			test.change(labels)
			m.SetLabels(labels)
			wantOutcome(t, a, plugin.Validate(in(t, "team"), a, nil), test.want)
		})
	}
}
