package customresources

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// codecs collects the codecs of stored objects.
type codecs struct {
	generic.RESTOptionsGetter
	found *[]*ordinaryCodec
}

func (c codecs) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := c.RESTOptionsGetter.GetRESTOptions(resource, example)
	decorate := options.Decorator
	options.Decorator = func(config *storagebackend.ConfigForResource, prefix string, keyFunc func(runtime.Object) (string, error), newFunc, newListFunc func() runtime.Object,
		attributes storage.AttrFunc, triggers storage.IndexerFuncs, indexers *cache.Indexers) (storage.Interface, factory.DestroyFunc, error) {
		*c.found = append(*c.found, config.Codec.(*ordinaryCodec))
		return decorate(config, prefix, keyFunc, newFunc, newListFunc, attributes, triggers, indexers)
	}
	return options, err
}

// codecOf returns the codec that decodes the stored objects of a definition.
func codecOf(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition) *ordinaryCodec {
	t.Helper()
	var found []*ordinaryCodec
	s := newShard(t)
	s.config.Options = codecs{s.config.Options, &found}
	s.registry.compile = func(d *Definition) (http.Handler, error) { return s.compile(d, s.config) }
	s.set("a", crd)
	s.want(http.StatusOK, "a", http.MethodGet, "/apis/example.org/v1/widgets", "")
	if len(found) != 1 {
		t.Fatalf("%d codecs are used for one version", len(found))
	}
	return found[0]
}

// richSchema covers what upstream changes when it decodes an object: fields that are not in the schema, defaults, and null values
// that are not allowed.
func richSchema(crd *apiextensionsv1.CustomResourceDefinition) {
	text := apiextensionsv1.JSONSchemaProps{Type: "string"}
	element := apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
		"known": text, "defaulted": {Type: "string", Default: &apiextensionsv1.JSON{Raw: []byte(`"default"`)}},
		"nullable": {Type: "string", Nullable: true},
	}}
	crd.Spec.Versions[0].Schema.OpenAPIV3Schema = &apiextensionsv1.JSONSchemaProps{
		Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
			"metadata": {Type: "object"},
			"spec": {Type: "object", Default: &apiextensionsv1.JSON{Raw: []byte(`{"known":"all"}`)}, Properties: map[string]apiextensionsv1.JSONSchemaProps{
				"known": text, "size": {Type: "integer"}, "one": element,
				"many": {Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &element}},
				"map":  {Type: "object", AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true, Schema: &element}},
				"free": {Type: "object", XPreserveUnknownFields: ptr.To(true), Properties: map[string]apiextensionsv1.JSONSchemaProps{"one": element}},
			}},
		},
	}
}

// ordinaryObject is stored like that.
const ordinaryObject = `{"apiVersion":"example.org/v1","kind":"Widget","metadata":{"annotations":{"kcp.io/cluster":"a"},"creationTimestamp":"2025-01-02T03:04:05Z",
"finalizers":["a/b"],"generation":3,"labels":{"a":"","b":"c"},"managedFields":[{"apiVersion":"example.org/v1","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{".":{},"f:known":{}}},
"manager":"test","operation":"Update","time":"2025-01-02T03:04:05Z"},{"apiVersion":"example.org/v1","fieldsType":"FieldsV1","fieldsV1":{},"manager":"test","operation":"Update","subresource":"status"}],
"name":"one","namespace":"default","ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":"u","controller":true}],"uid":"f2e7"},
"spec":{"known":"x","size":7,"one":{"known":"x","unknown":1},"many":[{"known":null},{"nullable":null}],"map":{"x":{"unknown":{}},"y":null},"free":{"one":{"unknown":1},"other":{"a":[1,1.5]}},"unknown":{"a":1}},"unknown":1}`

