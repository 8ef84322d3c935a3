package bodylimit

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/randfill"
)

// encode encodes an object with its kind, as clients do.
func encode(t *testing.T, object runtime.Object) []byte {
	t.Helper()
	all := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(all); err != nil {
			t.Fatal(err)
		}
	}
	if object.GetObjectKind().GroupVersionKind().Empty() {
		kinds, _, err := all.ObjectKinds(object)
		if err != nil {
			t.Fatal(err)
		}
		object.GetObjectKind().SetGroupVersionKind(kinds[0])
	}
	var out bytes.Buffer
	if err := protobuf.NewSerializer(all, all).Encode(object, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestAProtobufBodyHasABoundedNumberOfValues(t *testing.T) {
	random := make([]byte, 1<<20)
	_, _ = rand.Read(random)
	labels := map[string]string{}
	for i := range 10_000 {
		labels[fmt.Sprintf("key-%d", i)] = "value"
	}
	schema := apiextensionsv1.JSONSchemaProps{Type: "string"}
	for range 50 {
		schema = apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"a": schema}}
	}
	deep := &apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: schema.DeepCopy()}}},
	}}
	for range 200 {
		schema = apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"a": schema}}
	}
	deeper := &apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &schema}}},
	}}
	some := &rbacv1.ClusterRole{Rules: make([]rbacv1.PolicyRule, 10_000)}
	many := &rbacv1.ClusterRole{Rules: make([]rbacv1.PolicyRule, 1_000_000)}
	spread := &rbacv1.ClusterRole{Rules: make([]rbacv1.PolicyRule, 1000)}
	for i := range spread.Rules {
		spread.Rules[i].Verbs = make([]string, 300)
	}
	for name, test := range map[string]struct {
		body []byte
		want string
	}{
		"nothing":                        {nil, ""},
		"no message":                     {[]byte("k8s\x00\xff\xff"), ""},
		"a large text":                   {encode(t, &corev1.ConfigMap{Data: map[string]string{"a": strings.Repeat("hello, world. ", 70_000)}}), ""},
		"a text that could be a message": {encode(t, &corev1.ConfigMap{Data: map[string]string{"a": strings.Repeat("x", 1<<20)}}), ""},
		"bytes that could be a message":  {encode(t, &corev1.Secret{Data: map[string][]byte{"a": bytes.Repeat([]byte{0x0a, 0}, 1<<19)}}), ""},
		"no kind":                        {unnamed(encode(t, many)), "does not name its kind"},
		"rules and an unknown tag":       {within(encode(t, many), 0x07), "more than 200000 values"},
		"rules and a group":              {within(encode(t, many), 0x13, 0x14), "more than 200000 values"},
		"a rule and an unknown tag":      {within(encode(t, &rbacv1.ClusterRole{Rules: make([]rbacv1.PolicyRule, 1)}), 0x07), "not an object of kind ClusterRole"},
		"zeros":                          {encode(t, &corev1.Secret{Data: map[string][]byte{"a": make([]byte, 1<<20)}}), ""},
		"random bytes":                   {encode(t, &corev1.Secret{Data: map[string][]byte{"a": random}}), ""},
		"many labels":                    {encode(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Labels: labels}}), ""},
		"a deep schema":                  {encode(t, deep), ""},
		"some rules":                     {encode(t, some), ""},
		"a million rules":                {encode(t, many), "more than 200000 values"},
		"many values in total":           {encode(t, spread), "more than 200000 values"},
		"a long list":                    {encode(t, &rbacv1.ClusterRole{Rules: make([]rbacv1.PolicyRule, 100_000)}), "a list with more than 20000 items"},
		"nested very deep":               {encode(t, deeper), "nested more than 300 deep"},
	} {
		got, err := read(test.body, "application/vnd.kubernetes.protobuf", false)
		switch {
		case test.want == "" && (err != nil || !bytes.Equal(got, test.body)):
			t.Errorf("%s: read %d of %d bytes, %v", name, len(got), len(test.body), err)
		case test.want != "" && (!(apierrors.IsRequestEntityTooLargeError(err) || apierrors.IsBadRequest(err)) || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: %v", name, err)
		}
	}
}

// unnamed returns what encode returns, without the kind.
func unnamed(encoded []byte) []byte {
	_, _, _, n := field(encoded[4:])
	return append([]byte("k8s\x00"), encoded[4+n:]...)
}

// within returns an encoded object with more bytes at its end.
func within(encoded []byte, more ...byte) []byte {
	var unknown runtime.Unknown
	_ = unknown.Unmarshal(encoded[4:])
	unknown.Raw = append(unknown.Raw, more...)
	content, _ := unknown.Marshal()
	return append([]byte("k8s\x00"), content...)
}

func TestEveryKindWithProtobufIsMeasured(t *testing.T) {
	fill := randfill.NewWithSeed(1).NilChance(0.2).NumElements(1, 3).MaxDepth(14).Funcs(
		func(f *runtime.RawExtension, c randfill.Continue) { f.Raw = []byte(`{"a":1}`) },
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewQuantity(c.Int63(), resource.DecimalSI)
		},
		func(f *metav1.FieldsV1, c randfill.Continue) { f.SetRawBytes([]byte(`{}`)) },
		func(s *apiextensionsv1.JSONSchemaProps, c randfill.Continue) { // refers to itself
			s.Type, s.Required, s.Enum = c.String(0), []string{c.String(0)}, []apiextensionsv1.JSON{{Raw: []byte(`"a"`)}}
			s.Properties = map[string]apiextensionsv1.JSONSchemaProps{c.String(0): {Type: c.String(0)}}
			s.Items = &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{Type: c.String(0)}}
			s.AdditionalProperties = &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true}
		},
	)
	n := 0
	for _, known := range []*runtime.Scheme{scheme.Scheme, definitions()} {
		for kind, of := range known.AllKnownTypes() {
			object, ok := reflect.New(of).Interface().(runtime.Object)
			if _, encodes := object.(interface{ Marshal() ([]byte, error) }); !ok || !encodes || kind.Version == runtime.APIVersionInternal {
				continue
			}
			if object.GetObjectKind().SetGroupVersionKind(kind); object.GetObjectKind().GroupVersionKind() != kind {
				continue // an event of a watch, which is no body of a request
			}
			n++
			for range 3 {
				fill.Fill(object)
				object.GetObjectKind().SetGroupVersionKind(kind)
				body := encode(t, object)
				if got, err := read(body, "application/vnd.kubernetes.protobuf", false); err != nil || !bytes.Equal(got, body) {
					t.Errorf("%s: %v", kind, err)
				}
			}
		}
	}
	if n < 500 {
		t.Errorf("there are only %d kinds", n)
	}
}
