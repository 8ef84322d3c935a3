package apibinding

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/tenancy/exports"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// stored tells whether the workspace may have objects of a resource that it has bound.
func stored(status *apisv1alpha2.APIBindingStatus, resource schema.GroupResource) bool {
	return slices.ContainsFunc(status.BoundResources, func(r apisv1alpha2.BoundAPIResource) bool {
		return r.Group == resource.Group && r.Resource == resource.Resource && len(r.StorageVersions) > 0
	})
}

// unknownInterval is how often objects are looked for that are stored in a version that is to go.
const unknownInterval = 10 * time.Minute

// moved returns why the workspace cannot follow an offer: the objects that it has stored would be out of reach, as they have other keys
// under another identity or with another scope.
func (r *reconciler) moved(ctx context.Context, key informers.Key, status *apisv1alpha2.APIBindingStatus, o offer,
	identity string) (problem, err error) {
	i := slices.IndexFunc(status.BoundResources, func(b apisv1alpha2.BoundAPIResource) bool {
		return b.Group == o.resource.Group && b.Resource == o.resource.Resource && len(b.StorageVersions) > 0
	})
	if i < 0 || o.virtual {
		return nil, nil
	}
	bound := status.BoundResources[i].Schema
	if bound.IdentityHash != identity {
		return fmt.Errorf(
			"the objects of %s in this workspace are stored under the identity %s of the APIExport, which has the identity %s now: "+
				"its provider can restore the former key, or save the objects, delete the binding, and bind again",
			o.key(),
			bound.IdentityHash,
			identity,
		), nil
	}
	if bound.UID == string(o.schema.UID) {
		return nil, nil
	}
	kept := &apisv1alpha1.APIResourceSchema{}
	if err := r.Schemas.Get(logicalcluster.WithName(ctx, logicalcluster.SystemBoundCRDs), bound.UID, kept); err != nil {
		return nil, runner.IgnoreNotFound(err)
	}
	if kept.Spec.Scope != o.schema.Spec.Scope {
		return fmt.Errorf("the objects of %s in this workspace are stored with the scope %s, and APIResourceSchema %s has the scope %s: "+
			"its provider can export a schema of the former scope, or save the objects, delete the binding, and bind again",
			o.key(), kept.Spec.Scope, o.schema.Name, o.schema.Spec.Scope), nil
	}
	return r.unknown(ctx, key, status.BoundResources[i], o)
}

// unknown returns why the workspace cannot follow an offer: objects are stored in a version that its schema does not have, and in which
// they could not be read.
func (r *reconciler) unknown(ctx context.Context, key informers.Key, bound apisv1alpha2.BoundAPIResource, o offer) (problem, err error) {
	versions := sets.New[string]()
	for _, v := range o.schema.Spec.Versions {
		versions.Insert(v.Name)
	}
	if versions.HasAll(bound.StorageVersions...) {
		return nil, nil
	}
	version, err := r.Remains.StoredIn(ctx, o.resource, bound.Schema.IdentityHash, versions)
	if version == "" || err != nil {
		return nil, err
	}
	r.controller.EnqueueAfter(key, unknownInterval)
	return fmt.Errorf("objects of %s in this workspace are stored in version %s, which APIResourceSchema %s does not have: "+
		"its provider can export a schema that has both versions, write the objects again, and leave the version out then", o.key(),
		version, o.schema.Name), nil
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
func (r *reconciler) resolveSystem(key informers.Key, export *apisv1alpha2.APIExport,
	status *apisv1alpha2.APIBindingStatus, offers []offer) {
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
