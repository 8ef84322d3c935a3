package etcdbackup

import (
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
)

// etcd is an EtcdCluster named x that can be used, or not.
func etcd(available bool) *v1alpha1.EtcdCluster {
	c := &v1alpha1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Name: "x"}}
	if available {
		meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionTrue, Reason: "Quorum"})
	}
	c.Status.CurrentVersion = "3.7.3"
	c.Status.Members = []v1alpha1.EtcdMemberStatus{
		{Name: "x-0", Ready: true, IsLeader: true}, {Name: "x-1", Ready: false}, {Name: "x-2", Ready: true}, {Name: "x-3", Ready: true, IsLearner: true},
	}
	return c
}

var onVolume = v1alpha1.EtcdStoreSpec{Volume: &v1alpha1.EtcdVolumeStore{ClaimName: "snapshots"}}

func backup() *v1alpha1.EtcdBackup {
	return &v1alpha1.EtcdBackup{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: v1alpha1.EtcdBackupSpec{Cluster: "x", Store: onVolume, KeepLast: new(int32(3))}}
}

// with returns a cluster with objects, and the volume for snapshots.
func with(objects ...client.Object) *operatortest.Cluster {
	return operatortest.New(append(objects, volume())...)
}

func volume() *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: "snapshots"}}
}

var now = time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)

func reconciler(c *operatortest.Cluster) *Reconciler {
	return &Reconciler{Client: c, Live: c, Recorder: c.Events, Now: func() time.Time { return now }, Repository: "registry.example.com/etcd", Version: "3.7.3"}
}

func take(t *testing.T, c *operatortest.Cluster) *v1alpha1.EtcdBackup {
	t.Helper()
	c.Reconcile(t, reconciler(c), "b")
	return operatortest.Read(t, c, "b", &v1alpha1.EtcdBackup{})
}

// end makes the Job's end known, and what its pod had to tell.
func end(t *testing.T, c *operatortest.Cluster, how batchv1.JobConditionType, exit int32, message string) {
	t.Helper()
	job := operatortest.Read(t, c, "b-snapshot", &batchv1.Job{})
	job.Status.Conditions = []batchv1.JobCondition{{Type: how, Status: corev1.ConditionTrue}}
	c.MustUpdateStatus(t, job)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: "b-snapshot-1", Labels: map[string]string{batchv1.JobNameLabel: job.Name}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: exit, Message: message}}}}}}
	c.MustCreate(t, pod)
}

func says(t *testing.T, conditions []metav1.Condition, name, status, message string) {
	t.Helper()
	if c := meta.FindStatusCondition(conditions, name); c == nil || string(c.Status) != status || !strings.Contains(c.Message, message) {
		t.Errorf("%s is %+v, want %s with %q", name, c, status, message)
	}
}

func TestASnapshotIsTakenOnceOfAMemberThatFollows(t *testing.T) {
	c := with(etcd(true), backup())
	says(t, take(t, c).Status.Conditions, v1alpha1.ConditionReconciling, "True", "member x-2")
	container := operatortest.Read(t, c, "b-snapshot", &batchv1.Job{}).Spec.Template.Spec.Containers[0]
	if container.Image != "registry.example.com/etcd:v3.7.3" {
		t.Errorf("it runs %s", container.Image)
	}
	for _, arg := range []string{"--endpoint=https://x-2.x-peers.team.svc.cluster.local:2379", "--directory=/store", "--keep=3", "--cluster=team/x"} {
		if !slices.Contains(container.Args, arg) {
			t.Errorf("%s is not among %v", arg, container.Args)
		}
	}
	says(t, take(t, c).Status.Conditions, v1alpha1.ConditionReady, "False", "takes a snapshot")
	end(t, c, batchv1.JobComplete, 0, `{"key":"x/1.db","revision":42,"size":4096}`)
	done := take(t, c)
	says(t, done.Status.Conditions, v1alpha1.ConditionReady, "True", "")
	if s := done.Status.Snapshot; s == nil || s.Key != "x/1.db" || s.Revision != 42 || done.Status.Phase != v1alpha1.PhaseReady || done.Status.CompletedAt == nil {
		t.Errorf("status: %+v", done.Status)
	}
	says(t, done.Status.Conditions, v1alpha1.ConditionSecretsIncluded, "False", "service account keys")
	c.WritesNothing(t, func() { take(t, c) })
}

