package apibinding

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/internal/tenancy/claims"
)

// claimOn returns a claim on a resource, under an identity or not.
func claimOn(group, resource, identity string, verbs ...string) apisv1alpha2.PermissionClaim {
	return apisv1alpha2.PermissionClaim{
		GroupResource: apisv1alpha2.GroupResource{Group: group, Resource: resource}, IdentityHash: identity, Verbs: verbs,
	}
}

func scoped(claim apisv1alpha2.PermissionClaim) apisv1alpha2.ScopedPermissionClaim {
	return apisv1alpha2.ScopedPermissionClaim{PermissionClaim: claim, Selector: apisv1alpha2.PermissionClaimSelector{MatchAll: true}}
}

var onConfigMaps = claimOn("", "configmaps", "", "*")

// claiming is the change to a binding that accepts claims.
func claiming(accepted ...apisv1alpha2.PermissionClaim) func(*apisv1alpha2.APIBinding) {
	return func(b *apisv1alpha2.APIBinding) {
		for _, claim := range accepted {
			b.Spec.PermissionClaims = append(b.Spec.PermissionClaims,
				apisv1alpha2.AcceptablePermissionClaim{ScopedPermissionClaim: scoped(claim), State: apisv1alpha2.ClaimAccepted})
		}
	}
}

// applied is the change to a binding whose claim on configmaps is in effect.
func applied(b *apisv1alpha2.APIBinding) {
	b.Status.AppliedPermissionClaims = []apisv1alpha2.ScopedPermissionClaim{scoped(onConfigMaps)}
}

func TestClaimsOfABinding(t *testing.T) {
	onWidgets := claimOn("example.org", "widgets", identity, "*")
	key, value := claims.Export{Cluster: provider, Name: "widgets"}.Label(&onConfigMaps)
	labeled := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "labeled", Labels: map[string]string{key: value}}}
	plain := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "plain"}}
	done := complete(bound(schemaUID, identity, "v1"))
	for _, tc := range []struct {
		name     string
		binding  *apisv1alpha2.APIBinding
		exported []apisv1alpha2.PermissionClaim
		failing  error
		requests []string
		applied  []apisv1alpha2.ScopedPermissionClaim
		want     []string // conditions that are False
	}{
		{
			"An accepted claim takes effect, and objects without its label are patched", binding(done, claiming(onConfigMaps)),
			[]apisv1alpha2.PermissionClaim{onConfigMaps}, nil, []string{"list configmaps", "patch configmaps plain"},
			[]apisv1alpha2.ScopedPermissionClaim{scoped(onConfigMaps)}, nil,
		},
		{
			"A claim in effect is not applied again", binding(done, claiming(onConfigMaps), applied),
			[]apisv1alpha2.PermissionClaim{onConfigMaps}, nil, nil, []apisv1alpha2.ScopedPermissionClaim{scoped(onConfigMaps)}, nil,
		},
		{
			"A claim that is not accepted any more is removed from objects", binding(done, applied),
			[]apisv1alpha2.PermissionClaim{onConfigMaps}, nil, []string{"list configmaps", "patch configmaps labeled"}, nil, nil,
		},
		{
			"An open claim has no effect", binding(done), []apisv1alpha2.PermissionClaim{onConfigMaps}, nil, nil, nil, nil,
		},
		{
			"A claim that the export does not have is reported", binding(done, claiming(onConfigMaps)), nil, nil, nil, nil,
			[]string{"PermissionClaimsValid InvalidPermissionClaims"},
		},
		{
			"A claim that the export has with other verbs is reported", binding(done, claiming(claimOn("", "configmaps", "", "get"))),
			[]apisv1alpha2.PermissionClaim{claimOn("", "configmaps", "", "list")}, nil, []string{"list configmaps", "patch configmaps labeled", "patch configmaps plain"},
			[]apisv1alpha2.ScopedPermissionClaim{scoped(claimOn("", "configmaps", "", "get"))}, []string{"PermissionClaimsValid PermissionClaimsMismatch"},
		},
		{
			"A claim whose objects cannot be labeled has no effect", binding(done, claiming(onConfigMaps)),
			[]apisv1alpha2.PermissionClaim{onConfigMaps}, errStorage, []string{"list configmaps"}, nil, []string{"PermissionClaimsApplied InternalError"},
		},
		{
			"Objects of a bound resource are labeled in storage if the API fails", binding(done, claiming(onWidgets)),
			[]apisv1alpha2.PermissionClaim{onWidgets}, errStorage, []string{"list widgets.example.org", "stored: relabel widgets.example.org " + identity},
			[]apisv1alpha2.ScopedPermissionClaim{scoped(onWidgets)}, nil,
		},
		{
			"A claim on a resource under an identity that the workspace does not have labels nothing",
			binding(done, claiming(claimOn("example.org", "widgets", "other", "*"))),
			[]apisv1alpha2.PermissionClaim{claimOn("example.org", "widgets", "other", "*")}, nil, nil,
			[]apisv1alpha2.ScopedPermissionClaim{scoped(claimOn("example.org", "widgets", "other", "*"))}, nil,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, cluster(consumer, ""), cluster(provider, ""), apiSchema(),
				export(func(e *apisv1alpha2.APIExport) { e.Spec.PermissionClaims = tc.exported }))
			w.Store(tc.binding) // after the start of the controller, which labels all objects again
			w.Show(tc.binding)
			w.items, w.failing = []metav1.PartialObjectMetadata{labeled, plain}, tc.failing
			if err := w.reconcile(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.requests, w.requests); diff != "" {
				t.Error(diff)
			}
			got := w.stored()
			if diff := cmp.Diff(tc.applied, got.Status.AppliedPermissionClaims, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tc.exported, got.Status.ExportPermissionClaims, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
			if _, others := conditionsOf(got); !cmp.Equal(tc.want, others) {
				t.Error(cmp.Diff(tc.want, others))
			}
		})
	}
}

// Claims may have been accepted and rejected while no controller ran.
func TestObjectsOfAcceptedClaimsAreLabeledAgainAfterAStart(t *testing.T) {
	w := newWorld(t, all(binding(complete(bound(schemaUID, identity, "v1")), claiming(onConfigMaps), applied))...)
	w.items = []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Name: "plain"}}}
	for range 2 {
		if err := w.reconcile(); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"list configmaps", "patch configmaps plain"}, w.requests); diff != "" {
		t.Error(diff)
	}
}
