package etcdcluster

import (
	"crypto/tls"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
	"github.com/kcplane/kcp/operator/internal/retention"
	"github.com/kcplane/kcp/operator/internal/snapshot"
)

// eachWay lets a cluster be looked after by an operator that goes on, and by operators of which each ends at a write: before it, or after it.
func withAndWithoutInterruptions(t *testing.T, test func(*testing.T, *testCluster)) {
	t.Parallel()
	for way, deaths := range map[string]*operatortest.Deaths{"by one operator": nil, "by operators that end at each write": operatortest.NewDeaths()} {
		t.Run(way, func(t *testing.T) {
			r := newTestCluster(t, 1)
			r.deaths = deaths
			if test(t, r); deaths == nil {
				return
			}
			for what, times := range deaths.Begun {
				if times < 2 {
					t.Errorf("no operator ended after %s", what)
				}
			}
		})
	}
}

// written returns what was written for a while, and is there.
func (r *testCluster) startWrites() *writer {
	r.t.Helper()
	w := r.write()
	r.until("writes", func(*v1alpha1.EtcdCluster) bool {
		w.lock.Lock()
		defer w.lock.Unlock()
		return len(w.acknowledged) > 10
	})
	w.verify(r)
	return w
}

// remake deletes the EtcdCluster with its members, but for their volumes, and makes one of the same name.
func (r *testCluster) recreate(spec v1alpha1.EtcdClusterSpec) {
	r.t.Helper()
	ctx, cluster := r.t.Context(), r.cluster()
	r.must(r.Delete(ctx, cluster))
	r.must(r.Delete(ctx, operatortest.Read(r.t, r.Cluster, "x", &appsv1.StatefulSet{})))
	r.must(r.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(operatortest.Namespace)))
	r.must(r.Create(ctx, &v1alpha1.EtcdCluster{Spec: spec, ObjectMeta: metav1.ObjectMeta{
		Namespace: cluster.Namespace, Name: "x", Generation: 1, UID: cluster.UID}}))
}

func TestAClusterStartsFromASnapshot(t *testing.T) { withAndWithoutInterruptions(t, restoresSnapshot) }

func restoresSnapshot(t *testing.T, r *testCluster) {
	before := r.ready(1)
	w := r.startWrites()
	r.MustCreate(t, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: "snapshots", UID: "store"}})
	reached := r.etcd(r.address(0))
	secret := operatortest.Read(t, r.Cluster, ClientSecretName("x"), &corev1.Secret{})
	trusted, err := credentials(secret, secret.Data["ca.crt"])
	r.must(err)
	taken, err := snapshot.Save(t.Context(), clientv3.Config{Endpoints: reached.Endpoints(), TLS: trusted}, snapshot.Directory(r.volume("snapshots")),
		operatortest.Namespace+"/x", retention.Policy{}, time.Now)
	r.must(err)

	volumes := client.MatchingLabels(labels(before))
	r.must(r.DeleteAllOf(t.Context(), &corev1.PersistentVolumeClaim{}, client.InNamespace(operatortest.Namespace), volumes))
	r.recreate(v1alpha1.EtcdClusterSpec{Replicas: new(int32(1)), Restore: &v1alpha1.EtcdRestoreSpec{Key: taken.Key,
		Store: &v1alpha1.EtcdStoreSpec{Volume: &v1alpha1.EtcdVolumeStore{ClaimName: "snapshots"}}}})
	after := r.ready(1)
	if after.Status.ClusterID == before.Status.ClusterID || after.Status.RestoreGeneration != 1 {
		t.Errorf("%s was restored, in status %+v", before.Status.ClusterID, after.Status)
	}
	w.verify(r)
	jobs := &batchv1.JobList{}
	if r.must(r.List(t.Context(), jobs)); len(jobs.Items) > 0 {
		t.Errorf("%d Jobs are left", len(jobs.Items))
	}
	r.staysUnchanged(3)
}

func TestBothAuthoritiesAreTrustedDuringARotation(t *testing.T) {
	withAndWithoutInterruptions(t, rotatesAuthorities)
}

