package conversion

import (
	"slices"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
)

// In v1alpha1 a claim is on all verbs, and on all objects or those with certain names. In v1alpha2 it has verbs, and
// selects all objects or those with certain labels. A selection by names becomes one of all objects.

// claimKey is what identifies a claim within a list, in either version.
type claimKey struct{ group, resource, identityHash string }

func keyOfV1alpha1(c apisv1alpha1.PermissionClaim) claimKey {
	return claimKey{c.Group, c.Resource, c.IdentityHash}
}

func keyOfV1alpha2(c apisv1alpha2.ScopedPermissionClaim) claimKey {
	return claimKey{c.Group, c.Resource, c.IdentityHash}
}

// claimsToV1alpha1 converts claims. Originals are the claims in their original v1alpha1 form. Claims at the indexes in
// beyond cannot be fully represented in v1alpha1.
func claimsToV1alpha1(claims []apisv1alpha2.ScopedPermissionClaim,
	originals []apisv1alpha1.PermissionClaim) (out []apisv1alpha1.PermissionClaim, beyond []int) {
	known := byKey(originals, keyOfV1alpha1)
	for i, claim := range claims {
		all := selectsAll(claim.Selector)
		converted := apisv1alpha1.PermissionClaim{GroupResource: claim.GroupResource, IdentityHash: claim.IdentityHash, All: all}
		if original, ok := known[keyOfV1alpha2(claim)]; ok && all {
			converted.All, converted.ResourceSelector = original.All, original.ResourceSelector
		}
		out = append(out, converted)
		if !all || claim.DefaultSelector != nil || !slices.Equal(claim.Verbs, allVerbs()) {
			beyond = append(beyond, i)
		}
	}
	return out, beyond
}

// claimsToV1alpha2 converts claims. Kept contains the parts that v1alpha1 cannot represent. Originals are the claims
// that v1alpha2 cannot fully represent.
func claimsToV1alpha2(claims []apisv1alpha1.PermissionClaim,
	kept []apisv1alpha2.ScopedPermissionClaim) (out []apisv1alpha2.ScopedPermissionClaim, originals []apisv1alpha1.PermissionClaim) {
	known := byKey(kept, keyOfV1alpha2)
	for _, claim := range claims {
		converted, ok := known[keyOfV1alpha1(claim)]
		if !ok {
			converted = everywhere(apisv1alpha2.PermissionClaim{
				GroupResource: claim.GroupResource, Verbs: allVerbs(), IdentityHash: claim.IdentityHash,
			})
		}
		out = append(out, converted)
		if selectsAll(converted.Selector) && (!claim.All || len(claim.ResourceSelector) > 0) {
			originals = append(originals, claim)
		}
	}
	return out, originals
}

func allVerbs() []string { return []string{"*"} }

func selectsAll(s apisv1alpha2.PermissionClaimSelector) bool {
	return s.MatchAll && len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 0
}

// everywhere returns a claim on all objects of its resource.
func everywhere(claim apisv1alpha2.PermissionClaim) apisv1alpha2.ScopedPermissionClaim {
	return apisv1alpha2.ScopedPermissionClaim{PermissionClaim: claim, Selector: apisv1alpha2.PermissionClaimSelector{MatchAll: true}}
}

func unscoped(claim apisv1alpha2.ScopedPermissionClaim) apisv1alpha2.PermissionClaim {
	return claim.PermissionClaim
}

func byKey[T any](list []T, key func(T) claimKey) map[claimKey]T {
	m := make(map[claimKey]T, len(list))
	for _, item := range list {
		m[key(item)] = item
	}
	return m
}
