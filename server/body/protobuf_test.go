package body

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

func encode(t *testing.T, object runtime.Object) []byte {
	t.Helper()
	scheme := runtime.NewScheme()
	var out bytes.Buffer
	if err := protobuf.NewSerializer(scheme, scheme).Encode(object, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestABodyInProtobufHasABoundedNumberOfValues(t *testing.T) {
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
		"nothing":          {nil, ""},
		"no message":       {[]byte("k8s\x00\xff\xff"), ""},
		"a large text":     {encode(t, &corev1.ConfigMap{Data: map[string]string{"a": strings.Repeat("hello, world. ", 70_000)}}), ""},
		"zeros":            {encode(t, &corev1.Secret{Data: map[string][]byte{"a": make([]byte, 1<<20)}}), ""},
		"random bytes":     {encode(t, &corev1.Secret{Data: map[string][]byte{"a": random}}), ""},
		"many labels":      {encode(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Labels: labels}}), ""},
		"a deep schema":    {encode(t, deep), ""},
		"some rules":       {encode(t, some), ""},
		"a million rules":  {encode(t, many), "more than 200000 values"},
		"many in all":      {encode(t, spread), "more than 200000 values"},
		"a long list":      {encode(t, &rbacv1.ClusterRole{Rules: make([]rbacv1.PolicyRule, 100_000)}), "a list with more than 20000 items"},
		"nested very deep": {append([]byte("k8s\x00"), nested(1000)...), "nested more than 300 deep"},
	} {
		got, err := read(test.body, "application/vnd.kubernetes.protobuf", false)
		switch {
		case test.want == "" && (err != nil || !bytes.Equal(got, test.body)):
			t.Errorf("%s: read %d of %d bytes, %v", name, len(got), len(test.body), err)
		case test.want != "" && (!apierrors.IsRequestEntityTooLargeError(err) || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: %v", name, err)
		}
	}
}

// nested returns so many messages, each in the one before.
func nested(depth int) []byte {
	var content []byte
	for range depth {
		content = append([]byte{0x0a, byte(len(content)&0x7f | 0x80), byte(len(content) >> 7)}, content...)
	}
	return content
}
