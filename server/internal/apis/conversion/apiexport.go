package conversion

import (
	"strings"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
)

// ExportToV1alpha1 returns an export in version v1alpha1.
func ExportToV1alpha1(in *apisv1alpha2.APIExport) *apisv1alpha1.APIExport {
	in = in.DeepCopy()
	originals := taken[apisv1alpha1.PermissionClaim](in.Annotations, apisv1alpha2.V1alpha1PermissionClaimsAnnotation)
	out := &apisv1alpha1.APIExport{ObjectMeta: in.ObjectMeta, Status: in.Status}
	out.Spec.Identity, out.Spec.MaximalPermissionPolicy = in.Spec.Identity, in.Spec.MaximalPermissionPolicy

	var resources []apisv1alpha2.ResourceSchema
	for _, resource := range in.Spec.Resources {
		if impliedBySchema(resource) {
			out.Spec.LatestResourceSchemas = append(out.Spec.LatestResourceSchemas, resource.Schema)
		} else {
			resources = append(resources, resource)
		}
	}
	out.Annotations = keep(out.Annotations, apisv1alpha2.ResourceSchemasAnnotation, resources)

	claims, beyond := claimsToV1alpha1(each(in.Spec.PermissionClaims, everywhere), originals)
	out.Spec.PermissionClaims = claims
	out.Annotations = keep(out.Annotations, apisv1alpha2.PermissionClaimsAnnotation, at(in.Spec.PermissionClaims, beyond))
	return out
}

// ExportToV1alpha2 returns an export in version v1alpha2. Resources that only v1alpha2 can express come last.
func ExportToV1alpha2(in *apisv1alpha1.APIExport) *apisv1alpha2.APIExport {
	in = in.DeepCopy()
	resources := taken[apisv1alpha2.ResourceSchema](in.Annotations, apisv1alpha2.ResourceSchemasAnnotation)
	kept := taken[apisv1alpha2.PermissionClaim](in.Annotations, apisv1alpha2.PermissionClaimsAnnotation)
	out := &apisv1alpha2.APIExport{ObjectMeta: in.ObjectMeta, Status: in.Status}
	out.Spec.Identity, out.Spec.MaximalPermissionPolicy = in.Spec.Identity, in.Spec.MaximalPermissionPolicy
	out.Spec.Resources = append(each(in.Spec.LatestResourceSchemas, resourceOf), resources...)

	claims, originals := claimsToV1alpha2(in.Spec.PermissionClaims, each(kept, everywhere))
	out.Spec.PermissionClaims = each(claims, unscoped)
	out.Annotations = keep(out.Annotations, apisv1alpha2.V1alpha1PermissionClaimsAnnotation, originals)
	return out
}

// resourceOf parses the name of a schema, <prefix>.<resource>.<group>. Other names yield an empty result.
func resourceOf(schema string) apisv1alpha2.ResourceSchema {
	resource := apisv1alpha2.ResourceSchema{
		Schema: schema, Storage: apisv1alpha2.ResourceSchemaStorage{CRD: &apisv1alpha2.ResourceSchemaStorageCRD{}},
	}
	if parts := strings.SplitN(schema, ".", 3); len(parts) == 3 {
		resource.Name, resource.Group = parts[1], parts[2]
		if resource.Group == "core" {
			resource.Group = ""
		}
	}
	return resource
}

// impliedBySchema reports whether the name of its schema determines everything about a resource.
func impliedBySchema(resource apisv1alpha2.ResourceSchema) bool {
	implied := resourceOf(resource.Schema)
	return resource.Name == implied.Name && resource.Group == implied.Group && resource.Storage.Virtual == nil
}
