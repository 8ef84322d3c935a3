package fleet

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// standIn does what the controllers of a cluster do: it makes Deployments ready, and completes the deletion of namespaces.
type standIn struct {
	kube kubernetes.Interface
	// held stops Deployments from becoming ready.
	held atomic.Bool
}

func runStandIn(t *testing.T, kube kubernetes.Interface) *standIn {
	s := &standIn{kube: kube}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			s.step(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return s
}

// step ignores errors: the next step tries again.
func (s *standIn) step(ctx context.Context) {
	if deployments, err := s.kube.AppsV1().Deployments("").List(ctx, metav1.ListOptions{}); err == nil && !s.held.Load() {
		for i := range deployments.Items {
			d := &deployments.Items[i]
			n := *d.Spec.Replicas
			if d.Status.ObservedGeneration == d.Generation && d.Status.AvailableReplicas == n {
				continue
			}
			d.Status = appsv1.DeploymentStatus{
				ObservedGeneration: d.Generation,
				Replicas:           n,
				UpdatedReplicas:    n,
				ReadyReplicas:      n,
				AvailableReplicas:  n,
				Conditions: []appsv1.DeploymentCondition{
					{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue, Reason: "MinimumReplicasAvailable"},
				},
			}
			_, _ = s.kube.AppsV1().Deployments(d.Namespace).UpdateStatus(ctx, d, metav1.UpdateOptions{})
		}
	}
	namespaces, err := s.kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	for i := range namespaces.Items {
		n := &namespaces.Items[i]
		if n.DeletionTimestamp == nil {
			continue
		}
		_ = s.kube.AppsV1().Deployments(n.Name).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		n.Spec.Finalizers = nil
		_, _ = s.kube.CoreV1().Namespaces().Finalize(ctx, n, metav1.UpdateOptions{})
	}
}
