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

// stored reports whether the workspace may have objects of a resource that it has bound.
func stored(status *apisv1alpha2.APIBindingStatus, resource schema.GroupResource) bool {
	return slices.ContainsFunc(status.BoundResources, func(r apisv1alpha2.BoundAPIResource) bool {
		return r.Group == resource.Group && r.Resource == resource.Resource && len(r.StorageVersions) > 0
	})
}

// unknownInterval is how often the controller checks for objects in a stored version that a new schema does not have.
const unknownInterval = 10 * time.Minute

// unreachable returns why the workspace cannot follow an offer: it could not reach its stored objects any more, which have other keys under
// another identity or with another scope.
func (r *reconciler) unreachable(ctx context.Context, key informers.Key, status *apisv1alpha2.APIBindingStatus, o offer,
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
	former := &apisv1alpha1.APIResourceSchema{}
	if err := r.Schemas.Get(logicalcluster.WithName(ctx, logicalcluster.SystemBoundCRDs), bound.UID, former); err != nil {
		return nil, runner.IgnoreNotFound(err)
	}
	if former.Spec.Scope != o.schema.Spec.Scope {
		return fmt.Errorf("the objects of %s in this workspace are stored with the scope %s, and APIResourceSchema %s has the scope %s: "+
			"its provider can export a schema of the former scope, or save the objects, delete the binding, and bind again",
			o.key(), former.Spec.Scope, o.schema.Name, o.schema.Spec.Scope), nil
	}
	return r.unreadable(ctx, key, status.BoundResources[i], o)
}

// unreadable returns why the workspace cannot follow an offer: objects are stored in a version that its schema does not have, and could not
// be read.
func (r *reconciler) unreadable(ctx context.Context, key informers.Key, bound apisv1alpha2.BoundAPIResource, o offer) (problem, err error) {
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

// bound returns the entry of an offer in the status of a binding. Objects of a virtual resource are never stored.
func (o offer) bound(identity string) apisv1alpha2.BoundAPIResource {
	b := exports.BoundResource(o.resource, o.schema, identity)
	if o.virtual {
		b.StorageVersions = nil
	}
	return b
}

// resolveSystem lists the resources of an export of root in the status. The server serves them to all workspaces, or none is bound.
func (r *reconciler) resolveSystem(key informers.Key, export *apisv1alpha2.APIExport,
	status *apisv1alpha2.APIBindingStatus, offers []offer) {
	served := r.Serves(key.Cluster)
	for _, o := range offers {
		if !slices.ContainsFunc(served, func(i customresources.Installed) bool { return i.Key() == o.key() }) {
			setCompleted(status, fmt.Errorf("%s is not served in this workspace", o.key()), apisv1alpha2.ReasonInternalError)
			return
		}
		upsert(status, o.bound(export.Status.IdentityHash))
	}
	setCompleted(status, nil, "")
}

// upsert lists a resource in the status. It keeps the versions in which objects were stored earlier.
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
