package informers

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"

	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/informers/compact"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// filler fills objects of all kinds. Times have whole seconds, as in JSON.
func filler() *randfill.Filler {
	return randfill.NewWithSeed(rand.Int64()).NilChance(0.2).NumElements(0, 2).Funcs(
		func(t *metav1.Time, c randfill.Continue) { *t = metav1.Unix(c.Int63n(1<<32), 0) },
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewQuantity(c.Int63n(1000), resource.DecimalSI)
		},
		func(r *runtime.RawExtension, _ randfill.Continue) { r.Raw = []byte(`{"a":"b"}`) },
		func(p *apiextensionsv1.JSONSchemaProps, c randfill.Continue) {
			p.Type, p.Description = c.String(5), c.String(5)
		},
		func(i *intstr.IntOrString, c randfill.Continue) { *i = intstr.FromInt32(c.Int31()) },
	)
}

// entry splits the path of an entry of a map, such as metadata.annotations[key].
func entry(path string) (field, key string) {
	field, key, _ = strings.Cut(strings.TrimSuffix(path, "]"), "[")
	return field, key
}

// fieldAt returns the field of a struct at a JSON path.
func fieldAt(t *testing.T, v reflect.Value, path string) reflect.Value {
	t.Helper()
	name, rest, nested := strings.Cut(path, ".")
	for i := range v.NumField() {
		tag, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		switch {
		case tag == "" && v.Type().Field(i).Anonymous && !nested: // TypeMeta
			if _, ok := reflect.TypeFor[metav1.TypeMeta]().FieldByName(strings.ToUpper(name[:1]) + name[1:]); ok || name == "apiVersion" {
				return fieldAt(t, v.Field(i), path)
			}
		case tag == name && nested:
			return fieldAt(t, v.Field(i), rest)
		case tag == name:
			return v.Field(i)
		}
	}
	t.Fatalf("%s has no field %s", v.Type(), path)
	return reflect.Value{}
}

// remove removes a trimmed field from an object, and reports whether it was there.
func remove(t *testing.T, obj runtime.Object, trimmed Trimmed) bool {
	t.Helper()
	field, key := entry(trimmed.Path)
	v := fieldAt(t, reflect.ValueOf(obj).Elem(), field)
	if len(trimmed.Except) > 0 {
		there := false
		for _, key := range v.MapKeys() {
			if !slices.Contains(trimmed.Except, key.String()) {
				v.SetMapIndex(key, reflect.Value{})
				there = true
			}
		}
		return there
	}
	if key != "" {
		there := v.MapIndex(reflect.ValueOf(key)).IsValid()
		if there {
			v.SetMapIndex(reflect.ValueOf(key), reflect.Value{})
		}
		return there
	}
	there := !v.IsZero() && (v.Kind() != reflect.Slice && v.Kind() != reflect.Map || v.Len() > 0)
	v.SetZero()
	return there
}

// vary sets fields of an object on which trimming depends.
func vary(obj runtime.Object, kind Kind, random *rand.Rand) {
	obj.GetObjectKind().SetGroupVersionKind(kind.Resource.GroupVersion().WithKind("Filled"))
	m := obj.(metav1.Object)
	annotations := map[string]string{"example.org/other": "value"}
	for _, trimmed := range kind.Trimmed {
		if field, key := entry(trimmed.Path); field == "metadata.annotations" && key != "" && random.IntN(2) == 0 {
			annotations[key] = "value"
		}
		for _, key := range trimmed.Except {
			annotations[key] = "kept"
		}
	}
	m.SetAnnotations(annotations)
	if random.IntN(2) == 0 {
		m.SetDeletionTimestamp(nil)
	}
	if ws, ok := obj.(*tenancyv1alpha1.Workspace); ok && random.IntN(2) == 0 {
		ws.Spec.Cluster = ""
	}
	if cm, ok := obj.(*corev1.ConfigMap); ok && random.IntN(2) == 0 {
		cm.Name = RootCAConfigMap
	}
}

