// Package replication implements the virtual workspace of a ClusterCachedResourceEndpointSlice: the objects of a provider
// as each logical cluster that binds the export of the slice sees them. They are read-only.
package replication

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	cachev1alpha1 "github.com/kcplane/kcp/api/cache/v1alpha1"
	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/internal/tenancy/cachedresources"
	"github.com/kcplane/kcp/server/internal/tenancy/exports"
	"github.com/kcplane/kcp/server/internal/tenancy/references"
	"github.com/kcplane/kcp/server/internal/views/apiexport"
	"github.com/kcplane/kcp/server/logicalcluster"
	"github.com/kcplane/kcp/server/virtual"
)

// Name of the virtual workspace, as in paths.
const Name = "replication"

// Path returns the path of the virtual workspace of a slice, below the URL of a shard.
func Path(cluster logicalcluster.Name, slice string) string {
	return virtual.Prefix + Name + "/" + string(cluster) + "/" + slice
}

// Config of the virtual workspace.
type Config struct {
	Cached     *cachedresources.Resources
	Exports    *exports.Exports
	References *references.References
	Authorizer authorizer.UnconditionalAuthorizer
	// Offers returns the resources in the view of an export.
	Offers func(view logicalcluster.Name) []customresources.Installed
	// Documents serves discovery and OpenAPI of the resources that Shown returns. The cluster of a context is the
	// name of the slice.
	Documents http.Handler
}

// Find returns the view at <cluster>/<slice>/clusters/<cluster>/…, for virtual.Views.
func (c Config) Find(path string) (virtual.View, string, error) {
	cluster, slice, target, below, err := virtual.Of(path)
	if err == nil && target.Wildcard {
		err = apierrors.NewBadRequest("use the name of one logical cluster, because the objects are the same in all of them")
	}
	if err != nil {
		return nil, "", err
	}
	return &view{Config: c, cluster: cluster, slice: slice, target: target.Name}, below, nil
}

// sliceView returns the name of a slice in Documents, which is invalid as the name of a logical cluster.
func sliceView(cluster logicalcluster.Name, slice string) logicalcluster.Name {
	return logicalcluster.Name(Name + "/" + string(cluster) + "/" + slice)
}

// Shown returns the resources of a slice, by its name in Documents.
func (c Config) Shown(name logicalcluster.Name) []customresources.Installed {
	cluster, slice, _ := strings.Cut(strings.TrimPrefix(string(name), Name+"/"), "/")
	found, err := c.Cached.Slice(logicalcluster.Name(cluster), slice)
	if err != nil {
		return nil
	}
	export, err := c.Cached.Export(found)
	if err != nil {
		return nil
	}
	shown := cachedresources.Published(export, slice)
	return slices.DeleteFunc(c.Offers(customresources.ViewOf(logicalcluster.Of(export), export.Name)), func(i customresources.Installed) bool {
		return !i.IsVirtual() || !slices.ContainsFunc(shown, func(r schema.GroupResource) bool {
			return i.Key() == customresources.ResourceName(r.Resource, r.Group)
		})
	})
}

// view is the view of one slice on one logical cluster.
type view struct {
	Config
	cluster logicalcluster.Name
	slice   string
	target  logicalcluster.Name
}

// Home implements virtual.Homed.
func (v *view) Home() logicalcluster.Name { return v.cluster }

// Target implements virtual.Targeted.
func (v *view) Target() logicalcluster.Cluster { return logicalcluster.Cluster{Name: v.target} }

// Authorize allows requests that the user may make for the content of the slice's export, in clusters that bind the
// export.
func (v *view) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	refused := fmt.Sprintf(
		"missing verb='%s' permission on apiexports/content of the export of ClusterCachedResourceEndpointSlice %s",
		a.GetVerb(),
		v.slice,
	)
	found, export, err := v.find(ctx)
	if err != nil || export == nil {
		return authorizer.DecisionDeny, refused, err
	}
	if allowed, err := apiexport.AllowsContent(ctx, v.Authorizer, v.cluster, export.Name, a); err != nil || !allowed {
		return authorizer.DecisionDeny, refused, err
	}
	if a.IsResourceRequest() && !v.isBound(found, export, schema.GroupResource{Group: a.GetAPIGroup(), Resource: a.GetResource()}) {
		return authorizer.DecisionDeny, "could not find suitable APIBinding in target logical cluster", nil
	}
	return authorizer.DecisionAllow, "", nil
}

// find returns the slice and its export, which another shard can hold. The export is nil if one of them does not exist. An error is
// retriable.
func (v *view) find(ctx context.Context) (slice *cachev1alpha1.ClusterCachedResourceEndpointSlice, export *apisv1alpha2.APIExport,
	err error) {
	slice, err = references.Find(ctx, v.References, v.cluster, cachev1alpha1.Resource("clustercachedresourceendpointslices"), v.slice,
		func() (*cachev1alpha1.ClusterCachedResourceEndpointSlice, error) {
			return v.Cached.Slice(v.cluster, v.slice)
		})
	if err != nil || slice == nil {
		return nil, nil, err
	}
	export, err = references.Find(ctx, v.References, v.cluster, apisv1alpha2.Resource("apiexports"), slice.Spec.Export.Name,
		func() (*apisv1alpha2.APIExport, error) { return v.Cached.Export(slice) })
	return slice, export, err
}

// isBound reports whether the target binds a resource of the slice.
func (v *view) isBound(slice *cachev1alpha1.ClusterCachedResourceEndpointSlice, export *apisv1alpha2.APIExport,
	resource schema.GroupResource) bool {
	if !slices.Contains(cachedresources.Published(export, slice.Name), resource) {
		return false
	}
	binding, bound := v.Exports.Bound(v.target, resource)
	return binding != nil && exports.BoundTo(binding, v.cluster, export.Name) &&
		bound.Schema.IdentityHash == export.Status.IdentityHash && len(bound.StorageVersions) == 0
}

// Serve serves the objects of the slice in the target.
func (v *view) Serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok {
		virtual.Fail(w, r, apierrors.NewInternalError(fmt.Errorf("no request info")))
		return
	}
	if !info.IsResourceRequest {
		v.Documents.ServeHTTP(w, r.WithContext(logicalcluster.WithName(r.Context(), sliceView(v.cluster, v.slice))))
		return
	}
	found, err := v.Cached.Slice(v.cluster, v.slice)
	if err != nil {
		virtual.Fail(w, r, err)
		return
	}
	ctx := logicalcluster.WithName(r.Context(), v.target)
	next.ServeHTTP(w, r.WithContext(customresources.WithView(ctx, customresources.ViewOf(v.cluster, found.Spec.Export.Name))))
}
