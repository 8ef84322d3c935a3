package etcdcluster

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
)

// execute takes the step that was decided on, and then makes the pods what they are to be. It is the only place that changes a cluster that
// was observed. A step that fails is decided on again; the condition StepFailed, an event and a metric say so.
func (s *scope) execute(ctx context.Context, seen *clusterSnapshot, d decision, version string) (failed bool, err error) {
	if err := s.act(ctx, seen, d); err != nil {
		ctrl.LoggerFrom(ctx).Info("step failed, deciding again", "step", d.step, "ordinal", d.ordinal, "error", err.Error())
		s.recordFailure(d.step, err)
		return true, nil
	}
	if err := s.adopt(ctx, seen); err != nil || seen.paused {
		return false, err
	}
	return false, s.applyMembers(ctx, seen, d, version)
}

// recordFailure counts a failed step, and writes it into the condition StepFailed. The event is sent once for each step that begins to
// fail.
func (s *scope) recordFailure(failed step, err error) {
	if s.StepErrors != nil {
		s.StepErrors.WithLabelValues(string(failed)).Inc()
	}
	reason := string(failed) + "Failed"
	before := apimeta.FindStatusCondition(s.cluster.Status.Conditions, v1alpha1.ConditionStepFailed)
	if before == nil || before.Status != metav1.ConditionTrue || before.Reason != reason {
		s.Recorder.Eventf(s.cluster, nil, corev1.EventTypeWarning, reason, string(failed), "%.1000s", err.Error())
	}
	s.set(v1alpha1.ConditionStepFailed, true, reason, err.Error()+"; the step is tried again")
}

// clearFailure ends the condition StepFailed when another step, or none, was decided on.
func (s *scope) clearFailure(d decision) {
	c := apimeta.FindStatusCondition(s.cluster.Status.Conditions, v1alpha1.ConditionStepFailed)
	if c != nil && c.Status == metav1.ConditionTrue && c.Reason != string(d.step)+"Failed" {
		s.set(v1alpha1.ConditionStepFailed, false, "", "")
	}
}

// registerStepErrors returns the metric of failed steps, which is registered once in a process.
func registerStepErrors() (*prometheus.CounterVec, error) {
	counter := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kcp_operator_etcd_step_errors_total", Help: "Steps of EtcdClusters that failed, by step.",
	}, []string{"step"})
	err := metrics.Registry.Register(counter)
	if exists := (prometheus.AlreadyRegisteredError{}); errors.As(err, &exists) {
		return exists.ExistingCollector.(*prometheus.CounterVec), nil
	}
	return counter, err
}
