package rootshard_test

import (
	"context"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kcplane/kcp/operator/internal/operatortest"
)

// The garbage collector deletes objects without an existing owner, so pods need another owner besides their StatefulSet.
func TestPodsRemainWhenTheirStatefulSetIsDeleted(t *testing.T) {
	w := newWorld(external())
	rs := w.settle(t)
	set := operatortest.Read(t, w.Cluster, "kcp-kcp", &appsv1.StatefulSet{})
	set.Spec.Replicas = new(int32(4)) // as an autoscaler does
	w.MustUpdate(t, set)
	w.Roll(t, "kcp-kcp")
	foreign := w.runs(t, set, "other-0", corev1.PodStatus{})
	foreign.OwnerReferences[0].Name = "other"
	w.MustUpdate(t, foreign)
	w.reconcile(t)
	for _, name := range []string{"kcp-kcp-0", "kcp-kcp-3"} {
		pod := operatortest.Read(t, w.Cluster, name, &corev1.Pod{})
		if by := metav1.GetControllerOf(pod); len(pod.OwnerReferences) != 2 || by == nil || by.UID != set.UID || pod.OwnerReferences[1].UID != rs.UID ||
			pod.OwnerReferences[1].BlockOwnerDeletion != nil {
			t.Errorf("%s belongs to %+v", name, pod.OwnerReferences)
		}
	}
	if foreign = operatortest.Read(t, w.Cluster, "other-0", foreign); len(foreign.OwnerReferences) != 1 {
		t.Errorf("another's pod belongs to %+v", foreign.OwnerReferences)
	}
	w.WritesNothing(t, func() { w.reconcile(t) })
	terminating := operatortest.Read(t, w.Cluster, "kcp-kcp-1", &corev1.Pod{})
	terminating.Finalizers = []string{"example.com/terminates"} // the fake client deletes at once without it
	w.MustUpdate(t, terminating)
	for _, deleted := range []client.Object{terminating, set} {
		if err := w.Delete(t.Context(), deleted); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, w.reconcile(t), "Ready", metav1.ConditionFalse, "", "waiting for pod kcp-kcp-1 to terminate")
	if err := w.Get(t.Context(), operatortest.Key("kcp-kcp"), &appsv1.StatefulSet{}); !apierrors.IsNotFound(err) {
		t.Errorf("while a pod of the former StatefulSet terminates: %v", err)
	}
	terminating = operatortest.Read(t, w.Cluster, "kcp-kcp-1", &corev1.Pod{})
	terminating.Finalizers = nil
	w.MustUpdate(t, terminating)
	w.reconcile(t)
	made := operatortest.Read(t, w.Cluster, "kcp-kcp", &appsv1.StatefulSet{})
	if *made.Spec.Replicas != 4 {
		t.Errorf("the StatefulSet that takes its place has %d pods, of 4 that run", *made.Spec.Replicas)
	}
}

func TestPodsOfALostNodeAreForceDeleted(t *testing.T) {
	ended := metav1.NewTime(time.Now().Add(-70 * time.Second))
	pod := func(name string, ends metav1.Time) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, DeletionTimestamp: &ends, Finalizers: []string{"example.com/kept"}, // the fake requires one
			Labels: map[string]string{"app.kubernetes.io/managed-by": "kcp-operator", "app.kubernetes.io/name": "kcp", "app.kubernetes.io/instance": "kcp",
				"app.kubernetes.io/component": "rootshard"}}}
	}
	w := newWorld(external(), pod("kcp-kcp-0", ended), pod("kcp-kcp-1", metav1.NewTime(time.Now().Add(-30*time.Second))))
	var forced []string
	w.reconciler.Client = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
		Delete: func(_ context.Context, _ client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			options := (&client.DeleteOptions{}).ApplyOptions(opts)
			if options.GracePeriodSeconds != nil && *options.GracePeriodSeconds == 0 && *options.Preconditions.UID == o.GetUID() {
				forced = append(forced, o.GetName())
			}
			return nil
		}})
	after := w.Reconcile(t, w.reconciler, "kcp").RequeueAfter
	if strings.Join(forced, " ") != "kcp-kcp-0" {
		t.Errorf("by force, %v is deleted", forced)
	}
	if after < 10*time.Second || after > 31*time.Second {
		t.Errorf("it looks at the other one again after %v", after)
	}
	events := func() (lost int) {
		for len(w.Events.Events) > 0 {
			if strings.HasPrefix(<-w.Events.Events, "Warning NodeLost pod kcp-kcp-0 should have terminated by ") {
				lost++
			}
		}
		return lost
	}
	if n := events(); n != 1 {
		t.Errorf("%d events say so", n)
	}
	kept := operatortest.Read(t, w.Cluster, "kcp-kcp-0", &corev1.Pod{}) // by a finalizer; an API server then shows a grace period of 0
	kept.DeletionGracePeriodSeconds = new(int64)
	w.MustUpdate(t, kept)
	forced = nil
	for range 2 {
		w.reconcile(t)
	}
	if n := events(); n != 0 || len(forced) != 0 {
		t.Errorf("a pod that a finalizer keeps is deleted again (%v), with %d more events", forced, n)
	}
}
