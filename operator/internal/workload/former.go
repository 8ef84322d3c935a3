package workload

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/operator/internal/apply"
)

// LostAfter is how long a pod may exist after the end of its grace period until its node counts as lost. A working kubelet kills the
// process at the end of the grace period, and deletes the pod.
const LostAfter = time.Minute

// Former returns a pod of a deleted StatefulSet that is going away, or nil, and after which time its node is lost. The owner must not
// create the StatefulSet again before: its controller cannot create a pod whose name is in use, is not woken when a pod of another
// StatefulSet is gone, and waits for up to 16 minutes between its attempts. Pods of lost nodes do not count. A running pod stays, for the
// next StatefulSet to adopt, if it has no controller, or if the owner also owns it, because the garbage collector then keeps it.
func Former(owner client.Object, pods []corev1.Pod, now time.Time) (*corev1.Pod, time.Duration) {
	for i := range pods {
		pod := &pods[i]
		if pod.DeletionTimestamp.IsZero() {
			if metav1.GetControllerOf(pod) != nil && !apply.Owns(owner, pod) {
				return pod, 0
			}
			continue
		}
		if left := pod.DeletionTimestamp.Add(LostAfter).Sub(now); left > 0 {
			return pod, left
		}
	}
	return nil, 0
}
