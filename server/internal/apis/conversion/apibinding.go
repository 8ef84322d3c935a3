package conversion

import (
	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
)

// BindingToV1alpha1 returns a binding in version v1alpha1.
func BindingToV1alpha1(in *apisv1alpha2.APIBinding) *apisv1alpha1.APIBinding {
	in = in.DeepCopy()
	out := &apisv1alpha1.APIBinding{ObjectMeta: in.ObjectMeta}
	out.Spec.Reference = in.Spec.Reference
	out.Status = apisv1alpha1.APIBindingStatus{
		APIExportClusterName: in.Status.APIExportClusterName, BoundResources: in.Status.BoundResources,
		Phase: in.Status.Phase, Conditions: in.Status.Conditions,
	}

	originals := taken[apisv1alpha1.PermissionClaim](out.Annotations, apisv1alpha2.V1alpha1PermissionClaimsAnnotation)
	claims, beyond := claimsToV1alpha1(each(in.Spec.PermissionClaims, scoped), originals)
	for i, claim := range claims {
		out.Spec.PermissionClaims = append(out.Spec.PermissionClaims, apisv1alpha1.AcceptablePermissionClaim{
			PermissionClaim: claim, State: in.Spec.PermissionClaims[i].State,
		})
	}
	out.Annotations = keep(out.Annotations, apisv1alpha2.AcceptablePermissionClaimsAnnotation, at(in.Spec.PermissionClaims, beyond))

	originals = taken[apisv1alpha1.PermissionClaim](out.Annotations, apisv1alpha2.V1alpha1StatusExportPermissionClaimsAnnotation)
	out.Status.ExportPermissionClaims, beyond = claimsToV1alpha1(each(in.Status.ExportPermissionClaims, everywhere), originals)
	out.Annotations = keep(out.Annotations, apisv1alpha2.StatusExportPermissionClaimsAnnotation, at(in.Status.ExportPermissionClaims, beyond))

	originals = taken[apisv1alpha1.PermissionClaim](out.Annotations, apisv1alpha2.V1alpha1StatusAppliedPermissionClaimsAnnotation)
	out.Status.AppliedPermissionClaims, beyond = claimsToV1alpha1(in.Status.AppliedPermissionClaims, originals)
	out.Annotations = keep(out.Annotations, apisv1alpha2.StatusAppliedPermissionClaimsAnnotation,
		at(in.Status.AppliedPermissionClaims, beyond))
	return out
}

// BindingToV1alpha2 returns a binding in version v1alpha2.
func BindingToV1alpha2(in *apisv1alpha1.APIBinding) *apisv1alpha2.APIBinding {
	in = in.DeepCopy()
	out := &apisv1alpha2.APIBinding{ObjectMeta: in.ObjectMeta}
	out.Spec.Reference = in.Spec.Reference
	out.Status = apisv1alpha2.APIBindingStatus{
		APIExportClusterName: in.Status.APIExportClusterName, BoundResources: in.Status.BoundResources,
		Phase: in.Status.Phase, Conditions: in.Status.Conditions,
	}

	acceptable := taken[apisv1alpha2.AcceptablePermissionClaim](out.Annotations, apisv1alpha2.AcceptablePermissionClaimsAnnotation)
	claims, originals := claimsToV1alpha2(each(in.Spec.PermissionClaims, unanswered), each(acceptable, scoped))
	for i, claim := range claims {
		out.Spec.PermissionClaims = append(out.Spec.PermissionClaims, apisv1alpha2.AcceptablePermissionClaim{
			ScopedPermissionClaim: claim, State: in.Spec.PermissionClaims[i].State,
		})
	}
	out.Annotations = keep(out.Annotations, apisv1alpha2.V1alpha1PermissionClaimsAnnotation, originals)

	exported := taken[apisv1alpha2.PermissionClaim](out.Annotations, apisv1alpha2.StatusExportPermissionClaimsAnnotation)
	claims, originals = claimsToV1alpha2(in.Status.ExportPermissionClaims, each(exported, everywhere))
	out.Status.ExportPermissionClaims = each(claims, unscoped)
	out.Annotations = keep(out.Annotations, apisv1alpha2.V1alpha1StatusExportPermissionClaimsAnnotation, originals)

	applied := taken[apisv1alpha2.ScopedPermissionClaim](out.Annotations, apisv1alpha2.StatusAppliedPermissionClaimsAnnotation)
	out.Status.AppliedPermissionClaims, originals = claimsToV1alpha2(in.Status.AppliedPermissionClaims, applied)
	out.Annotations = keep(out.Annotations, apisv1alpha2.V1alpha1StatusAppliedPermissionClaimsAnnotation, originals)
	return out
}

func scoped(claim apisv1alpha2.AcceptablePermissionClaim) apisv1alpha2.ScopedPermissionClaim {
	return claim.ScopedPermissionClaim
}

func unanswered(claim apisv1alpha1.AcceptablePermissionClaim) apisv1alpha1.PermissionClaim {
	return claim.PermissionClaim
}
