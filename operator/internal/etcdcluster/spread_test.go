package etcdcluster

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
)

// unplaced says what the scheduler says of a pod that it finds no node for.
func (r *testCluster) setUnschedulable(member string) {
	r.t.Helper()
	pod := operatortest.Read(r.t, r.Cluster, member, &corev1.Pod{})
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
	r.MustUpdateStatus(r.t, pod)
}

func (r *testCluster) placeVolumes(node string, members ...string) {
	r.t.Helper()
	for _, member := range members {
		claim := operatortest.Read(r.t, r.Cluster, dataVolume+"-"+member, &corev1.PersistentVolumeClaim{})
		claim.Annotations = map[string]string{selectedNode: node}
		r.MustUpdate(r.t, claim)
	}
}

// spread returns how many pods require a node without another member, and how many may share a node.
func (r *testCluster) spread() (apart, together int) {
	r.t.Helper()
	pods := &corev1.PodList{}
	r.must(r.List(r.t.Context(), pods, client.MatchingLabels{"app.kubernetes.io/component": componentLabel}))
	for _, pod := range pods.Items {
		for _, c := range pod.Spec.TopologySpreadConstraints {
			switch {
			case c.TopologyKey != corev1.LabelHostname:
			case c.WhenUnsatisfiable == corev1.DoNotSchedule:
				apart++
			default:
				together++
			}
		}
	}
	return apart, together
}

func TestMembersShareANodeOnlyIfTheirVolumesRequireIt(t *testing.T) {
	r := newTestCluster(t, 3)
	r.ready(3)
	r.placeVolumes("one", "x-0", "x-1")
	r.placeVolumes("two", "x-2")
	r.staysUnchanged(2)
	if apart, together := r.spread(); apart != 3 || together != 0 {
		t.Errorf("%d pods keep apart, and %d do not", apart, together)
	}
	before := r.cluster().Status.ClusterID
	r.setUnschedulable("x-1")
	w := r.write()
	r.until("pods that share a node", func(c *v1alpha1.EtcdCluster) bool {
		_, together := r.spread()
		return together == 3 && is(v1alpha1.ConditionReady)(c)
	})
	r.staysUnchanged(3)
	if after := r.cluster().Status.ClusterID; after != before {
		t.Errorf("the cluster was %s and is %s", before, after)
	}
	w.verify(r)
}

func TestSharingIsAllowedOnlyForVolumesOnOneNode(t *testing.T) {
	setUnschedulable := &corev1.Pod{}
	setUnschedulable.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
	for _, test := range []struct {
		nodes []string
		want  bool
	}{{[]string{"one", "two", "three"}, false}, {[]string{"", "", ""}, false}, {[]string{"one", "two", "one"}, true}} {
		observed := &clusterSnapshot{live: map[int]*corev1.Pod{2: setUnschedulable}}
		for _, node := range test.nodes {
			observed.claims = append(observed.claims, corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{selectedNode: node}}})
		}
		if got := observed.sharing(); got != test.want {
			t.Errorf("with volumes on %q: %v", test.nodes, got)
		}
	}
}
