package partitionset

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	topologyv1alpha1 "github.com/kcplane/kcp/api/topology/v1alpha1"
)

// shard has labels in the form a=x,b=y.
func shard(labels string) *corev1alpha1.Shard {
	s := &corev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{}}}
	for _, label := range strings.Split(labels, ",") {
		key, value, _ := strings.Cut(label, "=")
		s.Labels[key] = value
	}
	return s
}

func TestShardsAreDividedByTheirLabels(t *testing.T) {
	shards := []*corev1alpha1.Shard{
		shard("region=eu,cloud=A_1"), shard("region=eu,cloud=A_1"), shard("region=eu,cloud=b"), shard("region=us,cloud=b"), shard("region=us"), shard("cloud="),
	}
	in := func(key string, values ...topologyv1alpha1.LabelValue) *topologyv1alpha1.ShardSelector {
		return &topologyv1alpha1.ShardSelector{MatchExpressions: []topologyv1alpha1.ShardSelectorRequirement{{Key: key, Operator: "In", Values: values}}}
	}
	for name, tc := range map[string]struct {
		spec topologyv1alpha1.PartitionSetSpec
		want []string // prefix of the name, and selector
	}{
		"without dimensions all shards are one": {topologyv1alpha1.PartitionSetSpec{}, []string{"set- "}},
		"one dimension": {topologyv1alpha1.PartitionSetSpec{Dimensions: []string{"region"}},
			[]string{"set-eu- region=eu", "set-us- region=us"}},
		"two dimensions, in the order of their keys": {topologyv1alpha1.PartitionSetSpec{Dimensions: []string{"region", "cloud", "region"}},
			[]string{"set-a-1-eu- cloud=A_1,region=eu", "set-b-eu- cloud=b,region=eu", "set-b-us- cloud=b,region=us"}},
		"an empty value is a value": {topologyv1alpha1.PartitionSetSpec{Dimensions: []string{"cloud"}},
			[]string{"set-- cloud=", "set-a-1- cloud=A_1", "set-b- cloud=b"}},
		"a selector": {topologyv1alpha1.PartitionSetSpec{Dimensions: []string{"region"}, ShardSelector: in("cloud", "b")},
			[]string{"set-eu- cloud in (b),region=eu", "set-us- cloud in (b),region=us"}},
		"nothing is selected":           {topologyv1alpha1.PartitionSetSpec{ShardSelector: in("cloud", "c")}, nil},
		"a dimension that no shard has": {topologyv1alpha1.PartitionSetSpec{Dimensions: []string{"planet"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			all, err := divide(&tc.spec, shards)
			var got []string
			for _, p := range all {
				got = append(got, p.prefix("set")+" "+metav1.FormatLabelSelector(p.selector))
			}
			for i := range got {
				got[i] = strings.Replace(got[i], "<none>", "", 1)
			}
			if err != nil || !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q, %v", got, tc.want, err)
			}
		})
	}
	if _, err := divide(&topologyv1alpha1.PartitionSetSpec{ShardSelector: in("region")}, shards); err == nil {
		t.Error("a requirement without values is accepted")
	}
	long, err := divide(&topologyv1alpha1.PartitionSetSpec{}, shards)
	if err != nil || len(long[0].prefix(strings.Repeat("x", 253))) != maxPrefix {
		t.Errorf("a name is too long to be one: %v", err)
	}
}

func TestAPartitionIsMatchedOnce(t *testing.T) {
	wanted, err := divide(&topologyv1alpha1.PartitionSetSpec{Dimensions: []string{"region"}}, []*corev1alpha1.Shard{shard("region=eu"), shard("region=us")})
	if err != nil {
		t.Fatal(err)
	}
	eu := wanted[0].selector.DeepCopy()
	if !take(&wanted, eu) || take(&wanted, eu) || len(wanted) != 1 {
		t.Errorf("left are %v", wanted)
	}
}
