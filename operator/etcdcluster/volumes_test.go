package etcdcluster

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
)

func TestVolumesThatCannotGrowAreSaidAndTheClusterGoesOn(t *testing.T) {
	r := newRig(t, 1)
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
	r.grow("20Gi")
	after := r.until("that somebody is told", is(v1alpha1.ConditionStalled))
	c := apimeta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionStalled)
	if c.Reason != "VolumesDoNotGrow" || !strings.Contains(c.Message, "spec.storage.size: PersistentVolumeClaim data-x-0 cannot grow") ||
		!strings.Contains(c.Message, "allowVolumeExpansion") {
		t.Errorf("it is said that %s: %s", c.Reason, c.Message)
	}
	if !is(v1alpha1.ConditionAvailable)(after) {
		t.Error("it cannot be used any more")
	}
	r.Cluster.Client = could // as soon as the class allows it
	r.ready(1)
}
