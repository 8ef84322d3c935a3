package controller

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
)

func TestNamespacesAreDecidedOnAgainWhenAResourceHasAnotherState(t *testing.T) {
	r := &clusterReconciler{scheduled: map[string]string{}}
	with := func(group string, state v1alpha1.ResourceState, message string) *v1alpha1.Cluster {
		c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "east", UID: "1", Generation: 1}}
		c.Status.Resources = []v1alpha1.ClusterResource{{Group: group, Resource: "gadgets", State: state, Field: message, Message: message}}
		return c
	}
	for i, step := range []struct {
		cluster *v1alpha1.Cluster
		want    bool
	}{
		{with("x", v1alpha1.ResourceAccepted, ""), true},
		{with("x", v1alpha1.ResourceAccepted, "another message"), false},
		{with("x", v1alpha1.ResourceIncompatible, "another message"), true},
		{with("x", v1alpha1.ResourceIncompatible, "a third message"), false},
		{with("y", v1alpha1.ResourceIncompatible, "a third message"), true},
	} {
		if got := r.differs(step.cluster, metav1.ConditionTrue); got != step.want {
			t.Errorf("step %d: differs %t", i, got)
		}
	}
}
