// Package apiexport implements the virtual workspace of an APIExport for its provider: one URL with the objects of the
// export in all logical clusters that bind it, and the objects of accepted permission claims.
package apiexport

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/internal/tenancy/exports"
	"github.com/kcplane/kcp/server/internal/tenancy/references"
	"github.com/kcplane/kcp/server/logicalcluster"
	"github.com/kcplane/kcp/server/virtual"
)

// Name of the virtual workspace, as in paths.
const Name = "apiexport"

// Path returns the path of the virtual workspace of an export, below the URL of a shard.
func Path(cluster logicalcluster.Name, export string) string {
	return virtual.Prefix + Name + "/" + string(cluster) + "/" + export
}

// Config of the virtual workspace.
type Config struct {
	Exports    *exports.Exports
	References *references.References
	Authorizer authorizer.UnconditionalAuthorizer
	Rules      *authorization.Rules
	// Offers reports whether a view has a resource because the export has it, or because it is APIBindings, which every
	// view has.
	Offers func(view logicalcluster.Name, resource schema.GroupResource) bool
	// Documents serves discovery and OpenAPI of a view. The cluster of a context is the name of the view.
	Documents http.Handler
}

// Find returns the view at <cluster>/<export>/clusters/<cluster or *>/…, for virtual.Views.
func (c Config) Find(path string) (virtual.View, string, error) {
	cluster, export, target, below, err := virtual.Of(path)
	if err != nil {
		return nil, "", err
	}
	return &view{Config: c, cluster: cluster, export: export, target: target}, below, nil
}

// view is the view of one export on one logical cluster, or on all of them.
type view struct {
	Config
	cluster logicalcluster.Name
	export  string
	target  logicalcluster.Cluster
	absent  *schema.GroupResource // a resource that Authorize did not find: the export may have it when Serve runs
}

// Home implements virtual.Homed.
func (v *view) Home() logicalcluster.Name { return v.cluster }

// Target implements virtual.Targeted.
func (v *view) Target() logicalcluster.Cluster { return v.target }

// Reasons of denials.
const (
	notBound     = "could not find suitable APIBinding in target logical cluster"
	notClaimed   = "failed to find suitable reason to allow access in APIBinding"
	bindingWrite = "write access to APIBinding is not allowed from virtual workspace"
)

// Authorize allows requests that the user may make for the content of the export, in clusters that bind the export.
func (v *view) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if allowed, err := AllowsContent(ctx, v.Authorizer, v.cluster, v.export, a); err != nil || !allowed {
		return authorizer.DecisionDeny, fmt.Sprintf("missing verb='%s' permission on apiexports/content %s", a.GetVerb(), v.export), err
	}
	export, err := v.find(ctx)
	if err != nil || export == nil {
		return authorizer.DecisionDeny, "the APIExport does not exist", err
	}
	if !a.IsResourceRequest() {
		return authorizer.DecisionAllow, "", nil
	}
	return v.authorizeInTarget(ctx, a, export)
}

// find returns the export, which another shard can hold, and nil if it does not exist. An error is retriable.
func (v *view) find(ctx context.Context) (*apisv1alpha2.APIExport, error) {
	return references.Find(ctx, v.References, v.cluster, apisv1alpha2.Resource("apiexports"), v.export,
		func() (*apisv1alpha2.APIExport, error) { return v.Exports.Get(v.cluster, v.export) })
}

// AllowsContent reports whether a user may make a request for the content of an export.
func AllowsContent(ctx context.Context, asked authorizer.UnconditionalAuthorizer, cluster logicalcluster.Name, export string,
	a authorizer.Attributes) (bool, error) {
	decision, _, err := asked.Authorize(logicalcluster.WithName(ctx, cluster), authorizer.AttributesRecord{
		User: a.GetUser(), Verb: a.GetVerb(), APIGroup: apisv1alpha2.SchemeGroupVersion.Group,
		APIVersion: apisv1alpha2.SchemeGroupVersion.Version,
		Resource:   "apiexports", Subresource: "content", Name: export, ResourceRequest: true,
	})
	return decision == authorizer.DecisionAllow, err
}

// bindingAmong returns the APIBinding to the export.
func (v *view) bindingAmong(all []*apisv1alpha2.APIBinding) *apisv1alpha2.APIBinding {
	for _, b := range all {
		if exports.BoundTo(b, v.cluster, v.export) {
			return b
		}
	}
	return nil
}

// binding returns the APIBinding of the target cluster to the export.
func (v *view) binding() *apisv1alpha2.APIBinding {
	return v.bindingAmong(v.Exports.BindingsIn(v.target.Name))
}

