package customresources

import (
	"context"
	"io"
	"maps"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"
)

// Upstream's validation cannot accept a custom resource of the core group: it wants the apiVersion <group>/<version>,
// which no object of an empty group has. Therefore upstream's handler of such a definition sees another group, which
// is invisible to everything around it: requests and responses (corehttp.go), storage, admission and authorization.

// innerGroup replaces the core group within upstream's handler. The domain cannot exist and does not occur in data of
// users.
const innerGroup = "core.kcp.invalid"

// disguiseCore returns crd in the form for upstream's handler.
func disguiseCore(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	if crd.Spec.Group != "" {
		return crd
	}
	shown := *crd
	shown.Spec.Group = innerGroup
	return &shown
}

// inward converts an apiVersion to the form for upstream's handler.
func inward(apiVersion string) string {
	if apiVersion == "" || strings.Contains(apiVersion, "/") {
		return apiVersion
	}
	return innerGroup + "/" + apiVersion
}

// outward reverses inward.
func outward(apiVersion string) string { return strings.TrimPrefix(apiVersion, innerGroup+"/") }

// renamed returns the content of an object with its apiVersions, that of the object and those of its managed fields,
// changed by rename. Changed parts are copied.
func renamed(object map[string]any, rename func(string) string) map[string]any {
	object = maps.Clone(object)
	if v, ok := object["apiVersion"].(string); ok {
		object["apiVersion"] = rename(v)
	}
	metadata, _ := object["metadata"].(map[string]any)
	fields, _ := metadata["managedFields"].([]any)
	if len(fields) == 0 {
		return object
	}
	changed := make([]any, len(fields))
	for i, field := range fields {
		changed[i] = field
		if entry, ok := field.(map[string]any); ok {
			entry = maps.Clone(entry)
			if v, ok := entry["apiVersion"].(string); ok {
				entry["apiVersion"] = rename(v)
			}
			changed[i] = entry
		}
	}
	metadata = maps.Clone(metadata)
	metadata["managedFields"], object["metadata"] = changed, metadata
	return object
}

func rename(obj runtime.Object, how func(string) string) {
	if u, ok := obj.(*unstructured.Unstructured); ok && u != nil {
		u.Object = renamed(u.Object, how)
	}
}

// coreOptions store the resources of a disguised definition under their real group.
type coreOptions struct{ generic.RESTOptionsGetter }

func (o coreOptions) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	resource.Group = ""
	options, err := o.RESTOptionsGetter.GetRESTOptions(resource, example)
	if err != nil {
		return options, err
	}
	config := *options.StorageConfig
	config.Codec = coreCodec{config.Codec}
	options.StorageConfig = &config
	return options, nil
}

type coreCodec struct{ runtime.Codec }

// Encode implements runtime.Encoder.
func (c coreCodec) Encode(obj runtime.Object, w io.Writer) error {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		obj = &unstructured.Unstructured{Object: renamed(u.Object, outward)}
	}
	return c.Codec.Encode(obj, w)
}

// Decode implements runtime.Decoder.
func (c coreCodec) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object,
	*schema.GroupVersionKind, error) {
	obj, kind, err := c.Codec.Decode(data, defaults, into)
	if err != nil {
		return obj, kind, err
	}
	rename(obj, inward)
	shown := obj.GetObjectKind().GroupVersionKind()
	return obj, &shown, nil
}

// coreAdmission passes the resource and objects to the chain in their external form.
type coreAdmission struct{ createGuard }

// Admit implements admission.MutationInterface.
func (a coreAdmission) Admit(ctx context.Context, attributes admission.Attributes, o admission.ObjectInterfaces) error {
	defer showOutside(attributes)()
	return a.createGuard.Admit(ctx, coreAttributes{attributes}, o)
}

// Validate implements admission.ValidationInterface.
func (a coreAdmission) Validate(ctx context.Context, attributes admission.Attributes, o admission.ObjectInterfaces) error {
	defer showOutside(attributes)()
	return a.createGuard.Validate(ctx, coreAttributes{attributes}, o)
}

func showOutside(a admission.Attributes) (undo func()) {
	rename(a.GetObject(), outward)
	rename(a.GetOldObject(), outward)
	return func() {
		rename(a.GetObject(), inward)
		rename(a.GetOldObject(), inward)
	}
}

type coreAttributes struct{ admission.Attributes }

// GetResource implements admission.Attributes.
func (a coreAttributes) GetResource() schema.GroupVersionResource {
	resource := a.Attributes.GetResource()
	resource.Group = ""
	return resource
}

// GetKind implements admission.Attributes.
func (a coreAttributes) GetKind() schema.GroupVersionKind {
	kind := a.Attributes.GetKind()
	if kind.Group == innerGroup {
		kind.Group = ""
	}
	return kind
}

// coreAuthorizer decides whether a client that applies or updates may create, which upstream's handler checks.
type coreAuthorizer struct {
	authorizer.UnconditionalAuthorizer
}

// Authorize implements authorizer.UnconditionalAuthorizer.
func (z coreAuthorizer) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	return z.UnconditionalAuthorizer.Authorize(ctx, coreAuthorization{a})
}

type coreAuthorization struct{ authorizer.Attributes }

// GetAPIGroup implements authorizer.Attributes.
func (coreAuthorization) GetAPIGroup() string { return "" }
