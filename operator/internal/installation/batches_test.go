package installation_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/component"
	"github.com/kcplane/kcp/operator/internal/conditions"
	installed "github.com/kcplane/kcp/operator/internal/installation"
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

// An upgrade replaces one component after the other, which needs all of them to work, and to agree on keys.
func TestAnUpgradeBeginsWhenAllShardsAreAvailableAndNoKeysAreRotated(t *testing.T) {
	rotating := func(reason string) metav1.Condition {
		return metav1.Condition{Type: "Rotating", Status: metav1.ConditionTrue, Reason: reason, Message: "renew these Certificates: west-shard-server"}
	}
	w := newWorld(installation()...)
	w.settle(t)
	for _, name := range []string{"kcp-kcp", "east-shard-kcp", "west-shard-kcp"} {
		w.start(t, name)
	}
	w.reconcile(t)
	down := metav1.Condition{Type: "Available", Status: metav1.ConditionFalse, Reason: "NoPodReady", Message: "none of 2 pods is ready"}
	off := metav1.Condition{Type: "Available", Status: metav1.ConditionFalse, Reason: "ScaledToZero", Message: "spec.replicas is 0"}
	const rotation = "keeping the former image until the rotation of keys of "
	for name, test := range map[string]struct {
		object  client.Object
		found   metav1.Condition
		allowed string // version
		want    string // message, or empty if the upgrade begins
	}{
		"a shard that is not available":   {further("west"), down, "", "keeping the former image until Shard west is available: none of 2 pods is ready"},
		"a shard that is turned off":      {further("west"), off, "", ""},
		"a root shard that is down":       {root("kcp"), down, "", ""}, // another image may repair it
		"new keys of a shard":             {further("west"), rotating("Distributing"), "", rotation + "Shard west is complete: renew these"},
		"former authorities in use":       {root("kcp"), rotating("CertificatesToRenew"), "", rotation + "RootShard kcp is complete: renew these"},
		"former authorities of a cache":   {cache("cache"), rotating("CertificatesToRenew"), "", rotation + "CacheServer cache is complete: renew these"},
		"former authorities that remain":  {root("kcp"), rotating("Renewed"), "", ""},
		"a shard without which to go on":  {further("west"), down, "v1.1.0", ""},
		"a version that was allowed once": {further("west"), down, "v1.0.9", "keeping the former image until Shard west"},
	} {
		t.Run(name, func(t *testing.T) {
			operatortest.Read(t, w.Cluster, test.object.GetName(), test.object)
			_, status := parts(test.object)
			before := slices.Clone(status.Conditions)
			defer func() {
				status.Conditions = before
				w.MustUpdateStatus(t, test.object)
			}()
			test.found.ObservedGeneration = test.object.GetGeneration()
			meta.SetStatusCondition(&status.Conditions, test.found)
			w.MustUpdateStatus(t, test.object)
			rs := operatortest.Read(t, w.Cluster, "kcp", &v1alpha1.RootShard{})
			rs.Spec.Image = &v1alpha1.ImageSpec{Tag: "v1.1.0"}
			rs.Annotations = map[string]string{v1alpha1.AllowVersionAnnotation: test.allowed}
			err := installed.Preflight(t.Context(), w, rs, time.Now())
			if blocked := (*conditions.Blocked)(nil); test.want == "" && err != nil || test.want != "" &&
				(!errors.As(err, &blocked) || blocked.After == 0 || !strings.HasPrefix(blocked.Message, test.want)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestAnUpgradeWaitsForAShardThatIsNotAvailable(t *testing.T) {
	w := running(t)
	pods := operatortest.Read(t, w.Cluster, "west-shard-kcp", &appsv1.StatefulSet{})
	pods.Status.ReadyReplicas = 0
	w.MustUpdateStatus(t, pods)
	w.reconcile(t)
	w.upgrade(t, nil)
	w.reconcileAll(t)
	if got := w.upgraded(t); len(got) > 0 {
		t.Errorf("these have the new image: %v", got)
	}
	for _, object := range []client.Object{cache("cache"), root("kcp")} {
		w.expect(t, object, "Ready", metav1.ConditionFalse, "WaitingForShard", "until Shard west is available: ")
		w.expect(t, object, "Available", metav1.ConditionTrue, "", "")
	}
	w.start(t, "west-shard-kcp")
	w.reconcileAll(t)
	if got := w.upgraded(t); !slices.Equal(got, train[:1]) {
		t.Errorf("all shards are available, and these have the new image: %v", got)
	}
}

// Otherwise a bad image could be replaced by no other one.
func TestAShardThatDoesNotWorkWithANewImageDoesNotStopTheNextOne(t *testing.T) {
	w := running(t)
	w.upgrade(t, nil)
	for _, name := range train[:3] {
		w.reconcileAll(t)
		if name != "east-shard-kcp" {
			w.start(t, name)
		}
	}
	pods := operatortest.Read(t, w.Cluster, "east-shard-kcp", &appsv1.StatefulSet{})
	pods.Status.ReadyReplicas = 0
	w.MustUpdateStatus(t, pods)
	w.reconcileAll(t)
	w.expect(t, further("east"), "Available", metav1.ConditionFalse, "NoPodReady", "")
	w.upgrade(t, func(rs *v1alpha1.RootShard) { rs.Spec.Image.Tag = "v1.1.1" })
	w.reconcileAll(t)
	set := operatortest.Read(t, w.Cluster, "cache-cache-server", &appsv1.StatefulSet{})
	if image := set.Spec.Template.Spec.Containers[0].Image; !strings.HasSuffix(image, ":v1.1.1") {
		t.Errorf("the first component has the image %s", image)
	}
}
