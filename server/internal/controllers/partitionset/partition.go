package partitionset

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	topologyv1alpha1 "github.com/kcplane/kcp/api/topology/v1alpha1"
)

// maxPrefix is the maximum length of the prefix of a name.
const maxPrefix = 252

// partition is a group of shards.
type partition struct {
	// values are the values of the dimensions, in the order of their keys.
	values   []string
	selector *metav1.LabelSelector
}

// prefix returns the prefix of the names of partitions. Labels may have underscores, which are invalid in names.
func (p partition) prefix(set string) string {
	name := strings.Join(append([]string{set}, p.values...), "-") + "-"
	name = strings.ReplaceAll(strings.ToLower(name), "_", "-")
	return name[:min(len(name), maxPrefix)]
}

// divide returns the partitions of a set, one for each combination of values of its dimensions that selected shards have. Shards without
// one of the dimensions are in no partition. Without dimensions all shards are in one partition.
func divide(spec *topologyv1alpha1.PartitionSetSpec, shards []*corev1alpha1.Shard) ([]partition, error) {
	general := spec.ShardSelector.LabelSelector()
	selector, err := metav1.LabelSelectorAsSelector(general)
	if err != nil {
		return nil, err
	}
	dimensions := sets.List(sets.New(spec.Dimensions...))
	found := map[string]partition{}
	for _, shard := range shards {
		values, ok := valuesOf(shard, dimensions)
		if !ok || !selector.Matches(labels.Set(shard.Labels)) {
			continue
		}
		own := general.DeepCopy()
		for i, key := range dimensions {
			own = metav1.AddLabelToSelector(own, key, values[i])
		}
		found[strings.Join(values, "/")] = partition{values, own}
	}
	var all []partition
	for _, key := range slices.Sorted(maps.Keys(found)) {
		all = append(all, found[key])
	}
	return all, nil
}

func valuesOf(shard *corev1alpha1.Shard, dimensions []string) ([]string, bool) {
	values := make([]string, len(dimensions))
	for i, key := range dimensions {
		value, ok := shard.Labels[key]
		if !ok {
			return nil, false
		}
		values[i] = value
	}
	return values, true
}

// take removes the partition with a selector from the wanted ones, and reports whether it was among them.
func take(wanted *[]partition, selector *metav1.LabelSelector) bool {
	i := slices.IndexFunc(*wanted, func(p partition) bool { return equality.Semantic.DeepEqual(p.selector, selector) })
	if i >= 0 {
		*wanted = slices.Delete(*wanted, i, i+1)
	}
	return i >= 0
}
