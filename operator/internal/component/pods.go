package component

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/operator/internal/apply"
	"github.com/kcplane/kcp/operator/internal/conditions"
	"github.com/kcplane/kcp/operator/internal/workload"
)

// MaintainPods adds owner references to pods, which keep them when their StatefulSet is deleted, and force-deletes pods of lost nodes,
// because a StatefulSet does not replace a pod that still exists. Such a pod may still run. This is safe: kcp keeps no state in its pods,
// writes only to their temporary volumes, and holds leases under names that no other process has.
func (s *Scope) MaintainPods(ctx context.Context) error {
	pods, err := s.podsOf(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for i := range pods {
		pod := &pods[i]
		if !pod.DeletionTimestamp.IsZero() {
			errs = append(errs, s.deleteLost(ctx, pod))
			continue
		}
		errs = append(errs, apply.Share(ctx, s.Client, s.Owner, pod))
	}
	return errors.Join(errs...)
}

// deleteLost force-deletes a pod whose grace period ended more than workload.LostAfter ago, or sets when to check again.
func (s *Scope) deleteLost(ctx context.Context, pod *corev1.Pod) error {
	if left := time.Until(pod.DeletionTimestamp.Add(workload.LostAfter)); left > 0 {
		s.After = conditions.Earliest(s.After, left)
		return nil
	}
	if grace := pod.DeletionGracePeriodSeconds; grace != nil && *grace == 0 {
		return nil // already force-deleted: finalizers of others keep it
	}
	// The resource version keeps an old copy from repeating the deletion and its event.
	err := s.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // the watch delivers the current state
	}
	if err != nil {
		return err
	}
	s.Recorder.Eventf(s.Owner, pod, corev1.EventTypeWarning, "NodeLost", "Delete",
		"pod %s should have terminated by %s, and node %s has not confirmed it: force deleting "+
			"the pod so that it is replaced", pod.Name, pod.DeletionTimestamp.UTC().Format(time.RFC3339), pod.Spec.NodeName)
	return nil
}

// Stopped reports whether the component has no pod, and starts none. It does not trust the cache.
func (s *Scope) Stopped(ctx context.Context) (bool, error) {
	set, pods := &appsv1.StatefulSet{}, &corev1.PodList{}
	err := s.Live.Get(ctx, client.ObjectKey{Namespace: s.Owner.GetNamespace(), Name: s.Workload}, set)
	if client.IgnoreNotFound(err) != nil {
		return false, err
	}
	if err == nil && metav1.IsControlledBy(set, s.Owner) && (workload.Wanted(set) > 0 || !workload.RolledOut(set)) {
		return false, nil
	}
	err = s.Live.List(ctx, pods, client.InNamespace(s.Owner.GetNamespace()), client.MatchingLabels(s.Selector))
	return len(pods.Items) == 0, err
}

// Stop ends all pods of the component. The owner keeps its pods, so deleting their StatefulSet would not end them.
func (s *Scope) Stop(ctx context.Context) error {
	live := &appsv1.StatefulSet{}
	err := s.Live.Get(ctx, client.ObjectKey{Namespace: s.Owner.GetNamespace(), Name: s.Workload}, live)
	if err != nil || workload.Wanted(live) == 0 || !metav1.IsControlledBy(live, s.Owner) {
		return client.IgnoreNotFound(err)
	}
	scaled := live.DeepCopy()
	scaled.Spec.Replicas = new(int32(0))
	return s.Patch(ctx, scaled, client.MergeFrom(live), client.FieldOwner(apply.FieldOwner))
}

// podsOf returns the pods of the component, also while their StatefulSet does not exist.
func (s *Scope) podsOf(ctx context.Context) ([]corev1.Pod, error) {
	list := &corev1.PodList{}
	if err := s.List(ctx, list, client.InNamespace(s.Owner.GetNamespace()), client.MatchingLabels(s.Selector)); err != nil {
		return nil, err
	}
	var pods []corev1.Pod
	for _, pod := range list.Items {
		// A pod without a controller is from a deleted StatefulSet. The next one adopts it.
		if by := metav1.GetControllerOf(&pod); by == nil || by.Kind == "StatefulSet" && by.Name == s.Workload {
			pods = append(pods, pod)
		}
	}
	return pods, nil
}

// former returns why the StatefulSet is not created yet, or nil.
func (s *Scope) former(ctx context.Context) error {
	pods, err := s.podsOf(ctx)
	if err != nil {
		return err
	}
	pod, again := workload.Former(s.Owner, pods, time.Now())
	if pod == nil {
		return nil
	}
	return conditions.Unwatched(again, conditions.Wait("FormerPods",
		"waiting for pod %s to terminate, which belongs to a deleted StatefulSet", pod.Name))
}

// orphanedPods returns the number of replicas for a new StatefulSet to adopt all pods of a deleted one.
func (s *Scope) orphanedPods(ctx context.Context) (count int32) {
	pods, err := s.podsOf(ctx)
	if err != nil {
		return 0
	}
	for _, pod := range pods {
		number, err := strconv.ParseInt(strings.TrimPrefix(pod.Name, s.Workload+"-"), 10, 32)
		if err == nil && pod.DeletionTimestamp.IsZero() {
			count = max(count, int32(number)+1)
		}
	}
	return count
}
