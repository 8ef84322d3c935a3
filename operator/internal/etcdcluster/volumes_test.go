package etcdcluster

import (
	"context"
	"errors"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
)

func TestVolumesThatCannotExpandAreReportedAndTheClusterContinues(t *testing.T) {
	r := newTestCluster(t, 1)
	r.ready(1)
	could := r.Cluster.Client
	r.Cluster.Client = interceptor.NewClient(could.(client.WithWatch), interceptor.Funcs{
		Patch: func(ctx context.Context, w client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if _, ok := o.(*corev1.PersistentVolumeClaim); ok { // what an API server says when the class does not allow it
				return apierrors.NewForbidden(corev1.Resource("persistentvolumeclaims"), o.GetName(), errors.New("the storageclass must support resize"))
			}
			return w.Patch(ctx, o, patch, opts...)
		},
	})
	r.expandVolumes("20Gi")
	after := r.until("the condition Stalled", is(v1alpha1.ConditionStalled))
	c := apimeta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionStalled)
	if c.Reason != "VolumeExpansionUnsupported" || !strings.Contains(c.Message, "spec.storage.size: PersistentVolumeClaim data-x-0 cannot be expanded") ||
		!strings.Contains(c.Message, "allowVolumeExpansion") {
		t.Errorf("it is said that %s: %s", c.Reason, c.Message)
	}
	if !is(v1alpha1.ConditionAvailable)(after) {
		t.Error("it cannot be used any more")
	}
	if again := r.step().RequeueAfter; again < whenSettled {
		t.Errorf("it is tried again after %v", again)
	}
	r.Cluster.Client = could // as soon as the class allows it
	r.ready(1)
}

// An operator that ends between two steps has written down what it was about to do; the volumes and the StatefulSet tell the rest.
func TestAnInterruptedExpansionContinues(t *testing.T) {
	r := newTestCluster(t, 1)
	r.ready(1)
	could := r.Cluster.Client
	interrupted := 0
	r.Cluster.Client = interceptor.NewClient(could.(client.WithWatch), interceptor.Funcs{
		Delete: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if _, ok := o.(*appsv1.StatefulSet); ok && interrupted < 2 { // before it is deleted, then after
				interrupted++
				if under := r.cluster().Status.Operation; under == nil || under.Type != v1alpha1.EtcdGrowVolume || under.Member != "" {
					t.Errorf("what is done is not written down, but %+v", under)
				}
				if interrupted == 2 {
					_ = w.Delete(ctx, o, opts...)
				}
				return errors.New("the operator ends")
			}
			return w.Delete(ctx, o, opts...)
		},
	})
	pod := operatortest.Read(t, r.Cluster, "x-0", &corev1.Pod{}).UID
	r.expandVolumes("20Gi")
	for interrupted < 2 {
		r.advanceHost("x")
		_, _ = r.reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: operatortest.Key("x")})
	}
	r.until("larger volumes", func(c *v1alpha1.EtcdCluster) bool {
		set := &appsv1.StatefulSet{}
		err := r.Get(t.Context(), operatortest.Key("x"), set)
		return err == nil && set.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests.Storage().String() == "20Gi" && is(v1alpha1.ConditionReady)(c) && c.Status.Operation == nil
	})
	if operatortest.Read(t, r.Cluster, "x-0", &corev1.Pod{}).UID != pod {
		t.Error("the pod was replaced")
	}
}
