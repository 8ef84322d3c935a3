package etcdcluster

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
)

func TestEveryMemberIsDefragmentedOnSchedule(t *testing.T) {
	three := time.Date(2031, 5, 6, 3, 0, 0, 0, time.UTC)
	clock := three.Add(-time.Minute)
	c := &v1alpha1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Name: "x", CreationTimestamp: metav1.NewTime(clock.Add(-time.Hour))},
		Spec: v1alpha1.EtcdClusterSpec{Defrag: &v1alpha1.EtcdDefragSpec{Schedule: "0 3 * * *", ThresholdRatio: "0"}}}
	s := &scope{cluster: c, Reconciler: &Reconciler{Now: func() time.Time { return clock }}}
	o := cluster(3)
	for i := range o.members {
		o.members[i].size, o.members[i].inUse = 1<<30, 1<<28
	}
	// next decides as a reconciliation does, and lets it be done.
	next := func() decision {
		observed := &clusterSnapshot{observation: o}
		s.schedule(observed)
		d := decide(observed.observation)
		s.reportOperation(d)
		for i := range o.members {
			if m := &o.members[i]; d.step == stepDefragment && m.id == d.id {
				m.size = m.inUse + 1<<20 // a little is left
			} else if d.step == stepMoveLeader {
				m.leader = m.id == d.to
			}
		}
		return d
	}
	if d := next(); d.step != stepNothing {
		t.Errorf("before it is time: %+v", d)
	}
	clock = three
	defragmented := map[int]bool{}
	for range 4 {
		if d := next(); d.step == stepDefragment {
			defragmented[d.ordinal] = true
		}
		clock = clock.Add(time.Minute)
	}
	if len(defragmented) != 3 {
		t.Errorf("only %v are defragmented", defragmented)
	}
	if d := next(); d.step != stepNothing || c.Status.Operation != nil {
		t.Errorf("when all is done: %+v, %+v", d, c.Status.Operation)
	}
	o.members[0].size = 1 << 30
	if d := next(); d.step != stepNothing {
		t.Errorf("before the next time: %+v", d)
	}
}

func TestTheReasonWhyAMemberDoesNotRunIsReported(t *testing.T) {
	now := time.Now()
	live := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x-1", CreationTimestamp: metav1.NewTime(now)}, Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
		Name: containerName, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such image"}}}}}}
	observed := &clusterSnapshot{observation: cluster(3), live: map[int]*corev1.Pod{0: {}, 1: live}}
	if got := observed.trouble(now); !strings.Contains(got.String(), "pod x-1: ErrImagePull: no such image: correct spec.image") || got.Stalled() {
		t.Errorf("it is said that %+v", got)
	}
	if got := observed.trouble(now.Add(5 * time.Minute)); !got.Stalled() {
		t.Errorf("after five minutes no action is required: %+v", got)
	}
}
