package apisharing

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// firstTimers is an API with v1 only.
var firstTimers = strings.NewReplacer("two.timers", "one.timers", `
  - name: v2
    served: true
    storage: false
    schema: {type: object, properties: {spec: {type: object, properties: {minutes: {type: integer}, note: {type: string}}}}}`, "").Replace(timers)

// secondTimers also has v2, which is the storage version.
var secondTimers = strings.NewReplacer("storage: true", "storage: false", "storage: false", "storage: true").Replace(timers)

// writer creates timers in a consumer and updates each of them, in one version. It returns the seconds of each timer by name, and the
// first error.
func writer(ctx context.Context, client dynamic.Interface, version, field string, unit int64, stop <-chan struct{}) (written map[string]int64, err error) {
	written = map[string]int64{}
	objects := client.Resource(timersIn(version)).Namespace("default")
	for n := int64(1); ; n++ {
		select {
		case <-stop:
			return written, nil
		default:
		}
		name := fmt.Sprintf("%s-%d", version, n)
		made, err := objects.Create(ctx, timer(version, name, field, n), metav1.CreateOptions{})
		if err != nil {
			return written, fmt.Errorf("creating %s: %w", name, err)
		}
		written[name] = n * unit
		if err := unstructured.SetNestedField(made.Object, 2*n, "spec", field); err != nil {
			return written, err
		}
		changed, err := objects.Update(ctx, made, metav1.UpdateOptions{})
		if err != nil {
			return written, fmt.Errorf("updating %s: %w", name, err)
		}
		if got, _, _ := unstructured.NestedInt64(changed.Object, "spec", field); got != 2*n {
			return written, fmt.Errorf("updating %s: got %v", name, changed.Object["spec"])
		}
		written[name] = 2 * n * unit
	}
}

func TestConsumersWriteWhileVersionIsAdded(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	p := server.Cluster(t)
	p.Apply(t, firstTimers)
	waitForIdentity(t, p, "widgets")
	consumers := []*kcptest.Cluster{server.Cluster(t), server.Cluster(t), server.Cluster(t)}
	type result struct {
		written map[string]int64
		err     error
	}
	results := make([]chan result, len(consumers))
	stop := make(chan struct{})
	for i, c := range consumers {
		bind(t, c, p)
		results[i] = make(chan result, 2)
		client := c.Dynamic(t, kcptest.Masters)
		go func() {
			written, err := writer(ctx, client, "v1", "seconds", 1, stop)
			results[i] <- result{written, err}
		}()
	}
	schema, export, _ := strings.Cut(secondTimers, "---") // the conversion must exist before consumers get v2
	p.Apply(t, schema)
	p.Apply(t, rules(60))
	p.Apply(t, export)
	for i, c := range consumers {
		client := c.Dynamic(t, kcptest.Masters)
		kcptest.Eventually(t, "the consumer has v2", func(ctx context.Context) error {
			_, err := client.Resource(timersIn("v2")).List(ctx, metav1.ListOptions{})
			return err
		})
		go func() {
			written, err := writer(ctx, client, "v2", "minutes", 60, stop)
			results[i] <- result{written, err}
		}()
	}
	for _, c := range consumers {
		kcptest.Eventually(t, "many objects are written in both versions", func(ctx context.Context) error {
			_, err := c.Objects(t, timersIn("v1")).Namespace("default").Get(ctx, "v2-20", metav1.GetOptions{})
			return err
		})
	}
	close(stop)
	total := 0
	for i, c := range consumers {
		want := map[string]int64{}
		for range 2 {
			r := <-results[i]
			if r.err != nil {
				t.Errorf("consumer %d: %v", i, r.err)
			}
			if len(r.written) == 0 {
				t.Errorf("consumer %d wrote no objects in one version", i)
			}
			for name, seconds := range r.written {
				want[name] = seconds
			}
		}
		total += len(want)
		hasTimers(ctx, t, c, c.Dynamic(t, kcptest.Masters), want)
		kcptest.Eventually(t, "the status of the binding has both storage versions", func(ctx context.Context) error {
			b, err := c.Objects(t, kcptest.APIBindings).Get(ctx, "widgets", metav1.GetOptions{})
			if err != nil {
				return err
			}
			bound, _, _ := unstructured.NestedSlice(b.Object, "status", "boundResources")
			if len(bound) != 1 || fmt.Sprint(bound[0].(map[string]any)["storageVersions"]) != "[v1 v2]" {
				return fmt.Errorf("got %v", bound)
			}
			return nil
		})
	}
	for _, version := range []string{"v1", "v2"} {
		list, err := view(t, kcptest.Masters, p, "*").Resource(timersIn(version)).List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) != total {
			t.Errorf("the provider got %d timers in %s, want %d: %v", len(list.Items), version, total, err)
		}
	}
}

// hasTimers fails the test unless a consumer has timers with those seconds, in both versions.
func hasTimers(ctx context.Context, t *testing.T, c *kcptest.Cluster, client dynamic.Interface, want map[string]int64) {
	t.Helper()
	for version, in := range map[string]struct {
		field string
		unit  int64
	}{"v1": {"seconds", 1}, "v2": {"minutes", 60}} {
		list, err := client.Resource(timersIn(version)).Namespace("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Items) != len(want) {
			t.Errorf("%s: got %d timers in %s, want %d", c.Name, len(list.Items), version, len(want))
		}
		for _, item := range list.Items {
			got, _, _ := unstructured.NestedInt64(item.Object, "spec", in.field)
			note, _, _ := unstructured.NestedString(item.Object, "spec", "note")
			if got != want[item.GetName()]/in.unit || note != "kept" {
				t.Errorf("%s: timer %s is %v in %s, want %d seconds", c.Name, item.GetName(), item.Object["spec"], version, want[item.GetName()])
			}
		}
	}
}
