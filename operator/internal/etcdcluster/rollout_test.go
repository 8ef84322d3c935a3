package etcdcluster

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
)

const formerGrace = grace / 2

// older makes the StatefulSet what an operator before this one would have made of the same.
func (r *testCluster) setOldTemplate() {
	r.t.Helper()
	set := operatortest.Read(r.t, r.Cluster, "x", &appsv1.StatefulSet{})
	set.Annotations["operator.kcp.io/made"] = "older"
	set.Spec.Template.Spec.TerminationGracePeriodSeconds = new(int64(formerGrace))
	r.MustUpdate(r.t, set)
}

// runsAs goes on until all members are well, and all pods of this operator's make, or of the former one's.
func (r *testCluster) waitForTemplate(held bool, members int) {
	r.t.Helper()
	want := int64(grace)
	if held {
		want = formerGrace
	}
	r.until("pods of one make", func(c *v1alpha1.EtcdCluster) bool {
		pods := &corev1.PodList{}
		r.must(r.List(r.t.Context(), pods))
		for _, p := range pods.Items {
			if *p.Spec.TerminationGracePeriodSeconds != want {
				return false
			}
		}
		return len(pods.Items) == members && len(c.Status.Members) == members && is(v1alpha1.ConditionReady)(c) && is(v1alpha1.ConditionRolloutHeld)(c) == held
	})
	r.staysUnchanged(3)
}

func TestANewOperatorMaintainsMembersWithoutReplacingThem(t *testing.T) {
	r := newTestCluster(t, 1)
	r.waitForTemplate(false, 1)
	r.scale(3)
	r.until("a second pod", func(*v1alpha1.EtcdCluster) bool {
		return *operatortest.Read(t, r.Cluster, "x", &appsv1.StatefulSet{}).Spec.Replicas == 2
	})
	r.setOldTemplate()
	r.waitForTemplate(true, 3) // it goes on from there
	said := apimeta.FindStatusCondition(r.cluster().Status.Conditions, v1alpha1.ConditionRolloutHeld)
	if said.Reason != "OperatorChanged" || !strings.Contains(said.Message, "the annotation operator.kcp.io/rollout") {
		t.Errorf("it says %+v", said)
	}
	r.loseVolume("x-1")
	r.until("a repair", func(c *v1alpha1.EtcdCluster) bool { return len(c.Status.Repairs) > 0 })
	r.waitForTemplate(true, 3)

	cluster := r.cluster()
	cluster.Annotations = map[string]string{v1alpha1.RolloutAnnotation: "now"}
	r.MustUpdate(t, cluster)
	r.waitForTemplate(false, 3)
}

func TestAChangeReplacesMembersOfAFormerOperator(t *testing.T) {
	r := newTestCluster(t, 1)
	for name, change := range map[string]func(){
		"a new authority":    func() { r.renew(ClientIssuerName("x")) },
		"a change":           func() { r.updateSpec(func(spec *v1alpha1.EtcdClusterSpec) { spec.SnapshotCount = new(int64(5000)) }) },
		"larger volumes":     func() { r.expandVolumes("20Gi") },
		"that none is ready": func() { r.unready = true },
	} {
		r.unready = false
		r.waitForTemplate(false, 1)
		r.setOldTemplate()
		r.waitForTemplate(true, 1)
		t.Log(name)
		change()
		r.waitForTemplate(false, 1)
	}
}
