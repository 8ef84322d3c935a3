package workload_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/workload"
)

func TestPodsOfADeletedStatefulSetThatGoAwayAreFormer(t *testing.T) {
	now := time.Now()
	owner := &v1alpha1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{UID: "current"}}
	set := metav1.OwnerReference{Kind: "StatefulSet", UID: "deleted", Controller: new(true)}
	for _, test := range []struct {
		name   string
		owners []metav1.OwnerReference
		ends   time.Duration // the end of the grace period, from now; zero: it is not deleted
		former bool
	}{
		{"it runs, and only the deleted StatefulSet owns it", []metav1.OwnerReference{set}, 0, true},
		{"it runs, and a former owner of the same name also owns it", []metav1.OwnerReference{set, {UID: "former"}}, 0, true},
		{"it runs, and the owner also owns it", []metav1.OwnerReference{set, {UID: "current"}}, 0, false},
		{"it runs without a controller", nil, 0, false},
		{"it terminates", []metav1.OwnerReference{set}, time.Minute, true},
		{"it terminates, and the owner also owns it", []metav1.OwnerReference{set, {UID: "current"}}, time.Second, true},
		{"it terminates without a controller", nil, time.Second, true},
		{"its grace period ended a moment ago", []metav1.OwnerReference{set}, -time.Second, true},
		{"its node is lost", []metav1.OwnerReference{set}, -workload.LostAfter - time.Second, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x-1", UID: types.UID("pod"), OwnerReferences: test.owners}}
			if test.ends != 0 {
				pod.DeletionTimestamp = new(metav1.NewTime(now.Add(test.ends)))
			}
			running := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x-0"}}
			former, again := workload.Former(owner, []corev1.Pod{running, pod}, now)
			if (former != nil) != test.former || (again > 0) != (test.former && test.ends != 0) || former != nil && former.Name != "x-1" {
				t.Errorf("got %v, again after %v", former, again)
			}
		})
	}
}
