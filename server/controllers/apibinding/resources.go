package apibinding

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
)

// stored tells whether the workspace may have objects of a resource that it has bound.
func stored(status *apisv1alpha2.APIBindingStatus, resource schema.GroupResource) bool {
	return slices.ContainsFunc(status.BoundResources, func(r apisv1alpha2.BoundAPIResource) bool {
		return r.Group == resource.Group && r.Resource == resource.Resource && len(r.StorageVersions) > 0
	})
}

// storageVersions returns in what objects are stored: nothing for virtual ones.
func storageVersions(o offer) []string {
	for _, v := range o.schema.Spec.Versions {
		if v.Storage && !o.virtual {
			return []string{v.Name}
		}
	}
	return nil
}

// upsert lists a resource in the status; versions in which objects have been stored once are kept.
func upsert(status *apisv1alpha2.APIBindingStatus, resource apisv1alpha2.BoundAPIResource) {
	for i, r := range status.BoundResources {
		if r.Group != resource.Group || r.Resource != resource.Resource {
			continue
		}
		for _, version := range r.StorageVersions {
			if !slices.Contains(resource.StorageVersions, version) {
				resource.StorageVersions = append(resource.StorageVersions, version)
			}
		}
		slices.Sort(resource.StorageVersions)
		status.BoundResources[i] = resource
		return
	}
	status.BoundResources = append(status.BoundResources, resource)
}