func rotatesAuthorities(t *testing.T, r *testCluster) {
	r.ready(1)
	theirs := r.pair(ClientSecretName("x"))
	rotating := func(status metav1.ConditionStatus, reason string) {
		t.Helper()
		r.until("the condition "+reason, func(c *v1alpha1.EtcdCluster) bool {
			found := apimeta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionRotating)
			return found != nil && found.Status == status && found.Reason == reason
		})
		r.ready(1)
	}
	checkAccepted := func(when string, former, latter bool) {
		t.Helper()
		for who, test := range map[string]struct {
			certificate tls.Certificate
			want        bool
		}{"the former authority": {theirs, former}, "that of now": {r.issuers[ClientIssuerName("x")].client(t), latter}} {
			if err := r.dial(test.certificate); (err == nil) != test.want {
				t.Errorf("%s, with a certificate of %s: %v", when, who, err)
			}
		}
	}
	rotating(metav1.ConditionFalse, "AsExpected")
	for _, authority := range []string{ClientIssuerName("x"), peerCAName("x")} {
		delete(r.issuers, authority) // with its key
		r.renew(authority)
	}
	rotating(metav1.ConditionTrue, v1alpha1.RotatingRenewable)
	checkAccepted("before anything is renewed", true, true)

	r.renew(serverName("x"), peerName("x"), ClientSecretName("x"))
	rotating(metav1.ConditionTrue, v1alpha1.RotatingRenewable)
	r.renew(operatorName("x"))
	rotating(metav1.ConditionTrue, v1alpha1.RotatingRenewed)
	checkAccepted("when all is renewed", true, true)

	r.must(r.Delete(t.Context(), operatortest.Read(t, r.Cluster, TrustSecretName("x"), &corev1.Secret{})))
	rotating(metav1.ConditionFalse, "AsExpected")
	checkAccepted("in the end", false, true)
}

func TestAClusterRecoversFromQuorumLossWithASurvivor(t *testing.T) {
	withAndWithoutInterruptions(t, recoversFromSurvivor)
}

func recoversFromSurvivor(t *testing.T, r *testCluster) {
	r.scale(3)
	before := r.ready(3)
	name := func(member, clusterID string) {
		r.updateSpec(func(spec *v1alpha1.EtcdClusterSpec) {
			spec.Restore = &v1alpha1.EtcdRestoreSpec{Survivor: &v1alpha1.EtcdSurvivorSpec{Member: member, ClusterID: clusterID}}
		})
	}
	says := func(what string) func(*v1alpha1.EtcdCluster) bool {
		return func(c *v1alpha1.EtcdCluster) bool {
			stalled := apimeta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionStalled)
			return stalled != nil && stalled.Status == metav1.ConditionTrue && strings.Contains(stalled.Message, what)
		}
	}
	w := r.startWrites()

	name("x-1", before.Status.ClusterID)
	r.until("a refusal", says("a majority of the members answers"))
	survivor, old := r.volume("data-x-1"), r.process("x-1")
	r.loseVolume("x-0")
	r.loseVolume("x-2")
	r.until("a refusal that stays", says("stays refused"))
	if !old.isRunning() {
		t.Error("the survivor was touched")
	}
	name("x-1", "abc")
	r.until("a confirmation that is wrong", says("does not match this cluster"))
	name("x-2", before.Status.ClusterID)
	r.until("a survivor that is none", says("lost its volume, too"))

	name("x-1", before.Status.ClusterID)
	after := r.until("a recovered cluster", func(c *v1alpha1.EtcdCluster) bool {
		return is(v1alpha1.ConditionReady)(c) && c.Status.ClusterID != before.Status.ClusterID && len(c.Status.Members) == 3
	})
	if recovered := after.Status.Recovery; recovered.State != v1alpha1.EtcdRecoveryDone || recovered.Directory != after.Status.DataDirectory {
		t.Errorf("status: %+v", after.Status)
	}
	w.verify(r)
	for _, kept := range []string{"data", after.Status.DataDirectory} {
		if logs, _ := filepath.Glob(filepath.Join(survivor, kept, "member", "wal", "*.wal")); len(logs) == 0 {
			t.Errorf("of the survivor's volume, %s is gone", kept)
		}
	}
	jobs := &batchv1.JobList{}
	r.must(r.List(t.Context(), jobs))
	if len(jobs.Items) > 0 {
		t.Errorf("%d Jobs are left", len(jobs.Items))
	}
	r.staysUnchanged(3) // the spec still names the survivor

	// An EtcdCluster that is created again uses the current data directory.
	r.recreate(r.cluster().Spec)
	if found := r.ready(3); found.Status.ClusterID != after.Status.ClusterID {
		t.Errorf("%s was taken up, not %s", found.Status.ClusterID, after.Status.ClusterID)
	}
	w.verify(r)
}
