package etcdcluster

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
)

// A step that fails is a condition, one event, and counted each time; the condition ends with the trouble.
func TestAFailedStepIsReported(t *testing.T) {
	var made []client.Object
	for _, name := range []string{"data-x-0", "data-x-1", "data-x-2"} {
		made = append(made, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels(threeMembers(""))}})
	}
	m := newThreeMembers(append(made, threeMembers("first"))...)
	m.settle(t)
	for len(m.Events.Events) > 0 {
		<-m.Events.Events
	}
	m.reconciler.StepErrors = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "errors"}, []string{"step"})
	works := m.reconciler.Client
	m.reconciler.Client = interceptor.NewClient(m.Client.(client.WithWatch), interceptor.Funcs{
		Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
			return errors.New("no connection")
		}})
	cluster := operatortest.Read(t, m.Cluster, "x", &v1alpha1.EtcdCluster{})
	cluster.Spec.SnapshotCount, cluster.Generation = new(int64(5000)), 2 // so that pods are replaced
	m.MustUpdate(t, cluster)
	failed := func() *metav1.Condition {
		return apimeta.FindStatusCondition(operatortest.Read(t, m.Cluster, "x", &v1alpha1.EtcdCluster{}).Status.Conditions, v1alpha1.ConditionStepFailed)
	}
	for range 6 {
		m.round(t)
	}
	if c := failed(); c == nil || c.Status != metav1.ConditionTrue || c.Reason != "RestartFailed" || !strings.Contains(c.Message, "no connection") {
		t.Errorf("while it fails: %+v", c)
	}
	if n := testutil.ToFloat64(m.reconciler.StepErrors.WithLabelValues("Restart")); n < 2 {
		t.Errorf("%v failures are counted", n)
	}
	events := 0
	for len(m.Events.Events) > 0 {
		if strings.HasPrefix(<-m.Events.Events, "Warning RestartFailed ") {
			events++
		}
	}
	if events != 1 {
		t.Errorf("%d events say so", events)
	}
	m.reconciler.Client = works
	m.settle(t)
	if c := failed(); c == nil || c.Status != metav1.ConditionFalse {
		t.Errorf("in the end: %+v", c)
	}
}
