package customresources

import (
	"context"
	"slices"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crconversion "k8s.io/apiextensions-apiserver/pkg/apiserver/conversion"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured/unstructuredscheme"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
)

// This file applies the policies and webhooks of a cluster to requests that upstream's handler of a definition does not serve.

// admit applies the policies and webhooks of the cluster of a request. The audit event of the request gets their annotations.
func (h *Handler) admit(ctx context.Context, d *Definition, a admission.Attributes) error {
	if h.config.Admission == nil || !h.config.Admission.Handles(a.GetOperation()) {
		return nil
	}
	objects, err := h.admissionObjects(d)
	if err != nil {
		return err
	}
	plugin := admission.WithAudit(h.config.Admission)
	if mutator, ok := plugin.(admission.MutationInterface); ok {
		if err := mutator.Admit(ctx, a, objects); err != nil {
			return err
		}
	}
	if validator, ok := plugin.(admission.ValidationInterface); ok {
		return validator.Validate(ctx, a, objects)
	}
	return nil
}

// admissionObjects returns how policies and webhooks convert the objects of a definition to the versions for which they are written.
func (h *Handler) admissionObjects(d *Definition) (admission.ObjectInterfaces, error) {
	d.admitted.once.Do(func() {
		factory, err := crconversion.NewCRConverterFactory(h.config.ServiceResolver, h.authResolver(d))
		if err != nil {
			d.admitted.err = err
			return
		}
		convert, _, err := factory.NewConverter(d.CRD)
		d.admitted.err = err
		d.admitted.RuntimeObjectInterfaces = admission.RuntimeObjectInterfaces{
			ObjectCreater: unstructuredscheme.NewUnstructuredCreator(), ObjectTyper: unstructuredscheme.NewUnstructuredObjectTyper(),
			ObjectDefaulter: unstructuredscheme.NewUnstructuredDefaulter(), ObjectConvertor: convert, EquivalentResourceMapper: versionsOf{d.CRD},
		}
	})
	return &d.admitted.RuntimeObjectInterfaces, d.admitted.err
}

// admitted are the interfaces of the objects of a definition, since the first request that needs them.
type admitted struct {
	once sync.Once
	admission.RuntimeObjectInterfaces
	err error
}

// versionsOf maps the versions of a definition to each other, so that policies and webhooks match requests in all of them. Subresources
// that are forwarded exist in each version.
type versionsOf struct {
	crd *apiextensionsv1.CustomResourceDefinition
}

// EquivalentResourcesFor implements runtime.EquivalentResourceMapper.
func (v versionsOf) EquivalentResourcesFor(resource schema.GroupVersionResource, _ string) []schema.GroupVersionResource {
	var all []schema.GroupVersionResource
	for _, version := range v.crd.Spec.Versions {
		all = append(all, schema.GroupVersionResource{Group: resource.Group, Version: version.Name, Resource: resource.Resource})
	}
	return all
}

// KindFor implements runtime.EquivalentResourceMapper.
func (v versionsOf) KindFor(resource schema.GroupVersionResource, _ string) schema.GroupVersionKind {
	if !slices.ContainsFunc(v.crd.Spec.Versions, func(version apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return version.Name == resource.Version
	}) {
		return schema.GroupVersionKind{}
	}
	return resource.GroupVersion().WithKind(v.crd.Spec.Names.Kind)
}

var _ runtime.EquivalentResourceMapper = versionsOf{}
