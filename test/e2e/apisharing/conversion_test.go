package apisharing

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// timers have the field seconds in v1, and minutes in v2.
const timers = `
apiVersion: apis.kcp.io/v1alpha1
kind: APIResourceSchema
metadata: {name: two.timers.example.org}
spec:
  group: example.org
  names: {plural: timers, singular: timer, kind: Timer, listKind: TimerList}
  scope: Namespaced
  conversion: {strategy: None}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {type: object, properties: {spec: {type: object, properties: {seconds: {type: integer}, note: {type: string}}}}}
  - name: v2
    served: true
    storage: false
    schema: {type: object, properties: {spec: {type: object, properties: {minutes: {type: integer}, note: {type: string}}}}}
---
apiVersion: apis.kcp.io/v1alpha2
kind: APIExport
metadata: {name: widgets}
spec:
  resources:
  - {group: example.org, name: timers, schema: two.timers.example.org, storage: {crd: {}}}
`

// rules returns the conversion between the versions. The conversion to v1 multiplies by factor.
func rules(factor int) string {
	return fmt.Sprintf(`
apiVersion: apis.kcp.io/v1alpha1
kind: APIConversion
metadata: {name: two.timers.example.org}
spec:
  conversions:
  - {from: v1, to: v2, rules: [{field: spec.seconds, destination: spec.minutes, transformation: self / 60}]}
  - {from: v2, to: v1, rules: [{field: spec.minutes, destination: spec.seconds, transformation: self * %d}]}
`, factor)
}

func timer(version, name, field string, value int64) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.org/" + version, "kind": "Timer", "metadata": map[string]any{"name": name, "namespace": "default"},
		"spec": map[string]any{field: value, "note": "kept"},
	}}
}

func timersIn(version string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "example.org", Version: version, Resource: "timers"}
}

func TestVersionsAreConvertedByAPIConversion(t *testing.T) {
	t.Parallel()
	p, consumer := server.Cluster(t), server.Cluster(t)
	ctx := kcptest.Context(t)
	p.Apply(t, timers)
	kcptest.Eventually(t, "the conversion is accepted", func(ctx context.Context) error {
		_, err := p.Objects(t, schemas.GroupVersion().WithResource("apiconversions")).Create(ctx, kcptest.Parse(t, rules(60)), metav1.CreateOptions{})
		return err
	})
	if _, err := consumer.Objects(t, kcptest.APIBindings).Create(ctx, binding(p), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	waitForPhase(t, consumer, "Bound")
	client := consumer.Dynamic(t, kcptest.Masters)
	wait := func(what, version, name, field string, want int64) {
		t.Helper()
		kcptest.Eventually(t, what, func(ctx context.Context) error {
			got, err := client.Resource(timersIn(version)).Namespace("default").Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			value, _, _ := unstructured.NestedInt64(got.Object, "spec", field)
			note, _, _ := unstructured.NestedString(got.Object, "spec", "note")
			if value != want || note != "kept" {
				return fmt.Errorf("got spec %v", got.Object["spec"])
			}
			return nil
		})
	}
	kcptest.Eventually(t, "a timer can be created", func(ctx context.Context) error {
		_, err := client.Resource(timersIn("v1")).Namespace("default").Create(ctx, timer("v1", "tea", "seconds", 150), metav1.CreateOptions{})
		return err
	})
	wait("an object of v1 can be read as v2", "v2", "tea", "minutes", 2)
	if _, err := client.Resource(timersIn("v2")).Namespace("default").Create(ctx, timer("v2", "egg", "minutes", 5), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	wait("an object of v2 can be read as v1", "v1", "egg", "seconds", 300)
	// Content that v2 cannot express is preserved by an update in v2.
	if _, err := client.Resource(timersIn("v2")).Namespace("default").Patch(ctx, "tea", types.MergePatchType, []byte(`{"metadata":{"labels":{"touched":"yes"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	wait("the content of v1 is preserved", "v1", "tea", "seconds", 150)
	list, err := view(t, kcptest.Masters, p, "*").Resource(timersIn("v2")).List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 2 {
		t.Errorf("the provider got %v, %v", list, err)
	}

	// Changed rules also apply to existing bindings.
	p.Apply(t, rules(61))
	kcptest.Eventually(t, "the new rules apply", func(ctx context.Context) error {
		name := "timer-" + kcptest.Suffix()
		if _, err := client.Resource(timersIn("v2")).Namespace("default").Create(ctx, timer("v2", name, "minutes", 1), metav1.CreateOptions{}); err != nil {
			return err
		}
		got, err := client.Resource(timersIn("v1")).Namespace("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if seconds, _, _ := unstructured.NestedInt64(got.Object, "spec", "seconds"); seconds != 61 {
			return fmt.Errorf("got %d seconds", seconds)
		}
		return nil
	})
}

func TestConversionMustMatchItsSchema(t *testing.T) {
	t.Parallel()
	p := server.Cluster(t)
	client := p.Objects(t, schemas.GroupVersion().WithResource("apiconversions"))
	_, err := client.Create(kcptest.Context(t), kcptest.Parse(t, rules(60)), metav1.CreateOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonInvalid) // no schema has its name
	p.Apply(t, timers)
	for what, wrong := range map[string]string{"field": "spec.hours", "transformation": "self +"} {
		conversion := kcptest.Parse(t, rules(60))
		list, _, _ := unstructured.NestedSlice(conversion.Object, "spec", "conversions")
		list[0].(map[string]any)["rules"].([]any)[0].(map[string]any)[what] = wrong
		if err := unstructured.SetNestedSlice(conversion.Object, list, "spec", "conversions"); err != nil {
			t.Fatal(err)
		}
		_, err := client.Create(kcptest.Context(t), conversion, metav1.CreateOptions{})
		kcptest.WantReason(t, err, metav1.StatusReasonInvalid)
	}
}