// values that mutations insert.
var values = []string{`null`, `""`, `"x"`, `0`, `-1`, `1`, `1.5`, `12345678901234567890`, `true`, `{}`, `[]`, `{"a":1}`, `{"a":"b"}`, `{"metadata":{"a":1}}`, `[null]`, `["a"]`, `[{}]`,
	`"2025-01-02T03:04:05Z"`, `"2025-01-02T03:04:05+01:00"`, `"2025-01-02T03:04:05.5Z"`, `"0001-01-01T00:00:00Z"`}

// mutate changes something in a JSON value.
func mutate(r *rand.Rand, value any) any {
	var replacement any
	if err := json.Unmarshal([]byte(values[r.IntN(len(values))]), &replacement); err != nil {
		panic(err)
	}
	switch value := value.(type) {
	case map[string]any:
		if len(value) == 0 || r.IntN(8) == 0 {
			value[[]string{"unknown", "name", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion", "blockOwnerDeletion", "nullable", "generateName"}[r.IntN(9)]] = replacement
			return value
		}
		n := r.IntN(len(value))
		for key := range value {
			if n--; n >= 0 {
				continue
			}
			if r.IntN(8) == 0 {
				delete(value, key)
			} else {
				value[key] = mutate(r, value[key])
			}
			break
		}
		return value
	case []any:
		if len(value) > 0 && r.IntN(8) != 0 {
			n := r.IntN(len(value))
			value[n] = mutate(r, value[n])
			return value
		}
	}
	return replacement
}

func TestOrdinaryObjectsAreDecodedAsByUpstream(t *testing.T) {
	codec := codecOf(t, widgets(richSchema))
	r := rand.New(rand.NewPCG(1, 2))
	ordinary := 0
	const rounds = 8000
	for i := range rounds {
		var value any
		if err := json.Unmarshal([]byte(ordinaryObject), &value); err != nil {
			t.Fatal(err)
		}
		for range i % 4 {
			value = mutate(r, value)
		}
		data, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		content, ok := codec.ordinary(data)
		if !ok {
			continue
		}
		ordinary++
		want := &unstructured.Unstructured{}
		want.SetGroupVersionKind(codec.kind)
		if _, _, err := codec.Codec.Decode(data, nil, want); err != nil {
			t.Fatalf("upstream refuses %s: %v", data, err)
		}
		if diff := cmp.Diff(want.Object, content); diff != "" {
			t.Fatalf("%s is read differently (-upstream +here):\n%s", data, diff)
		}
	}
	if ordinary < rounds/4 || ordinary > rounds*3/4 {
		t.Errorf("%d of %d objects are ordinary: the test proves nothing", ordinary, rounds)
	}
}

func TestUpstreamDecodesObjectsThatAreNotOrdinary(t *testing.T) {
	codec := codecOf(t, widgets(richSchema))
	for _, data := range []string{
		`{"apiVersion":"example.org/v1","kind":"Widget","metadata":{"name":"x"}}`,
		`{"apiVersion":"example.org/v1","kind":"Widget","metadata":{"name":"x","generation":1,"labels":{"a":1}}}`,
		`{"kind":"Widget","apiVersion":"example.org/v1","metadata":{"name":"x","generation":1}}`,
	} {
		into := &unstructured.Unstructured{}
		into.SetGroupVersionKind(codec.kind)
		if _, _, err := codec.Decode([]byte(data), nil, into); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		if into.GetGeneration() != 1 || into.GetName() != "x" || len(into.GetLabels()) > 0 {
			t.Errorf("%s is read as %v", data, into.Object)
		}
	}
	embedding := widgets(func(crd *apiextensionsv1.CustomResourceDefinition) {
		crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["template"] = apiextensionsv1.JSONSchemaProps{
			Type: "object", XEmbeddedResource: true, XPreserveUnknownFields: ptr.To(true),
		}
	})
	if _, ok := codecOf(t, embedding).ordinary([]byte(`{"apiVersion":"example.org/v1","kind":"Widget","metadata":{"name":"x","generation":1}}`)); ok {
		t.Error("an object is ordinary that may have others within")
	}
}
