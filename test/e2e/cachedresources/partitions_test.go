package cachedresources

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

const partitionOf = `
apiVersion: topology.kcp.io/v1alpha1
kind: Partition
metadata: {name: %s}
spec: {selector: {matchLabels: {%s}}}
`

// sliceOf returns a slice of the regions for a partition.
const sliceOf = `
apiVersion: cache.kcp.io/v1alpha1
kind: ClusterCachedResourceEndpointSlice
metadata: {name: %[1]s}
spec:
  partition: %[1]s
  clusterCachedResource: {name: regions}
  export: {name: regions}
`

func TestEndpointSliceWithPartitionListsOnlyItsShards(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	p := provider(t)
	consumer(t, p)
	client := p.Objects(t, slices)
	kcptest.WaitForStatus(t, client, "regions", "", "endpoints")
	p.Apply(t, fmt.Sprintf(partitionOf, "all", "")+"---"+fmt.Sprintf(partitionOf, "none", "zone: nowhere-"+kcptest.Suffix()))
	for _, name := range []string{"all", "none", "missing"} {
		p.Apply(t, fmt.Sprintf(sliceOf, name))
	}
	kcptest.WaitForCondition(t, client, "all", "PartitionValid", "True", "")
	kcptest.WaitForStatus(t, client, "all", "", "endpoints")
	kcptest.WaitForCondition(t, client, "missing", "PartitionValid", "False", "PartitionInvalidReference")
	kcptest.WaitForCondition(t, client, "none", "PartitionValid", "True", "")
	kcptest.WaitForStatus(t, client, "none", "", "shardSelector")
	if got, err := kcptest.StatusField(ctx, client, "none", "endpoints"); err != nil || got != "" {
		t.Errorf("the slice of a partition without shards lists %s (%v)", got, err)
	}
	// The current selector of a partition is used, not a former one.
	partitions := p.Objects(t, schema.GroupVersionResource{Group: "topology.kcp.io", Version: "v1alpha1", Resource: "partitions"})
	if err := partitions.Delete(ctx, "none", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.WaitForCondition(t, client, "none", "PartitionValid", "False", "PartitionInvalidReference")
	p.Apply(t, fmt.Sprintf(partitionOf, "none", "")+"---"+fmt.Sprintf(partitionOf, "missing", ""))
	kcptest.WaitForStatus(t, client, "none", "", "endpoints")
	kcptest.WaitForStatus(t, client, "missing", "", "endpoints")
}
