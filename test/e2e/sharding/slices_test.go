package sharding

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	"github.com/kcplane/kcp/test/e2e/kcptest"
	"github.com/kcplane/kcp/test/sharded"
)

var endpointSlices = apisv1alpha1.SchemeGroupVersion.WithResource("apiexportendpointslices")

// urls waits until the slice of widgets has an endpoint on each of these shards and on no other, and returns the URLs by shard.
func urls(t *testing.T, provider *kcptest.Cluster, want ...*sharded.Process) map[string]string {
	t.Helper()
	found := map[string]string{}
	kcptest.Eventually(t, fmt.Sprintf("the endpoint slice has %d endpoints", len(want)), func(ctx context.Context) error {
		clear(found)
		slice, err := provider.Objects(t, endpointSlices).Get(ctx, "widgets", metav1.GetOptions{})
		if err != nil {
			return err
		}
		endpoints, _, err := unstructured.NestedSlice(slice.Object, "status", "endpoints")
		for _, endpoint := range endpoints {
			url := fmt.Sprint(endpoint.(map[string]any)["url"])
			for _, s := range want {
				if strings.HasPrefix(url, s.InternalURL()+"/") {
					found[s.Name] = url
				}
			}
		}
		if err != nil || len(endpoints) != len(want) || len(found) != len(want) {
			return fmt.Errorf("got %v %w", endpoints, err)
		}
		return nil
	})
	return found
}

func TestAProviderReadsItsConsumersAtAnEndpointOfEachShard(t *testing.T) {
	one, two := shard(t, "shard-1"), shard(t, "shard-2")
	name, provider := workspaceOn(t, installation.Root())
	exporting(t, provider)
	urls(t, provider)
	consumers := map[string]*kcptest.Cluster{}
	for _, s := range []*sharded.Process{one, two} {
		_, consumer := workspaceOn(t, s)
		consumer.Bind(t, kcptest.At("", nil).Named("root:"+name), "widgets")
		made := widget(t, "of-"+s.Name, 7)
		if _, err := consumer.Objects(t, widgets).Namespace("default").Create(kcptest.Context(t), made, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		consumers[s.Name] = consumer
	}
	found := urls(t, provider, one, two)
	for _, s := range []*sharded.Process{one, two} {
		view := s.Server().DynamicAt(t, kcptest.Masters, strings.TrimPrefix(found[s.Name], s.InternalURL())+"/clusters/*").Resource(widgets)
		kcptest.Eventually(t, "the provider reads its consumers on "+s.Name, func(ctx context.Context) error {
			list, err := view.List(ctx, metav1.ListOptions{})
			if err == nil && (len(list.Items) != 1 || list.Items[0].GetName() != "of-"+s.Name) {
				err = fmt.Errorf("got %d widgets", len(list.Items))
			}
			return err
		})
	}
	if err := consumers[two.Name].Objects(t, kcptest.APIBindings).Delete(kcptest.Context(t), "widgets", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	urls(t, provider, one)
}