// A field that a transform or the codec drops must be declared in Kinds with a reason, and a declared field must be dropped.
func TestInformersKeepAllFieldsThatAreNotDeclaredAsTrimmed(t *testing.T) {
	for _, kind := range Kinds() {
		t.Run(kind.Resource.Resource, func(t *testing.T) {
			keep, err := kind.Keep()
			if err != nil {
				t.Fatal(err)
			}
			random, fill := rand.New(rand.NewPCG(rand.Uint64(), 1)), filler()
			dropped, kept := map[string]bool{}, map[string]bool{}
			for range 200 {
				filled := reflect.New(reflect.TypeOf(kind.Example).Elem()).Interface().(runtime.Object)
				fill.Fill(filled)
				vary(filled, kind, random)
				want := filled.DeepCopyObject()
				for _, trimmed := range kind.Trimmed {
					if trimmed.Kept != nil && trimmed.Kept(filled) {
						kept[trimmed.Path] = remove(t, filled.DeepCopyObject(), trimmed) || kept[trimmed.Path]
					} else {
						dropped[trimmed.Path] = remove(t, want, trimmed) || dropped[trimmed.Path]
					}
				}
				if got := keep(filled); !equality.Semantic.DeepEqual(got, want) {
					t.Fatalf("declare in Kinds what the informer drops:\n%s", diff.Diff(want, got))
				}
			}
			for _, trimmed := range kind.Trimmed {
				if !dropped[trimmed.Path] || trimmed.Kept != nil && !kept[trimmed.Path] {
					t.Errorf("%s: no test drops it: %t, no test keeps it: %t", trimmed.Path, !dropped[trimmed.Path], !kept[trimmed.Path])
				}
				if trimmed.Reason == "" {
					t.Errorf("%s is trimmed without a reason", trimmed.Path)
				}
			}
		})
	}
}

// Tenants store as many Secrets and ConfigMaps as they like, of any size.
func TestObjectsThatNoControllerReadsTakeFewBytes(t *testing.T) {
	large := strings.Repeat("x", 5000)
	metadata := metav1.ObjectMeta{
		Namespace: "default", Name: "settings-of-the-application", UID: "13569ebc-0c6a-4fa2-bd32-9acbd5f5f5d5", ResourceVersion: "123456",
		CreationTimestamp: metav1.Unix(1_800_000_000, 0), Labels: map[string]string{"app.kubernetes.io/name": "application"},
		Annotations:   map[string]string{logicalcluster.AnnotationKey: "2fx8q1z4m0p7k3vd", corev1.LastAppliedConfigAnnotation: large},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl", FieldsV1: metav1.NewFieldsV1(large)}},
	}
	for _, obj := range []runtime.Object{
		&corev1.Secret{ObjectMeta: *metadata.DeepCopy(), Type: corev1.SecretTypeOpaque, Data: map[string][]byte{"a": []byte(large)}},
		&corev1.Secret{ObjectMeta: *metadata.DeepCopy(), Type: corev1.SecretTypeServiceAccountToken, Data: map[string][]byte{"a": []byte(large)}},
		&corev1.ConfigMap{ObjectMeta: *metadata.DeepCopy(), Data: map[string]string{"a": large}, BinaryData: map[string][]byte{"b": []byte(large)}},
	} {
		for _, kind := range Kinds() {
			if reflect.TypeOf(kind.Example) != reflect.TypeOf(obj) {
				continue
			}
			if !kind.Packed {
				t.Fatalf("%s is not packed", kind.Resource)
			}
			kind.Transform()(obj)
			codec, err := compact.New(kind.Example)
			if err != nil {
				t.Fatal(err)
			}
			if got := len(codec.Pack("", obj)); got > 300 {
				t.Errorf("a %T takes %d bytes", obj, got)
			}
		}
	}
}

func TestEachKindHasOneLister(t *testing.T) {
	listers := map[string]bool{}
	set := reflect.TypeFor[Set]()
	for i := range set.NumField() {
		get, _ := set.Field(i).Type.MethodByName("Get")
		listers[get.Type.Out(0).String()] = true
	}
	kinds := map[string]bool{}
	for _, kind := range Kinds() {
		name := fmt.Sprintf("%T", kind.Example)
		if kinds[name] || !listers[name] {
			t.Errorf("%s: twice in Kinds: %t, in Set: %t", name, kinds[name], listers[name])
		}
		kinds[name] = true
	}
	if len(kinds) != len(listers) {
		t.Errorf("there are %d kinds and %d listers", len(kinds), len(listers))
	}
}
