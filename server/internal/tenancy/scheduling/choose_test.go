package scheduling

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
)

// shard returns a Shard that holds used of capacity logical clusters. A capacity of zero means no limit.
func shard(name string, used, capacity int64, change ...func(*corev1alpha1.Shard)) *corev1alpha1.Shard {
	list := func(n int64) corev1.ResourceList {
		return corev1.ResourceList{corev1alpha1.ResourceLogicalClusters: *resource.NewQuantity(n, resource.DecimalSI)}
	}
	s := &corev1alpha1.Shard{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name, "region": "eu"}, Annotations: map[string]string{}},
		Status:     corev1alpha1.ShardStatus{Used: list(used)},
	}
	if capacity > 0 {
		s.Status.Capacity = list(capacity)
	}
	for _, c := range change {
		c(s)
	}
	return s
}

func cordoned(s *corev1alpha1.Shard) { s.Annotations[corev1alpha1.UnschedulableAnnotation] = "" }

func TestTheShardOfAWorkspace(t *testing.T) {
	everything, there := labels.Everything(), labels.SelectorFromSet(labels.Set{"name": "b"})
	answers := func(shard string) bool { return shard != "dead" }
	for name, test := range map[string]struct {
		choice
		shards []*corev1alpha1.Shard
		random []int
		want   string
	}{
		"the shard of the parent": {
			choice{selector: everything}, []*corev1alpha1.Shard{shard("a", 9, 0), shard("here", 10, 0)}, nil, "here",
		},
		"the only shard that the selector matches": {
			choice{selector: there}, []*corev1alpha1.Shard{shard("here", 1, 0), shard("b", 9, 0)}, []int{0}, "b",
		},
		"another shard if that of the parent is full": {
			choice{selector: everything}, []*corev1alpha1.Shard{shard("here", 10, 10), shard("b", 9, 0)}, []int{0}, "b",
		},
		"another shard if that of the parent is unschedulable": {
			choice{selector: everything}, []*corev1alpha1.Shard{shard("here", 1, 0, cordoned), shard("b", 9, 0)}, []int{0}, "b",
		},
		"another shard than the silent one": {
			choice{selector: everything, organization: true}, []*corev1alpha1.Shard{shard("dead", 1, 0), shard("here", 9, 0)}, []int{0}, "here",
		},
		"for an organization, the less loaded of two shards: the second": {
			choice{selector: everything, organization: true}, []*corev1alpha1.Shard{shard("a", 3, 10), shard("here", 9, 90), shard("c", 0, 10)},
			[]int{0, 1}, "here",
		},
		"for an organization, the less loaded of two shards: the first": {
			choice{selector: everything, organization: true}, []*corev1alpha1.Shard{shard("a", 3, 10), shard("here", 9, 90), shard("c", 0, 10)},
			[]int{1, 0}, "c",
		},
		"without limits, the shard with less logical clusters": {
			choice{selector: everything, organization: true}, []*corev1alpha1.Shard{shard("a", 7, 0), shard("b", 5, 0)}, []int{0, 0}, "b",
		},
		"spread: a random one, also if the shard of the parent accepts it": {
			choice{selector: everything, placement: Spread}, []*corev1alpha1.Shard{shard("c", 1, 0), shard("here", 1, 0), shard("b", 1, 0)},
			[]int{1}, "c",
		},
		"spread: only shards that accept it": {
			choice{selector: everything, placement: Spread}, []*corev1alpha1.Shard{shard("dead", 1, 0), shard("here", 1, 0)}, []int{0}, "here",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, given := test.choice, test.random
			c.own, c.answers = "here", answers
			c.random = func(n int) int {
				if len(given) == 0 || given[0] >= n {
					t.Fatalf("a random number below %d was not expected", n)
				}
				next := given[0]
				given = given[1:]
				return next
			}
			got, err := c.choose(test.shards)
			if err != nil || got != test.want {
				t.Errorf("got %q, %v, want %q", got, err, test.want)
			}
		})
	}
}

func TestReasonsOfAnUnschedulableWorkspace(t *testing.T) {
	c := choice{
		selector: labels.SelectorFromSet(labels.Set{"region": "eu"}), own: "here", answers: func(string) bool { return false },
		random: func(int) int { t.Fatal("it was chosen"); return 0 },
	}
	elsewhere := func(s *corev1alpha1.Shard) { s.Labels["region"] = "us" }
	for want, shards := range map[string][]*corev1alpha1.Shard{
		"there are no shards": nil,
		`none of 6 shards accepts the workspace: 1 full (status.used reaches status.capacity), 1 marked by the annotation ` +
			`experimental.core.kcp.io/unschedulable, 2 not matched by the selector "region=eu" in spec.location, 2 not responding`: {
			shard("here", 5, 5), shard("a", 1, 0, cordoned), shard("b", 1, 0, elsewhere), shard("c", 1, 0, elsewhere), shard("d", 1, 0), shard("e", 1, 0),
		},
	} {
		var unschedulable UnschedulableError
		if _, err := c.choose(shards); !errors.As(err, &unschedulable) || unschedulable.Reason != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}