// authorizeInTarget allows a provider all requests for the objects of its export, reads of the bindings to it, and
// requests for other objects that its claims cover.
func (v *view) authorizeInTarget(ctx context.Context, a authorizer.Attributes,
	export *apisv1alpha2.APIExport) (authorizer.Decision, string, error) {
	if v.target.Wildcard {
		return v.authorizeBy(ctx, a, export, nil)
	}
	if binding := v.binding(); binding != nil {
		if decision, reason, err := v.authorizeBy(ctx, a, export, binding); err != nil || decision == authorizer.DecisionAllow {
			return decision, reason, err
		}
	}
	// A provider that has learned of a binding, or of an accepted claim, may send a request before this server knows
	// it.
	stored, err := v.Exports.StoredBindingsIn(ctx, v.target.Name)
	if err != nil {
		return authorizer.DecisionDeny, notBound, err
	}
	if binding := v.bindingAmong(stored); binding != nil {
		return v.authorizeBy(ctx, a, export, binding)
	}
	return authorizer.DecisionDeny, notBound, nil
}

// authorizeBy decides about a request of the provider by one binding; nil means all bindings.
func (v *view) authorizeBy(ctx context.Context, a authorizer.Attributes, export *apisv1alpha2.APIExport,
	binding *apisv1alpha2.APIBinding) (authorizer.Decision, string, error) {
	resource := schema.GroupResource{Group: a.GetAPIGroup(), Resource: a.GetResource()}
	if v.offers(resource) {
		if binding == nil || isBound(binding, resource, export.Status.IdentityHash) {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionDeny, notBound, nil
	}
	claim := claimed(export, resource)
	switch {
	case resource == apisv1alpha2.Resource("apibindings") && isRead(a.GetVerb()):
		return authorizer.DecisionAllow, "", nil // to see at least the bindings to the export
	case claim != nil:
		return v.authorizeClaimed(ctx, a, claim, binding)
	case resource == apisv1alpha2.Resource("apibindings"):
		return authorizer.DecisionDeny, bindingWrite, nil
	}
	v.absent = &resource // Serve responds that the view does not have the resource
	return authorizer.DecisionAllow, "", nil
}

// offers reports whether the export has a resource.
func (v *view) offers(resource schema.GroupResource) bool {
	return resource != apisv1alpha2.Resource("apibindings") && v.Offers(customresources.ViewOf(v.cluster, v.export), resource)
}

// isBound reports whether a binding has a resource under an identity.
func isBound(binding *apisv1alpha2.APIBinding, resource schema.GroupResource, identity string) bool {
	return slices.ContainsFunc(binding.Status.BoundResources, func(r apisv1alpha2.BoundAPIResource) bool {
		return r.Group == resource.Group && r.Resource == resource.Resource && r.Schema.IdentityHash == identity
	})
}

func isRead(verb string) bool { return verb == "get" || verb == "list" || verb == "watch" }

// Serve serves the resources of the export in the target.
func (v *view) Serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok {
		virtual.Fail(w, r, apierrors.NewInternalError(fmt.Errorf("no request info")))
		return
	}
	name := customresources.ViewOf(v.cluster, v.export)
	if !info.IsResourceRequest {
		v.Documents.ServeHTTP(w, r.WithContext(logicalcluster.WithName(r.Context(), name)))
		return
	}
	resource := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
	ctx := virtual.WithApply(logicalcluster.WithCluster(r.Context(), v.target))
	export, err := v.Exports.Get(v.cluster, v.export)
	if err != nil {
		virtual.Fail(w, r, err)
		return
	}
	claim := claimed(export, resource)
	if v.absent != nil && *v.absent == resource {
		virtual.Fail(w, r, notFound(info, resource))
		return
	}
	switch {
	case v.offers(resource):
		next.ServeHTTP(w, r.WithContext(customresources.WithView(ctx, name)))
	case resource == apisv1alpha2.Resource("apibindings") && isRead(info.Verb):
		next.ServeHTTP(w, r.WithContext(storage.WithRestriction(ctx, v.bindings(claim, info.Verb))))
	case claim != nil:
		v.serveClaimed(next, w, r.WithContext(ctx), claim, info.Verb)
	default:
		virtual.Fail(w, r, notFound(info, resource))
	}
}

// notFound returns the error for a resource that the view does not have.
func notFound(info *request.RequestInfo, resource schema.GroupResource) error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, info.Verb, resource, info.Name, "", 0, false)
}
