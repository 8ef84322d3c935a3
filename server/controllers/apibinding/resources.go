package apibinding

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/customresources"
	"github.com/kcplane/kcp/server/exports"
	"github.com/kcplane/kcp/server/informers"
)

// stored tells whether the workspace may have objects of a resource that it has bound.
func stored(status *apisv1alpha2.APIBindingStatus, resource schema.GroupResource) bool {
	return slices.ContainsFunc(status.BoundResources, func(r apisv1alpha2.BoundAPIResource) bool {
		return r.Group == resource.Group && r.Resource == resource.Resource && len(r.StorageVersions) > 0
	})
}

// bound returns what the status of a binding says of an offer. What is virtual was never stored in any version.
func (o offer) bound(identity string) apisv1alpha2.BoundAPIResource {
	b := exports.BoundResource(o.resource, o.schema, identity)
	if o.virtual {
		b.StorageVersions = nil
	}
	return b
}

// resolveSystem lists what an export of root stands for: the server has it already, and nobody else can. That is all or nothing.
func (r *reconciler) resolveSystem(key informers.Key, export *apisv1alpha2.APIExport, status *apisv1alpha2.APIBindingStatus, offers []offer) {
	served := r.Serves(key.Cluster)
	for _, o := range offers {
		if !slices.ContainsFunc(served, func(i customresources.Installed) bool { return i.Key() == o.key() }) {
			completed(status, fmt.Errorf("%s is not served in this workspace", o.key()), apisv1alpha2.ReasonInternalError)
			return
		}
		upsert(status, o.bound(export.Status.IdentityHash))
	}
	completed(status, nil, "")
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
