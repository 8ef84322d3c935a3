package etcdcluster

import (
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
	"github.com/kcplane/kcp/operator/internal/retention"
)

// What the status of an EtcdBackup tells is copied into specs of clusters of other names, in other namespaces.
func TestTheKeyOfASnapshotIsUsedUnchanged(t *testing.T) {
	store := v1alpha1.EtcdStoreSpec{S3: &v1alpha1.EtcdS3Store{Endpoint: "https://s3", Bucket: "b", Prefix: "west"}}
	for _, key := range []string{retention.Key("team/x", time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC), 42), "x/20310506T070809Z-42.db"} {
		cluster := &v1alpha1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "y"},
			Spec: v1alpha1.EtcdClusterSpec{Restore: &v1alpha1.EtcdRestoreSpec{Key: key, Store: &store}}}
		args := restoreJob(cluster, "etcd", "https://y-0", "token").Spec.Template.Spec.Containers[0].Args
		for _, arg := range []string{"--key=" + key, "--s3-prefix=west"} {
			if !slices.Contains(args, arg) {
				t.Errorf("%s is not among %v", arg, args)
			}
		}
	}
}

// The image of a Job stays what it was when the Job was created: waiting does not help.
func TestAJobWithAWrongImageIsStalled(t *testing.T) {
	cluster := threeMembers("first")
	cluster.Spec.Restore = &v1alpha1.EtcdRestoreSpec{Key: "k", Store: &v1alpha1.EtcdStoreSpec{Volume: &v1alpha1.EtcdVolumeStore{ClaimName: "snapshots"}}}
	m := newThreeMembers(cluster, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "snapshots"}})
	m.Reconcile(t, m.reconciler, "x")
	m.Certify(t)
	for range 3 {
		m.Reconcile(t, m.reconciler, "x")
	}
	job := operatortest.Read(t, m.Cluster, "x-restore", &batchv1.Job{})
	m.MustCreate(t, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: "x-restore-abcde", CreationTimestamp: metav1.NewTime(m.now),
			Labels: map[string]string{batchv1.JobNameLabel: job.Name}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "snapshot",
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "not found"}}}}},
	})
	stalled := func(after time.Duration) *metav1.Condition {
		t.Helper()
		m.now = m.now.Add(after)
		m.Reconcile(t, m.reconciler, "x")
		c := apimeta.FindStatusCondition(operatortest.Read(t, m.Cluster, "x", &v1alpha1.EtcdCluster{}).Status.Conditions, v1alpha1.ConditionStalled)
		if c == nil {
			t.Fatal("there is no condition Stalled")
		}
		return c
	}
	if c := stalled(time.Minute); c.Status != metav1.ConditionFalse {
		t.Errorf("after a minute: %+v", c)
	}
	c := stalled(3 * time.Minute)
	if c.Status != metav1.ConditionTrue || !strings.Contains(c.Message, "ImagePullBackOff") || !strings.Contains(c.Message, "delete Job x-restore") {
		t.Errorf("after minutes: %+v", c)
	}
	how, _, err := (&scope{Reconciler: m.reconciler, cluster: cluster}).observeJob(t.Context(), job.Name) // as the copy of a survivor's data is looked at
	if d, _ := recoverFromSurvivor(observation{initialized: true, recovery: recoveryState(how)}); err != nil || d.step != stepActionRequired {
		t.Errorf("a Job for a survivor: %+v, %v", d, err)
	}
}

func TestAMemberThatCrashedOnceIsNotCrashing(t *testing.T) {
	now := time.Now()
	p := &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: containerName, RestartCount: 4,
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			StartedAt: metav1.NewTime(now.Add(-24 * time.Hour)), FinishedAt: metav1.NewTime(now)}}}}}}
	if crashing, _ := podState(p, now); crashing {
		t.Error("a member that ran for a day, and has ended once since, counts as broken")
	}
	p.Status.ContainerStatuses[0].LastTerminationState.Terminated.StartedAt = metav1.NewTime(now.Add(-time.Second))
	if crashing, _ := podState(p, now); !crashing {
		t.Error("a member that ends again and again does not count as broken")
	}
}
