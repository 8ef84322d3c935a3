package rootshard_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/component"
	"github.com/kcplane/kcp/operator/internal/operatortest"
	"github.com/kcplane/kcp/operator/internal/workload"
)

// members returns a running root shard with an etcd of its own.
func members(t *testing.T) (*world, *v1alpha1.RootShard) {
	t.Helper()
	rs := external()
	rs.Spec.Etcd = v1alpha1.EtcdConfig{Managed: &v1alpha1.EtcdClusterSpec{}}
	w := newWorld(rs)
	w.reconcile(t)
	w.etcdSays(t, "", "")
	for _, made := range []*corev1.Secret{secret("kcp-etcd-trust", map[string][]byte{"clients.crt": []byte("a")}),
		secret("kcp-etcd-client", map[string][]byte{"tls.crt": []byte("c"), "tls.key": []byte("k"), "ca.crt": []byte("a")})} {
		made.Namespace = operatortest.Namespace
		w.MustCreate(t, made)
	}
	rs = w.settle(t)
	expect(t, rs, "Ready", metav1.ConditionTrue, "", "")
	return w, rs
}

// etcdSays makes the etcd available, with a condition that is True unless it is empty.
func (w *world) etcdSays(t *testing.T, condition, reason string) {
	t.Helper()
	w.etcd(t, metav1.ConditionTrue)
	etcd := operatortest.Read(t, w.Cluster, component.ManagedEtcd("kcp"), &v1alpha1.EtcdCluster{})
	etcd.Status.ObservedGeneration = etcd.Generation
	if condition != "" {
		meta.SetStatusCondition(&etcd.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: reason,
			Message: "member 0 restarts"})
	}
	w.MustUpdateStatus(t, etcd)
}

// logging changes the template of the pods, and returns the one of the StatefulSet after that.
func (w *world) logging(t *testing.T, level int) (template string) {
	t.Helper()
	rs := operatortest.Read(t, w.Cluster, "kcp", &v1alpha1.RootShard{})
	rs.Spec.Logging = &v1alpha1.LoggingSpec{Level: level}
	rs.Generation++
	w.MustUpdate(t, rs)
	w.reconcile(t)
	return w.template(t)
}

func (w *world) template(t *testing.T) string {
	t.Helper()
	return workload.Template(operatortest.Read(t, w.Cluster, "kcp-kcp", &appsv1.StatefulSet{}))
}

// New pods would wait for etcd while the former ones end.
func TestPodsAreNotReplacedWhileTheirEtcdRestartsMembers(t *testing.T) {
	for condition, reason := range map[string]string{"Progressing": "RollingPods", "Degraded": "MemberUnhealthy"} {
		t.Run(condition, func(t *testing.T) {
			w, _ := members(t)
			before := w.template(t)
			w.etcdSays(t, condition, reason)
			if w.logging(t, 4) != before {
				t.Fatal("the pods are replaced")
			}
			rs := operatortest.Read(t, w.Cluster, "kcp", &v1alpha1.RootShard{})
			expect(t, rs, "RolloutHeld", metav1.ConditionTrue, "EtcdChanging", "EtcdCluster kcp-etcd restarts no members, or after 5m0s: member 0 restarts")
			expect(t, rs, "Ready", metav1.ConditionFalse, "EtcdChanging", "member 0 restarts")
			expect(t, rs, "Available", metav1.ConditionTrue, "", "")
			w.WritesNothing(t, func() { w.reconcile(t) })
			// The number of pods can be changed.
			rs.Spec.Replicas = new(int32(3))
			w.MustUpdate(t, rs)
			w.reconcile(t)
			if set := operatortest.Read(t, w.Cluster, "kcp-kcp", &appsv1.StatefulSet{}); *set.Spec.Replicas != 3 || w.template(t) != before {
				t.Errorf("it has %d pods", *set.Spec.Replicas)
			}
			w.etcdSays(t, "", "")
			rs = w.reconcile(t)
			if expect(t, rs, "RolloutHeld", metav1.ConditionFalse, "UpToDate", ""); w.template(t) == before {
				t.Error("the pods are not replaced when etcd has settled")
			}
		})
	}
}

// A StatefulSet with a new template deletes all pods that are not ready at once.
func TestPodsAreNotReplacedBeforeTheyAreReadyAgainAfterARestartOfTheirEtcd(t *testing.T) {
	for name, c := range map[string]struct {
		started bool
		ready   corev1.ConditionStatus
		since   time.Duration
		held    bool
	}{
		"it was ready a moment ago": {true, corev1.ConditionFalse, 10 * time.Second, true},
		"it is ready":               {true, corev1.ConditionTrue, 10 * time.Second, false},
		"it does not recover":       {true, corev1.ConditionFalse, workload.RecoveryTime, false},
		"it cannot start":           {false, corev1.ConditionFalse, 10 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := members(t)
			before := w.template(t)
			p := operatortest.Read(t, w.Cluster, "kcp-kcp-0", &corev1.Pod{})
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Started: &c.started,
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: c.ready,
				LastTransitionTime: metav1.NewTime(time.Now().Add(-c.since))}}
			w.MustUpdateStatus(t, p)
			if held := w.logging(t, 4) == before; held != c.held {
				t.Errorf("the pods are held: %t", held)
			}
			if c.held {
				rs := operatortest.Read(t, w.Cluster, "kcp", &v1alpha1.RootShard{})
				expect(t, rs, "RolloutHeld", metav1.ConditionTrue, "EtcdChanging", "when pod kcp-kcp-0 is ready again, or 1m0s after it was")
				w.WritesNothing(t, func() { w.reconcile(t) })
			}
		})
	}
}

func TestAnEtcdThatDoesNotRecoverHoldsPodsForALimitedTime(t *testing.T) {
	w, _ := members(t)
	before := w.template(t)
	w.etcdSays(t, "Degraded", "MemberUnhealthy")
	w.logging(t, 4)
	rs := operatortest.Read(t, w.Cluster, "kcp", &v1alpha1.RootShard{})
	held := meta.FindStatusCondition(rs.Status.Conditions, "RolloutHeld")
	held.LastTransitionTime = metav1.NewTime(time.Now().Add(-workload.MaxWait))
	w.MustUpdateStatus(t, rs)
	if w.reconcile(t); w.template(t) == before {
		t.Error("the change of kcp waits for ever")
	}
}

func TestPodsDoNotWaitForAnEtcdThatWaitsForThem(t *testing.T) {
	w, _ := members(t)
	before := w.template(t)
	w.etcdSays(t, "Progressing", "ComponentRollingOut")
	if w.logging(t, 4) == before {
		t.Error("both wait for each other")
	}
}

func TestPodsThatAreNotReadyAreReplacedWhateverTheirEtcdDoes(t *testing.T) {
	w, _ := members(t)
	before := w.template(t)
	w.etcdSays(t, "Progressing", "RollingPods")
	set := operatortest.Read(t, w.Cluster, "kcp-kcp", &appsv1.StatefulSet{})
	set.Status.ReadyReplicas = 0
	w.MustUpdateStatus(t, set)
	if w.logging(t, 4) == before {
		t.Error("pods that do not work wait for etcd")
	}
}
