package installation_test

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/component"
	"github.com/kcplane/kcp/operator/internal/operatortest"
)

func TestShardsOfOneBatchAreUpgradedTogether(t *testing.T) {
	w := running(t)
	w.upgrade(t, func(rs *v1alpha1.RootShard) { rs.Spec.Upgrade = &v1alpha1.UpgradeSpec{ShardBatchSize: 2} })
	for _, name := range train[:2] {
		w.reconcileAll(t)
		w.start(t, name)
	}
	w.reconcileAll(t)
	if got := w.upgraded(t); !slices.Equal(got, train[:4]) {
		t.Errorf("with two shards in a batch, these have the new image: %v", got)
	}
}

// An upgrade begins with the etcds: with their own upgrade, and with a current snapshot if there is a schedule.
func TestAnUpgradeOfAnInstallationBeginsWhenItsEtcdsAreReady(t *testing.T) {
	w := running(t)
	west := operatortest.Read(t, w.Cluster, "west", &v1alpha1.Shard{})
	west.Spec.Etcd = v1alpha1.EtcdConfig{Managed: &v1alpha1.EtcdClusterSpec{Version: "3.7.1"}}
	w.MustUpdate(t, west)
	w.reconcile(t) // creates the EtcdCluster
	etcd := operatortest.Read(t, w.Cluster, component.ManagedEtcd("west"), &v1alpha1.EtcdCluster{})
	report := func(version string, backups metav1.ConditionStatus) {
		t.Helper()
		operatortest.Read(t, w.Cluster, etcd.Name, etcd)
		etcd.Status.CurrentVersion = version
		etcd.Status.Conditions = []metav1.Condition{
			{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Reconciled", ObservedGeneration: etcd.Generation},
			{Type: "BackupHealthy", Status: backups, Reason: "Failed", Message: "nightly: the store is full"},
		}
		w.MustUpdateStatus(t, etcd)
		w.reconcileAll(t)
	}
	waits := func(reason, message string) {
		t.Helper()
		if got := w.upgraded(t); len(got) > 0 {
			t.Errorf("these have the new image: %v", got)
		}
		w.expect(t, cache("cache"), "Ready", metav1.ConditionFalse, reason, message)
		w.expect(t, root("kcp"), "Ready", metav1.ConditionFalse, reason, message)
		w.expect(t, root("kcp"), "Available", metav1.ConditionTrue, "", "")
	}
	w.upgrade(t, nil)
	report("3.7.0", metav1.ConditionTrue)
	waits("WaitingForEtcd", "EtcdCluster west-etcd is ready: it runs the version 3.7.0, not 3.7.1")
	nightly := &v1alpha1.EtcdBackupSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: "nightly"}}
	nightly.Spec.Cluster = etcd.Name
	w.MustCreate(t, nightly)
	report("3.7.1", metav1.ConditionFalse)
	waits("BackupTooOld", "nightly: the store is full")
	rs := operatortest.Read(t, w.Cluster, "kcp", &v1alpha1.RootShard{})
	rs.Spec.Upgrade = &v1alpha1.UpgradeSpec{MaxBackupAge: &v1alpha1.Duration{Duration: metav1.Duration{Duration: time.Hour}}}
	w.MustUpdate(t, rs)
	report("3.7.1", metav1.ConditionTrue)
	waits("BackupTooOld", "there is none yet")
	operatortest.Read(t, w.Cluster, "nightly", nightly)
	nightly.Status.LastSuccess = new(metav1.Now())
	w.MustUpdateStatus(t, nightly)
	w.reconcileAll(t)
	if got := w.upgraded(t); !slices.Equal(got, train[:1]) {
		t.Errorf("the etcds are ready, and these have the new image: %v", got)
	}
}
