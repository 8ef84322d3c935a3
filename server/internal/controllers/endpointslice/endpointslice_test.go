package endpointslice

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	topologyv1alpha1 "github.com/kcplane/kcp/api/topology/v1alpha1"
	"github.com/kcplane/kcp/server/internal/objecttest"
)

type exportSlice = apisv1alpha1.APIExportEndpointSlice

func partition(cluster, name string, selector *metav1.LabelSelector) *topologyv1alpha1.Partition {
	return objecttest.In(cluster, &topologyv1alpha1.Partition{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: topologyv1alpha1.PartitionSpec{Selector: selector},
	})
}

func TestTheSelectorOfAPartition(t *testing.T) {
	o := objecttest.New(t,
		partition("here", "eu", &metav1.LabelSelector{MatchLabels: map[string]string{"region": "eu"}}), partition("here", "all", nil),
		partition("here", "wrong", &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "region", Operator: "Like"}}}),
		partition("there", "elsewhere", nil),
	)
	r := &reconciler[*exportSlice]{Inputs: Inputs{Set: o.Set}}
	for name, tc := range map[string]struct{ want, problem string }{
		"":          {"", ""},
		"eu":        {"region=eu", ""},
		"all":       {"", ""},
		"wrong":     {"", "the selector of the Partition"},
		"none":      {"", "there is no Partition"},
		"elsewhere": {"", "there is no Partition"},
	} {
		got, err := r.partition("here", name)
		if got != tc.want || (err == nil) != (tc.problem == "") || (err != nil && !strings.Contains(err.Error(), tc.problem)) {
			t.Errorf("%q: got %q, %v", name, got, err)
		}
	}
}

func TestSelectorsThatSelectThisShard(t *testing.T) {
	shard := objecttest.In("root", &corev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: "here", Labels: map[string]string{"region": "eu"}}})
	other := objecttest.In("root", &corev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: "there", Labels: map[string]string{"region": "us"}}})
	o := objecttest.New(t, shard, other)
	for name, tc := range map[string]struct {
		shard, selector string
		want, fails     bool
	}{
		"everything":                     {"here", "", true, false},
		"its label":                      {"here", "region=eu", true, false},
		"that of another shard":          {"here", "region=us", false, false},
		"no selector":                    {"here", "((", false, true},
		"everything, before it is known": {"unknown", "", true, false},
		"something, before it is known":  {"unknown", "region=eu", false, true},
	} {
		r := &reconciler[*exportSlice]{Inputs: Inputs{Set: o.Set, ShardName: tc.shard}}
		if got, err := r.selected(tc.selector); got != tc.want || (err != nil) != tc.fails {
			t.Errorf("%s: got %t, %v", name, got, err)
		}
	}
}
