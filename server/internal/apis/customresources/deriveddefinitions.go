package customresources

import (
	"context"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/internal/apis/derived"
	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// reasonOfDefinitions is the reason in errors for writing derived definitions.
const reasonOfDefinitions = "the server derives the definition of a bound API from its APIBinding; change the APIResourceSchema in the " +
	"APIExport, or delete the APIBinding"

// The methods of derived.Storage take precedence over those of upstream's storage, which are one level deeper.
type (
	shownDefinitions struct {
		*derived.Storage
		upstreamDefinitions
	}
	upstreamDefinitions struct{ *customresourcedefinition.REST }
)

func showDerived(stored *customresourcedefinition.REST, source derived.Source) shownDefinitions {
	return shownDefinitions{&derived.Storage{
		Stored: stored, Source: source, Resource: apiextensionsv1.Resource("customresourcedefinitions"),
		Reason: reasonOfDefinitions, Replaceable: true,
		Append: func(list, obj runtime.Object) {
			l := list.(*apiextensions.CustomResourceDefinitionList)
			l.Items = append(l.Items, *obj.(*apiextensions.CustomResourceDefinition))
		},
	}, upstreamDefinitions{stored}}
}

// DerivedDefinitions is a derived.Source of a CustomResourceDefinition for each bound API of a logical cluster. Requests of the
// server itself never return them.
type DerivedDefinitions struct {
	// On reports whether a logical cluster has them.
	On func(logicalcluster.Name) bool
	// Handler returns the handler of the bound APIs.
	Handler func() *Handler
}

// Get implements derived.Source.
func (d DerivedDefinitions) Get(ctx context.Context, name string) (runtime.Object, error) {
	cluster, on, err := d.on(ctx)
	if err != nil || !on {
		return nil, err
	}
	h := d.Handler()
	h.awaitBindings(ctx, cluster)
	installed, ok := h.registry.get(cluster, name)
	if !ok {
		return nil, nil
	}
	crd, err := h.derive(cluster, installed)
	if err != nil || crd == nil {
		return nil, err
	}
	return internal(crd)
}

// List implements derived.Source. It omits those that a definition stored in the cluster replaces.
func (d DerivedDefinitions) List(ctx context.Context) ([]runtime.Object, error) {
	cluster, on, err := d.on(ctx)
	if err != nil || !on {
		return nil, err
	}
	h := d.Handler()
	h.awaitBindings(ctx, cluster)
	h.config.Definitions.Current(ctx, cluster)
	var all []runtime.Object
	for _, installed := range h.registry.list(cluster) {
		if _, err := h.config.Definitions.Get(cluster, "", installed.Key()); !apierrors.IsNotFound(err) {
			continue
		}
		crd, err := h.derive(cluster, installed)
		if err != nil {
			return nil, err
		}
		if crd == nil {
			continue
		}
		obj, err := internal(crd)
		if err != nil {
			return nil, err
		}
		all = append(all, obj)
	}
	return all, nil
}

// on returns the cluster of ctx, and whether a request can see derived definitions there.
func (d DerivedDefinitions) on(ctx context.Context) (logicalcluster.Name, bool, error) {
	if authorization.IsServer(ctx) {
		return "", false, nil
	}
	cluster, err := logicalcluster.NameFrom(ctx)
	return cluster, err == nil && d.On(cluster), err
}

// derive returns the definition of a resource that a cluster serves because of a binding; nil for other resources.
func (h *Handler) derive(cluster logicalcluster.Name, installed Installed) (*apiextensionsv1.CustomResourceDefinition, error) {
	if installed.Binding == "" || installed.exceeds != nil {
		return nil, nil
	}
	b, err := h.config.Bindings.Get(cluster, "", installed.Binding)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return derivedDefinition(installed.Definition, b), nil
}

// derivedDefinition returns the definition of a bound API for its consumers: without the provider's conversion settings.
func derivedDefinition(d *Definition, b *apisv1alpha2.APIBinding) *apiextensionsv1.CustomResourceDefinition {
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: d.Key(), Annotations: map[string]string{apisv1alpha2.DerivedFromAnnotation: b.Name}},
		Spec:       *d.stored.Spec.DeepCopy(),
	}
	crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	derived.Identify(crd, logicalcluster.Of(b), apiextensionsv1.Resource("customresourcedefinitions"), b.UID, b.CreationTimestamp)
	crd.Status.AcceptedNames = *crd.Spec.Names.DeepCopy()
	crd.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{
		Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue, LastTransitionTime: b.CreationTimestamp,
		Reason: "NoConflicts", Message: "no conflicts found",
	}, {
		Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue, LastTransitionTime: b.CreationTimestamp,
		Reason: "InitialNamesAccepted", Message: "the initial names have been accepted",
	}}
	if b.DeletionTimestamp != nil { // Kubernetes shows a definition like this while it deletes the instances
		crd.DeletionTimestamp, crd.DeletionGracePeriodSeconds = b.DeletionTimestamp.DeepCopy(), new(int64)
		crd.Finalizers = []string{apiextensionsv1.CustomResourceCleanupFinalizer}
		crd.Status.Conditions = append(crd.Status.Conditions, apiextensionsv1.CustomResourceDefinitionCondition{
			Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionTrue, LastTransitionTime: *b.DeletionTimestamp,
			Reason: "InstanceDeletionInProgress", Message: "CustomResource deletion is in progress",
		})
	}
	for _, resource := range b.Status.BoundResources {
		if ResourceName(resource.Resource, resource.Group) == crd.Name {
			crd.Status.StoredVersions = slices.Clone(resource.StorageVersions)
		}
	}
	if len(crd.Status.StoredVersions) == 0 { // the provider publishes its own objects
		for _, v := range crd.Spec.Versions {
			if v.Storage {
				crd.Status.StoredVersions = []string{v.Name}
			}
		}
	}
	return crd
}

func internal(crd *apiextensionsv1.CustomResourceDefinition) (runtime.Object, error) {
	obj := &apiextensions.CustomResourceDefinition{}
	return obj, apiextensionsapiserver.Scheme.Convert(crd, obj, nil)
}
