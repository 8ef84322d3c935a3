package e2e

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/etcdbackup"
	"github.com/kcplane/kcp/operator/internal/etcdcluster"
	"github.com/kcplane/kcp/operator/internal/operatortest"
)

// The objects of an etcd and its snapshots are valid, and defaults of the server cause no writes. There are no members: tests beside the
// code and on a host cluster cover these.
func TestObjectsOfAnEtcdAndItsSnapshotsAreValidAndNotWrittenAgain(t *testing.T) {
	i := &installation{Cluster: cluster(t, host), operator: cluster(t, asOperator())}
	etcd := etcdNamed("stored")
	beginEtcd(t, i, etcd)
	certificate, key, err := cert.GenerateSelfSignedCertKey("localhost", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"stored-server", "stored-peer", "stored-client", "stored-operator"} {
		change(t, i.Cluster, name, &corev1.Secret{}, func(s *corev1.Secret) {
			s.Data = map[string][]byte{"tls.crt": certificate, "tls.key": key, "ca.crt": certificate}
		})
	}
	now := time.Date(2031, 5, 6, 3, 0, 1, 0, time.UTC)
	clock := func() time.Time { return now }
	r := &etcdcluster.Reconciler{Client: i.operator, Live: i.operator, Recorder: i.operator.Events, Now: clock, Version: etcdcluster.DefaultVersion, Repository: etcdcluster.DefaultRepository}
	for range 3 {
		i.operator.Reconcile(t, r, etcd.Name)
	}
	set := operatortest.Read(t, i.Cluster, etcd.Name, &appsv1.StatefulSet{})
	i.operator.WritesNothing(t, func() { i.operator.Reconcile(t, r, etcd.Name) })
	if len(set.Spec.VolumeClaimTemplates) != 1 {
		t.Errorf("members have the volumes %+v", set.Spec.VolumeClaimTemplates)
	}

	operatortest.Read(t, i.Cluster, etcd.Name, etcd)
	meta.SetStatusCondition(&etcd.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionTrue, Reason: "Test"})
	etcd.Status.Members = []v1alpha1.EtcdMemberStatus{{Name: "stored-0", Ready: true}}
	etcd.Status.CurrentVersion = etcdcluster.DefaultVersion
	i.MustUpdateStatus(t, etcd)
	rs := shard("stored-for")
	encryption := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: "encryption"}, Data: map[string][]byte{"key": make([]byte, 32)}}
	volume := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: "snapshots"},
		Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}}
	i.MustCreate(t, rs, encryption, volume)
	etcd.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(rs, v1alpha1.SchemeGroupVersion.WithKind("RootShard"))}
	i.MustUpdate(t, etcd)
	schedule := &v1alpha1.EtcdBackupSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: "nightly"}}
	schedule.Spec = v1alpha1.EtcdBackupScheduleSpec{Cluster: etcd.Name, Schedule: "0 3 * * *",
		Store:          v1alpha1.EtcdStoreSpec{Volume: &v1alpha1.EtcdVolumeStore{ClaimName: "snapshots"}},
		IncludeSecrets: &v1alpha1.EtcdBackupSecretsSpec{EncryptionKeyRef: v1alpha1.LocalKeyReference{Name: "encryption", Key: "key"}}}
	i.MustCreate(t, schedule)
	schedules := &etcdbackup.ScheduleReconciler{Client: i.operator, Live: i.operator, Recorder: i.operator.Events, Now: clock}
	i.operator.Reconcile(t, schedules, schedule.Name)
	backups := &v1alpha1.EtcdBackupList{}
	if err := i.List(t.Context(), backups); err != nil || len(backups.Items) != 1 {
		t.Fatalf("there are the backups %+v (%v)", backups.Items, err)
	}
	backup := &backups.Items[0]
	b := &etcdbackup.Reconciler{Client: i.operator, Live: i.operator, Recorder: i.operator.Events, Now: clock, Repository: etcdcluster.DefaultRepository, Version: etcdcluster.DefaultVersion}
	i.operator.Reconcile(t, b, backup.Name)
	jobs := &batchv1.JobList{}
	if err := i.List(t.Context(), jobs); err != nil || len(jobs.Items) != 1 || !metav1.IsControlledBy(&jobs.Items[0], backup) {
		t.Errorf("there are the Jobs %+v (%v)", jobs.Items, err)
	}
	operatortest.Read(t, i.Cluster, backup.Name+"-secrets", &corev1.Secret{})
	i.operator.Reconcile(t, b, backup.Name)
	i.operator.WritesNothing(t, func() {
		i.operator.Reconcile(t, b, backup.Name)
		i.operator.Reconcile(t, schedules, schedule.Name)
	})
}
