package customresources

import (
	"maps"
	"net/http"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/utils/ptr"
)

// OriginalAPIVersion is the annotation with the stored apiVersion of an object in lists of metadata across all
// clusters.
const OriginalAPIVersion = "kcp.io/original-api-version"

// metadataDefinitions serve a resource across all clusters, whatever their schemas are: nothing is validated, pruned or
// converted, because clients see only metadata. One exists for each requested resource and version as long as any cluster
// serves the resource.
type metadataDefinitions struct {
	compile func(*Definition) (http.Handler, error)

	mu    sync.Mutex
	byKey map[string]map[string]*Definition // by Key and version
}

func newMetadataDefinitions(compile func(*Definition) (http.Handler, error)) *metadataDefinitions {
	return &metadataDefinitions{compile: compile, byKey: map[string]map[string]*Definition{}}
}

// get returns the definition that serves version of the resource of crd as metadata.
func (m *metadataDefinitions) get(crd *apiextensionsv1.CustomResourceDefinition, version string) *Definition {
	key := ResourceName(crd.Spec.Names.Plural, crd.Spec.Group)
	m.mu.Lock()
	defer m.mu.Unlock()
	if d, ok := m.byKey[key][version]; ok {
		return d
	}
	synthetic := &apiextensionsv1.CustomResourceDefinition{}
	synthetic.Spec = apiextensionsv1.CustomResourceDefinitionSpec{
		Group: crd.Spec.Group, Names: crd.Status.AcceptedNames,
		// Also if the resource is cluster scoped in some clusters: namespaced resources can be listed as a whole and
		// by namespace.
		Scope:      apiextensionsv1.NamespaceScoped,
		Conversion: &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
			Name: version, Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{
				OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)},
			},
		}},
	}
	synthetic.Status.AcceptedNames = crd.Status.AcceptedNames
	d := newDefinition(key+".wildcard.partial-metadata", sharing{}, synthetic, m.compile)
	if m.byKey[key] == nil {
		m.byKey[key] = map[string]*Definition{}
	}
	m.byKey[key][version] = d
	return d
}

// forget closes the definitions of a resource that no cluster serves any more.
func (m *metadataDefinitions) forget(key string) {
	m.mu.Lock()
	gone := m.byKey[key]
	delete(m.byKey, key)
	m.mu.Unlock()
	for _, d := range gone {
		d.close()
	}
}

// metadataOnly decodes only the metadata of stored objects, as one version and kind.
type metadataOnly struct {
	generic.RESTOptionsGetter
	kind schema.GroupVersionKind
}

func (o metadataOnly) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := o.RESTOptionsGetter.GetRESTOptions(resource, example)
	if err != nil {
		return options, err
	}
	config := *options.StorageConfig
	config.Codec = metadataCodec{Codec: config.Codec, kind: o.kind}
	options.StorageConfig = &config
	return options, nil
}

type metadataCodec struct {
	runtime.Codec
	kind schema.GroupVersionKind
}

// Decode implements runtime.Decoder. Upstream would reject a list in which one object has a version that the definition
// does not have.
func (c metadataCodec) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object,
	*schema.GroupVersionKind, error) {
	obj, stored, err := c.Codec.Decode(data, defaults, into)
	u, ok := obj.(*unstructured.Unstructured)
	if err != nil || !ok {
		return obj, stored, err
	}
	version := u.GetAPIVersion()
	u.Object = map[string]any{"apiVersion": c.kind.GroupVersion().String(), "kind": c.kind.Kind, "metadata": u.Object["metadata"]}
	annotations := maps.Clone(u.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[OriginalAPIVersion] = version
	u.SetAnnotations(annotations)
	return u, &c.kind, nil
}

// asksForMetadata reports whether upstream will respond to a request with metadata only.
func asksForMetadata(r *http.Request) bool {
	accept := r.Header.Get("Accept")
	chosen, ok := negotiation.NegotiateMediaTypeOptions(accept, apiextensionsapiserver.Codecs.SupportedMediaTypes(), metadataTransforms{})
	return ok && chosen.Convert != nil
}

// metadataTransforms are the transformations that clients may request across clusters with different definitions.
type metadataTransforms struct{}

func (metadataTransforms) AllowsMediaTypeTransform(_, _ string, target *schema.GroupVersionKind) bool {
	if target == nil {
		return true
	}
	return target.Group == metav1.GroupName && (target.Version == "v1" || target.Version == "v1beta1") &&
		strings.HasPrefix(target.Kind, "PartialObjectMetadata")
}

func (metadataTransforms) AllowsServerVersion(string) bool       { return false }
func (metadataTransforms) AllowsStreamSchema(stream string) bool { return stream == "watch" }
