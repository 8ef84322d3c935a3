package admission

import (
	"context"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	cachev1alpha1 "github.com/kcplane/kcp/api/cache/v1alpha1"
	"github.com/kcplane/kcp/server/logicalcluster"
)

var (
	cachedResource = cachev1alpha1.Resource("clustercachedresources")
	cachedSlice    = cachev1alpha1.Resource("clustercachedresourceendpointslices")
)

// cachedResourceRules lets users publish objects if they may read all of them, and add published objects to an export if the workspace that
// publishes them allows it.
type cachedResourceRules struct{ rules }

var _ admission.ValidationInterface = cachedResourceRules{}

// Validate implements admission.ValidationInterface.
func (r cachedResourceRules) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	switch resource := a.GetResource().GroupResource(); {
	case a.GetSubresource() != "":
		return nil
	case resource == cachedResource:
		return r.validateResource(ctx, a)
	case resource == cachedSlice && a.GetOperation() == admission.Create && !isExempt(ctx, a):
		return r.validateSlice(ctx, a)
	}
	return nil
}

func (r cachedResourceRules) validateResource(ctx context.Context, a admission.Attributes) error {
	cached, old := &cachev1alpha1.ClusterCachedResource{}, &cachev1alpha1.ClusterCachedResource{}
	if err := decodeBoth(a, cached, old); err != nil {
		return err
	}
	if a.GetOperation() == admission.Update && (cached.DeletionTimestamp != nil || reflect.DeepEqual(old.Spec, cached.Spec)) {
		return nil
	}
	if err := r.checkIdentity(ctx, a, cached.Spec.Identity, old.Spec.Identity); err != nil {
		return err
	}
	if _, err := metav1.LabelSelectorAsSelector(cached.Spec.LabelSelector); err != nil {
		return invalid(a, field.ErrorList{field.Invalid(field.NewPath("spec", "labelSelector"), cached.Spec.LabelSelector, err.Error())})
	}
	resource := schema.GroupVersionResource{Group: cached.Spec.Group, Version: cached.Spec.Version, Resource: cached.Spec.Resource}
	if err := r.mayRead(ctx, a, resource); err != nil {
		return err
	}
	if mapper, err := r.config.currentMapper(ctx); err == nil {
		if kind, err := mapper.KindFor(resource); err == nil {
			mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
			if err == nil && mapping.Resource.GroupResource() == resource.GroupResource() && mapping.Scope.Name() == meta.RESTScopeNameNamespace {
				return forbidden(a, "%s is namespaced: only cluster-scoped resources can be published", resource.GroupResource())
			}
		}
	}
	return r.isOnly(ctx, a, resource)
}

// mayRead refuses to publish objects that the user may not read.
func (r cachedResourceRules) mayRead(ctx context.Context, a admission.Attributes, resource schema.GroupVersionResource) error {
	if isExempt(ctx, a) {
		return nil
	}
	for _, verb := range []string{"get", "list", "watch"} {
		if !r.allows(ctx, a, authorizer.AttributesRecord{Verb: verb, APIGroup: resource.Group, APIVersion: "*", Resource: resource.Resource}) {
			return forbidden(a, "missing verb='%s' permission on %s: publishing a resource requires permission to read all of its objects",
				verb, resource.GroupResource())
		}
	}
	return nil
}

// isOnly refuses a second ClusterCachedResource for a resource.
func (r cachedResourceRules) isOnly(ctx context.Context, a admission.Attributes, resource schema.GroupVersionResource) error {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return err
	}
	r.config.Set.ClusterCachedResources.Current(ctx, cluster)
	all, err := r.config.Set.ClusterCachedResources.List(cluster)
	if err != nil {
		return err
	}
	for _, other := range all {
		if other.Name != a.GetName() &&
			(schema.GroupVersionResource{Group: other.Spec.Group, Version: other.Spec.Version, Resource: other.Spec.Resource}) == resource {
			return forbidden(a, "ClusterCachedResource %s already publishes %s", other.Name, resource.GroupResource())
		}
	}
	return nil
}

// validateSlice admits users that may bind the ClusterCachedResource in its workspace. All others get the same message, whether the
// ClusterCachedResource exists or not.
func (r cachedResourceRules) validateSlice(ctx context.Context, a admission.Attributes) error {
	slice := &cachev1alpha1.ClusterCachedResourceEndpointSlice{}
	if err := decode(a.GetObject(), slice); err != nil {
		return err
	}
	from, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return err
	}
	reference := slice.Spec.ClusterCachedResource
	path := reference.Path
	if path == "" {
		path = r.config.Tree.Path(from)
	}
	cluster, ok, err := r.config.cluster(ctx, from, reference.Path)
	if err == nil && ok {
		ok, err = r.mayBind(ctx, a, cluster, cachedResource, reference.Name)
	}
	if err == nil && ok {
		r.config.Set.ClusterCachedResources.Current(ctx, cluster)
		ok, err = r.config.References.Exists(ctx, cluster, cachedResource, reference.Name, func() bool {
			_, err := r.config.Set.ClusterCachedResources.Get(cluster, "", reference.Name)
			return !apierrors.IsNotFound(err)
		})
	}
	if err != nil || ok {
		return err
	}
	return forbidden(a, "unable to create ClusterCachedResourceEndpointSlice: no permission to bind to ClusterCachedResource %s:%s", path,
		reference.Name)
}