func TestASnapshotTellsWhoseDataItHas(t *testing.T) {
	rs := &v1alpha1.RootShard{ObjectMeta: metav1.ObjectMeta{Name: "kcp"}}
	rs.Spec.Etcd.Prefix, rs.Status.Version = "/kcp", "1.2.3"
	cluster := etcd(true)
	cluster.OwnerReferences = []metav1.OwnerReference{{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "RootShard", Name: "kcp",
		UID: "uid-kcp", Controller: new(true)}}
	c := with(cluster, backup(), rs)
	take(t, c)
	end(t, c, batchv1.JobComplete, 0, `{"key":"team/x/1.db","revision":42,"size":4096}`)
	if s := take(t, c).Status.Snapshot; s == nil || s.KCPVersion != "1.2.3" || s.KeyPrefix != "/kcp" {
		t.Errorf("it is of %+v", s)
	}
}

func TestASnapshotThatFailsSaysWhyAndIsNotTakenAgain(t *testing.T) {
	c := with(etcd(true), backup())
	take(t, c)
	end(t, c, batchv1.JobFailed, 1, "storing x/1.db: no space left on device")
	failed := take(t, c)
	says(t, failed.Status.Conditions, v1alpha1.ConditionStalled, "True", "no space left on device")
	if failed.Status.Phase != v1alpha1.PhaseFailed || failed.Status.CompletedAt == nil || failed.Status.Snapshot != nil {
		t.Errorf("status: %+v", failed.Status)
	}
}

func TestWhatKeepsASnapshotFromBeingTakenIsSaid(t *testing.T) {
	inBucket := backup()
	inBucket.Spec.Store = v1alpha1.EtcdStoreSpec{S3: &v1alpha1.EtcdS3Store{Endpoint: "https://s3", Bucket: "b",
		CredentialsSecretRef: v1alpha1.LocalReference{Name: "credentials"}}}
	c := operatortest.New(etcd(true), inBucket)
	says(t, take(t, c).Status.Conditions, v1alpha1.ConditionStalled, "True", "spec.store.s3.credentialsSecretRef: Secret credentials not found in this namespace")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: "credentials"},
		Data: map[string][]byte{"AWS_ACCESS_KEY_ID": []byte("me"), "SECRET": []byte("word")}}
	if err := c.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	says(t, take(t, c).Status.Conditions, v1alpha1.ConditionStalled, "True", "Secret credentials has no key AWS_SECRET_ACCESS_KEY")
	secret.Data["AWS_SECRET_ACCESS_KEY"] = []byte("word")
	if err := c.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	says(t, take(t, c).Status.Conditions, v1alpha1.ConditionReconciling, "True", "takes a snapshot")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: "b-snapshot-1", Labels: map[string]string{batchv1.JobNameLabel: "b-snapshot"}},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "no node has room"}}}}
	if err := c.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	says(t, take(t, c).Status.Conditions, v1alpha1.ConditionReconciling, "True", "pod b-snapshot-1: no node has room")
	pod.Status = corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such image"}}}}}
	c.MustUpdateStatus(t, pod)
	says(t, take(t, c).Status.Conditions, v1alpha1.ConditionStalled, "True", "no such image: correct spec.image of EtcdCluster x, or set its imagePullSecrets, and delete Job b-snapshot")
}

func TestASnapshotThatMissesItsVolumeSaysSo(t *testing.T) {
	c := operatortest.New(etcd(true), backup())
	says(t, take(t, c).Status.Conditions, v1alpha1.ConditionStalled, "True",
		"spec.store.volume.claimName: PersistentVolumeClaim snapshots not found in this namespace: create it, or set another name")
	if c.Reconcile(t, reconciler(c), "b").RequeueAfter != whileWaiting {
		t.Error("the object is not requeued")
	}
	c.MustCreate(t, volume())
	says(t, take(t, c).Status.Conditions, v1alpha1.ConditionReconciling, "True", "takes a snapshot")
}

func TestASnapshotWaitsForItsCluster(t *testing.T) {
	says(t, take(t, with(backup())).Status.Conditions, v1alpha1.ConditionStalled, "True", "EtcdCluster x not found in this namespace")
	says(t, take(t, with(etcd(false), backup())).Status.Conditions, v1alpha1.ConditionReconciling, "True", "no member is ready for a snapshot")
}
