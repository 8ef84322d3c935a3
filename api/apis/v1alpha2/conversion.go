package v1alpha2

// Annotations for information that one version of an object cannot express. They contain JSON lists of types of the other version.
const (
	// ResourceSchemasAnnotation of an APIExport in v1alpha1 has the resources with more than the name of a schema.
	ResourceSchemasAnnotation = "apis.v1alpha2.kcp.io/resource-schemas"
	// PermissionClaimsAnnotation of an APIExport in v1alpha1 has the claims with verbs or a default selector.
	PermissionClaimsAnnotation = "apis.v1alpha2.kcp.io/permission-claims"
	// AcceptablePermissionClaimsAnnotation of an APIBinding in v1alpha1 has the claims with verbs or a selector.
	AcceptablePermissionClaimsAnnotation = "apis.v1alpha2.kcp.io/acceptable-permission-claims"
	// StatusExportPermissionClaimsAnnotation of an APIBinding in v1alpha1 is the same for status.exportPermissionClaims.
	StatusExportPermissionClaimsAnnotation = "apis.v1alpha2.kcp.io/status-export-permission-claims"
	// StatusAppliedPermissionClaimsAnnotation of an APIBinding in v1alpha1 is the same for status.appliedPermissionClaims.
	StatusAppliedPermissionClaimsAnnotation = "apis.v1alpha2.kcp.io/status-applied-permission-claims"

	// V1alpha1PermissionClaimsAnnotation of an object in v1alpha2 has the claims of its spec that select by name.
	V1alpha1PermissionClaimsAnnotation = "apis.v1alpha2.kcp.io/v1alpha1-permission-claims"
	// V1alpha1StatusExportPermissionClaimsAnnotation of an APIBinding in v1alpha2 is the same for
	// status.exportPermissionClaims.
	V1alpha1StatusExportPermissionClaimsAnnotation = "apis.v1alpha2.kcp.io/v1alpha1-status-export-permission-claims"
	// V1alpha1StatusAppliedPermissionClaimsAnnotation of an APIBinding in v1alpha2 is the same for
	// status.appliedPermissionClaims.
	V1alpha1StatusAppliedPermissionClaimsAnnotation = "apis.v1alpha2.kcp.io/v1alpha1-status-applied-permission-claims"
)
