package installation

import (
	"errors"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/conditions"
)

// etcdWith returns an etcd of version 3.7.0 with a condition Ready.
func etcdWith(status metav1.ConditionStatus, more ...metav1.Condition) etcd {
	cluster := &v1alpha1.EtcdCluster{}
	cluster.Generation = 2
	cluster.Status.CurrentVersion = "3.7.0"
	cluster.Status.Conditions = append(more,
		metav1.Condition{Type: v1alpha1.ConditionReady, Status: status, ObservedGeneration: 2, Message: "a member is down"})
	return etcd{name: "kcp-etcd", cluster: cluster}
}

func reasonOf(err error) string {
	if blocked := (*conditions.Blocked)(nil); errors.As(err, &blocked) {
		return blocked.Reason + ": " + blocked.Message
	}
	return ""
}

func TestAnUpgradeWaitsForEtcd(t *testing.T) {
	const wait = "WaitingForEtcd: keeping the former image until EtcdCluster kcp-etcd is ready: "
	unseen := etcdWith(metav1.ConditionTrue)
	unseen.cluster.Generation = 3
	versioned := func(version string) etcd {
		e := etcdWith(metav1.ConditionTrue)
		e.version = version
		return e
	}
	for name, test := range map[string]struct {
		etcd etcd
		want string
	}{
		"a healthy one":                               {etcdWith(metav1.ConditionTrue), ""},
		"a healthy one with its version":              {versioned("3.7.0"), ""},
		"one with another version, not yet requested": {versioned("3.8.0"), wait + "it runs the version 3.7.0, not 3.8.0"},
		"one whose spec has changed":                  {unseen, wait + "it has no current status yet"},
		"one that is not ready":                       {etcdWith(metav1.ConditionFalse), wait + "a member is down"},
		"one without a status":                        {etcd{name: "kcp-etcd", cluster: &v1alpha1.EtcdCluster{}}, wait + "it has no current status yet"},
	} {
		if got := reasonOf(test.etcd.upgraded()); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

func TestAnUpgradeWaitsForASnapshotIfTheyAreScheduled(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	schedule := func(age time.Duration, suspended bool) v1alpha1.EtcdBackupSchedule {
		s := v1alpha1.EtcdBackupSchedule{Spec: v1alpha1.EtcdBackupScheduleSpec{Suspend: suspended}}
		if age > 0 {
			s.Status.LastSuccess = new(metav1.NewTime(now.Add(-age)))
		}
		return s
	}
	failed := metav1.Condition{Type: v1alpha1.ConditionBackupHealthy, Status: metav1.ConditionFalse, Message: "nightly: the store is full",
		LastTransitionTime: metav1.NewTime(now.Add(-30 * time.Minute))}
	backup := func(phase v1alpha1.Phase, age time.Duration) []v1alpha1.EtcdBackup {
		return []v1alpha1.EtcdBackup{{Status: v1alpha1.EtcdBackupStatus{Phase: phase, CompletedAt: new(metav1.NewTime(now.Add(-age)))}}}
	}
	const wait = "BackupTooOld: keeping the former image until EtcdCluster kcp-etcd has a current snapshot: "
	const remedy = ": create an EtcdBackup, or suspend the EtcdBackupSchedule to upgrade without a snapshot"
	for name, test := range map[string]struct {
		maximum   time.Duration
		schedules []v1alpha1.EtcdBackupSchedule
		backups   []v1alpha1.EtcdBackup
		more      []metav1.Condition
		want      string
	}{
		"no schedule":                            {time.Hour, nil, nil, nil, ""},
		"a suspended schedule":                   {time.Hour, []v1alpha1.EtcdBackupSchedule{schedule(48*time.Hour, true)}, nil, nil, ""},
		"a current snapshot":                     {24 * time.Hour, []v1alpha1.EtcdBackupSchedule{schedule(23*time.Hour, false)}, nil, nil, ""},
		"a current snapshot of another schedule": {time.Hour, []v1alpha1.EtcdBackupSchedule{schedule(9*time.Hour, false), schedule(time.Minute, false)}, nil, nil, ""},
		"an old snapshot, and no maximum":        {0, []v1alpha1.EtcdBackupSchedule{schedule(999*time.Hour, false)}, nil, nil, ""},
		"an old snapshot": {24 * time.Hour, []v1alpha1.EtcdBackupSchedule{schedule(25*time.Hour, false)}, nil, nil,
			wait + "the last one is of 2026-04-30T11:00:00Z, and spec.upgrade.maxBackupAge is 24h0m0s" + remedy},
		"a current snapshot of a suspended schedule": {24 * time.Hour,
			[]v1alpha1.EtcdBackupSchedule{schedule(time.Hour, true), schedule(25*time.Hour, false)}, nil, nil, ""},
		"no snapshot yet":        {24 * time.Hour, []v1alpha1.EtcdBackupSchedule{schedule(0, false)}, nil, nil, wait + "there is none yet" + remedy},
		"a snapshot that failed": {0, []v1alpha1.EtcdBackupSchedule{schedule(time.Hour, false)}, nil, []metav1.Condition{failed}, wait + "nightly: the store is full" + remedy},
		"a snapshot of a user after one that failed": {0, []v1alpha1.EtcdBackupSchedule{schedule(time.Hour, false)}, backup(v1alpha1.PhaseReady, time.Minute),
			[]metav1.Condition{failed}, ""},
		"a snapshot of a user": {24 * time.Hour, []v1alpha1.EtcdBackupSchedule{schedule(25*time.Hour, false)}, backup(v1alpha1.PhaseReady, time.Hour),
			nil, ""},
		"a snapshot of a user that failed": {24 * time.Hour, []v1alpha1.EtcdBackupSchedule{schedule(0, false)}, backup(v1alpha1.PhaseFailed, time.Hour),
			nil, wait + "there is none yet" + remedy},
	} {
		e := etcdWith(metav1.ConditionTrue, test.more...)
		e.schedules, e.backups = test.schedules, test.backups
		if got := reasonOf(e.saved(test.maximum, now)); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

func TestShardsAreUpgradedInBatches(t *testing.T) {
	all := []part{{name: "a"}, {name: "b"}, {name: "c"}, {name: "d"}, {name: "e"}}
	for size, want := range map[int][]int{1: {0, 1, 2, 3, 4}, 2: {0, 0, 2, 2, 4}, 3: {0, 0, 0, 3, 3}, 9: {0, 0, 0, 0, 0}} {
		var got []int
		for _, p := range all {
			got = append(got, len(earlierBatches(all, p.name, size)))
		}
		if !slices.Equal(got, want) {
			t.Errorf("batches of %d: got %v, want %v", size, got, want)
		}
	}
	if got := earlierBatches(nil, "a", 2); len(got) != 0 {
		t.Errorf("the only shard waits for %v", got)
	}
}
