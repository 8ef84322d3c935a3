package apisharing

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// bindAndWatch makes a cluster a consumer, and returns with the event that says that it is one.
func bindAndWatch(t *testing.T, consumer, provider *kcptest.Cluster) {
	t.Helper()
	ctx := kcptest.Context(t)
	client := consumer.Objects(t, kcptest.APIBindings)
	made, err := client.Create(ctx, binding(provider), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	watching, err := client.Watch(ctx, metav1.ListOptions{ResourceVersion: made.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer watching.Stop()
	for e := range watching.ResultChan() {
		b, ok := e.Object.(*unstructured.Unstructured)
		if !ok {
			t.Fatalf("the watch delivered %v", e)
		}
		if phase, _, _ := unstructured.NestedString(b.Object, "status", "phase"); phase == "Bound" {
			return
		}
	}
	t.Fatal("the watch ended before the binding was bound")
}

func TestWhatIsBoundIsServedFromThatMomentOn(t *testing.T) {
	t.Parallel()
	p := provider(t)
	ctx := kcptest.Context(t)
	for range 25 {
		consumer := server.Cluster(t)
		bindAndWatch(t, consumer, p)
		if _, err := consumer.Objects(t, widgets).Namespace("default").Create(ctx, widget("one", 1), metav1.CreateOptions{}); err != nil {
			t.Errorf("the consumer: %v", err)
		}
		if _, err := view(t, kcptest.Masters, p, consumer.Name).Resource(widgets).List(ctx, metav1.ListOptions{}); err != nil {
			t.Errorf("the provider: %v", err)
		}
	}
}

func TestThePolicyOfAProviderHoldsFromTheFirstRequestOn(t *testing.T) {
	t.Parallel()
	p := provider(t)
	ctx := kcptest.Context(t)
	limit := []byte(`{"spec":{"maximalPermissionPolicy":{"local":{}}}}`)
	if _, err := p.Objects(t, kcptest.APIExports).Patch(ctx, "widgets", types.MergePatchType, limit, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		consumer := server.Cluster(t)
		consumer.Grant(t, kcptest.Alice, "cluster-admin")
		client := consumer.Dynamic(t, kcptest.Alice).Resource(widgets).Namespace("default")
		if _, err := consumer.Objects(t, kcptest.APIBindings).Create(ctx, binding(p), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		for bound := false; !bound; {
			_, err := client.Create(ctx, widget("planted-"+kcptest.Suffix(), 1), metav1.CreateOptions{})
			if bound = apierrors.IsForbidden(err); !bound && !apierrors.IsNotFound(err) {
				t.Fatalf("a user of a consumer did what no provider allows: %v", err)
			}
		}
	}
}
