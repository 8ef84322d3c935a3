package etcdcluster

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
)

func TestVolumesAreDeletedOnlyAfterTheLastSnapshotIsStored(t *testing.T) {
	store := v1alpha1.EtcdStoreSpec{Volume: &v1alpha1.EtcdVolumeStore{ClaimName: "snapshots"}}
	r := newTestClusterOf(t, v1alpha1.EtcdClusterSpec{Replicas: new(int32(1)), DeletionPolicy: v1alpha1.EtcdSnapshot, LastSnapshot: &store})
	r.ready(1)
	r.staysUnchanged(2)
	r.must(r.Delete(t.Context(), r.cluster()))
	backup := func() *v1alpha1.EtcdBackup {
		t.Helper()
		r.step()
		backups := &v1alpha1.EtcdBackupList{}
		r.must(r.List(t.Context(), backups))
		if len(backups.Items) != 1 || backups.Items[0].Spec.Cluster != "x" || len(backups.Items[0].OwnerReferences) > 0 {
			t.Fatalf("there are the snapshots %+v", backups.Items)
		}
		return &backups.Items[0]
	}
	complete := func(b *v1alpha1.EtcdBackup, taken *v1alpha1.EtcdSnapshotStatus) {
		t.Helper()
		b.Status.CompletedAt, b.Status.Snapshot = new(metav1.Now()), taken
		r.must(r.Status().Update(t.Context(), b))
	}
	failed := backup()
	if waiting := r.cluster(); !is(v1alpha1.ConditionAvailable)(waiting) || waiting.Status.Phase != v1alpha1.PhaseDeleting || !waiting.Status.Members[0].Ready {
		t.Errorf("the members are not ready for a snapshot: %+v", waiting.Status)
	}
	complete(failed, nil)
	r.step()
	if c := apimeta.FindStatusCondition(r.cluster().Status.Conditions, v1alpha1.ConditionStalled); c.Status != metav1.ConditionTrue ||
		!strings.Contains(c.Message, "Delete it to try again") {
		t.Errorf("after a failure: %+v", c)
	}
	operatortest.Read(t, r.Cluster, "data-x-0", &corev1.PersistentVolumeClaim{})
	r.must(r.Delete(t.Context(), failed))

	complete(backup(), &v1alpha1.EtcdSnapshotStatus{Key: "k"})
	r.step()
	for _, gone := range []client.Object{&v1alpha1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Name: "x"}},
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data-x-0"}}} {
		if err := r.Get(t.Context(), operatortest.Key(gone.GetName()), gone); !apierrors.IsNotFound(err) {
			t.Errorf("%T is there: %v", gone, err)
		}
	}
}

func TestAClusterReportsWhyItsLastSnapshotCannotBeCreated(t *testing.T) {
	store := v1alpha1.EtcdStoreSpec{Volume: &v1alpha1.EtcdVolumeStore{ClaimName: "snapshots"}}
	r := newTestClusterOf(t, v1alpha1.EtcdClusterSpec{Replicas: new(int32(1)), DeletionPolicy: v1alpha1.EtcdSnapshot, LastSnapshot: &store})
	r.ready(1)
	could := r.Cluster.Client
	r.Cluster.Client = interceptor.NewClient(could.(client.WithWatch), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if _, ok := object.(*v1alpha1.EtcdBackup); ok {
				return apierrors.NewForbidden(v1alpha1.Resource("etcdbackups"), object.GetName(), errors.New("exceeded quota: backups"))
			}
			return c.Create(ctx, object, options...)
		},
	})
	r.must(r.Delete(t.Context(), r.cluster()))
	r.step()
	if c := apimeta.FindStatusCondition(r.cluster().Status.Conditions, v1alpha1.ConditionReady); c.Status != metav1.ConditionFalse ||
		!strings.Contains(c.Message, "exceeded quota: backups") {
		t.Errorf("it says %+v", c)
	}
	r.Cluster.Client = could
	r.step()
	backups := &v1alpha1.EtcdBackupList{}
	if r.must(r.List(t.Context(), backups)); len(backups.Items) != 1 {
		t.Errorf("there are %d snapshots when one can be requested", len(backups.Items))
	}
}

func TestADeletedClusterIsReleasedWhenItsPolicyChangesToRetain(t *testing.T) {
	store := v1alpha1.EtcdStoreSpec{Volume: &v1alpha1.EtcdVolumeStore{ClaimName: "snapshots"}}
	r := newTestClusterOf(t, v1alpha1.EtcdClusterSpec{Replicas: new(int32(1)), DeletionPolicy: v1alpha1.EtcdSnapshot, LastSnapshot: &store})
	r.ready(1)
	r.must(r.Delete(t.Context(), r.cluster()))
	r.step()
	r.updateSpec(func(spec *v1alpha1.EtcdClusterSpec) { spec.DeletionPolicy = v1alpha1.EtcdRetain })
	r.step()
	if err := r.Get(t.Context(), operatortest.Key("x"), &v1alpha1.EtcdCluster{}); !apierrors.IsNotFound(err) {
		t.Errorf("it is there: %v", err)
	}
	operatortest.Read(t, r.Cluster, "data-x-0", &corev1.PersistentVolumeClaim{})
}
