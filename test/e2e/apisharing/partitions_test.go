package apisharing

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

var (
	partitions    = schema.GroupVersionResource{Group: "topology.kcp.io", Version: "v1alpha1", Resource: "partitions"}
	partitionSets = schema.GroupVersionResource{Group: "topology.kcp.io", Version: "v1alpha1", Resource: "partitionsets"}
	shards        = schema.GroupVersionResource{Group: "core.kcp.io", Version: "v1alpha1", Resource: "shards"}
)

// label sets a label on the shard of the tests.
func label(t *testing.T, key, value string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, key, value)
	_, err := server.Named("root").Dynamic(t, kcptest.Masters).Resource(shards).Patch(kcptest.Context(t), "root", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// onlyPartition waits until a cluster has exactly one Partition, with that selector, and returns its name.
func onlyPartition(t *testing.T, c *kcptest.Cluster, selector string) (name string) {
	t.Helper()
	kcptest.Eventually(t, "the only partition selects "+selector, func(ctx context.Context) error {
		list, err := c.Objects(t, partitions).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(list.Items) != 1 || fmt.Sprint(list.Items[0].Object["spec"]) != selector {
			return fmt.Errorf("got %v", list.Items)
		}
		name = list.Items[0].GetName()
		return nil
	})
	return name
}

func TestPartitionSetCreatesPartitions(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	key := "zone-" + kcptest.Suffix()
	c := server.Cluster(t)
	c.Apply(t, "apiVersion: topology.kcp.io/v1alpha1\nkind: PartitionSet\nmetadata: {name: zones}\nspec: {dimensions: ["+key+"]}\n")
	status := func(want ...string) {
		t.Helper()
		kcptest.Eventually(t, fmt.Sprintf("the status of the set has %v", want), func(ctx context.Context) error {
			set, err := c.Objects(t, partitionSets).Get(ctx, "zones", metav1.GetOptions{})
			if err != nil {
				return err
			}
			text := fmt.Sprint(set.Object["status"])
			for _, part := range want {
				if !strings.Contains(text, part) {
					return fmt.Errorf("got %s", text)
				}
			}
			return nil
		})
	}
	status("status:True type:PartitionSetValid", "status:True type:PartitionsReady")
	label(t, key, "East_1")
	first := onlyPartition(t, c, "map[selector:map[matchLabels:map["+key+":East_1]]]")
	if !strings.HasPrefix(first, "zones-east-1-") {
		t.Errorf("got partition %s", first)
	}
	status("count:1")
	label(t, key, "West")
	second := onlyPartition(t, c, "map[selector:map[matchLabels:map["+key+":West]]]")
	// A deleted partition is created again, and a changed one is reverted.
	client := c.Objects(t, partitions)
	if err := client.Delete(ctx, second, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "the partition is created again", func(context.Context) error {
		if name := onlyPartition(t, c, "map[selector:map[matchLabels:map["+key+":West]]]"); name == second {
			return fmt.Errorf("the partition has not been replaced")
		}
		return nil
	})
	third := onlyPartition(t, c, "map[selector:map[matchLabels:map["+key+":West]]]")
	if _, err := client.Patch(ctx, third, types.MergePatchType, []byte(`{"spec":{"selector":{"matchLabels":{"other":"x"}}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	onlyPartition(t, c, "map[selector:map[matchLabels:map["+key+":West]]]")
	if err := c.Objects(t, partitionSets).Delete(ctx, "zones", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "the partitions are deleted with their set", func(ctx context.Context) error {
		list, err := client.List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("got %v", list.Items)
		}
		return err
	})
}

func TestInvalidShardSelectorsAreRefused(t *testing.T) {
	t.Parallel()
	c := server.Cluster(t)
	for name, selector := range map[string]any{
		"missing values":      map[string]any{"matchExpressions": []any{map[string]any{"key": "a", "operator": "In"}}},
		"unexpected values":   map[string]any{"matchExpressions": []any{map[string]any{"key": "a", "operator": "Exists", "values": []any{"x"}}}},
		"an unknown operator": map[string]any{"matchExpressions": []any{map[string]any{"key": "a", "operator": "Near", "values": []any{"x"}}}},
		"an invalid key":      map[string]any{"matchLabels": map[string]any{"-a": "x"}},
		"an invalid value":    map[string]any{"matchLabels": map[string]any{"a": "x y"}},
	} {
		_, err := c.Objects(t, partitionSets).Create(kcptest.Context(t), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "topology.kcp.io/v1alpha1", "kind": "PartitionSet", "metadata": map[string]any{"name": "bad"}, "spec": map[string]any{"shardSelector": selector},
		}}, metav1.CreateOptions{})
		if err == nil {
			t.Errorf("%s: the set was accepted", name)
			continue
		}
		kcptest.WantReason(t, err, metav1.StatusReasonInvalid)
	}
}

func TestEndpointSliceOfExportWithPartitionListsOnlyItsShards(t *testing.T) {
	t.Parallel()
	key := "slice-" + kcptest.Suffix()
	label(t, key, "here")
	p, consumer := provider(t), server.Cluster(t)
	for name, value := range map[string]string{"here": "here", "there": "there"} {
		p.Apply(t, fmt.Sprintf("apiVersion: topology.kcp.io/v1alpha1\nkind: Partition\nmetadata: {name: %s}\nspec: {selector: {matchLabels: {%s: %s}}}\n", name, key, value))
	}
	for _, name := range []string{"here", "there", "nowhere"} {
		p.Apply(t, fmt.Sprintf("apiVersion: apis.kcp.io/v1alpha1\nkind: APIExportEndpointSlice\nmetadata: {name: %s}\nspec: {export: {name: widgets}, partition: %s}\n", name, name))
	}
	status := func(slice string, want, not []string) {
		t.Helper()
		kcptest.Eventually(t, fmt.Sprintf("the status of the slice %s has %v and not %v", slice, want, not), func(ctx context.Context) error {
			s, err := p.Objects(t, endpoints).Get(ctx, slice, metav1.GetOptions{})
			if err != nil {
				return err
			}
			text := fmt.Sprint(s.Object["status"])
			for _, part := range want {
				if !strings.Contains(text, part) {
					return fmt.Errorf("got %s", text)
				}
			}
			for _, part := range not {
				if strings.Contains(text, part) {
					return fmt.Errorf("got %s", text)
				}
			}
			return nil
		})
	}
	valid := "status:True type:PartitionValid"
	status("here", []string{valid, "shardSelector:" + key + "=here"}, []string{"url:"})
	bind(t, consumer, p)
	status("here", []string{valid, "url:"}, nil)
	status("there", []string{valid, "shardSelector:" + key + "=there"}, []string{"url:"})
	status("nowhere", []string{"PartitionInvalidReference", "status:False type:PartitionValid"}, []string{"url:"})
	status("widgets", []string{valid, "url:"}, []string{"shardSelector"})
	// The missing partition is created, and another one changes.
	p.Apply(t, "apiVersion: topology.kcp.io/v1alpha1\nkind: Partition\nmetadata: {name: nowhere}\nspec: {}\n")
	status("nowhere", []string{valid, "url:"}, nil)
	label(t, key, "there")
	status("here", []string{valid}, []string{"url:"})
	status("there", []string{valid, "url:"}, nil)
}
