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
	"github.com/kcplane/kcp/operator/internal/conditions"
)

// execute executes the step that is written into the status, and then updates the StatefulSet. Only execute changes a cluster that was
// observed. A step that fails is counted in a metric, and the next reconciliation decides again:
//   - If a retry may help, the condition StepFailed and an event report the error.
//   - If a person has to act, the condition Stalled reports the error, and the rest of the cluster is maintained.
func (s *scope) execute(ctx context.Context, observed *clusterSnapshot, d decision) (ctrl.Result, error) {
	decided := s.cluster.DeepCopy()
	if err := s.act(ctx, observed, d); err != nil {
		ctrl.LoggerFrom(ctx).Info("step failed, deciding again", "step", d.step, "ordinal", d.ordinal, "error", err.Error())
		if s.StepErrors != nil {
			s.StepErrors.WithLabelValues(string(d.step)).Inc()
		}
		refused := (*conditions.Blocked)(nil)
		if !errors.As(err, &refused) {
			s.recordFailure(d.step, err)
			return ctrl.Result{RequeueAfter: whileWaiting}, s.save(ctx, decided)
		}
		d = actionRequired(refused.Reason, "%s", refused.Message)
		s.report(observed, d, s.userError)
		if err := s.save(ctx, decided); err != nil {
			return ctrl.Result{}, err
		}
	}
	result := ctrl.Result{RequeueAfter: conditions.Earliest(pause(d), s.after)}
	if d.step == stepGrowVolumes && observed.stateful != nil {
		return result, nil // the StatefulSet is deleted, and created again in the next reconciliation
	}
	if err := s.adopt(ctx, observed); err != nil || observed.paused {
		return result, err
	}
	return result, s.applyMembers(ctx, observed, d)
}

// recordFailure reports a failed step in the condition StepFailed. The event is sent when a step begins to fail, not for each retry.
func (s *scope) recordFailure(failed step, err error) {
	reason := string(failed) + "Failed"
	before := apimeta.FindStatusCondition(s.cluster.Status.Conditions, v1alpha1.ConditionStepFailed)
	if before == nil || before.Status != metav1.ConditionTrue || before.Reason != reason {
		s.Recorder.Eventf(s.cluster, nil, corev1.EventTypeWarning, reason, string(failed), "%.1000s", err.Error())
	}
	s.set(v1alpha1.ConditionStepFailed, true, reason, err.Error()+"; the step is retried")
}

// refusedBefore returns the decision to report for a step that the API server has refused before: the refusal, until the step succeeds.
// Otherwise each retry would change the conditions twice.
func (s *scope) refusedBefore(observed *clusterSnapshot, d decision) decision {
	c := apimeta.FindStatusCondition(s.cluster.Status.Conditions, v1alpha1.ConditionStalled)
	if d.step == stepGrowVolumes && observed.stateful != nil && c != nil && c.Status == metav1.ConditionTrue && c.Reason == reasonNoExpansion {
		return actionRequired(c.Reason, "%s", c.Message)
	}
	return d
}

// clearFailure sets the condition StepFailed to False when the decision is another step, or no step.
func (s *scope) clearFailure(d decision) {
	c := apimeta.FindStatusCondition(s.cluster.Status.Conditions, v1alpha1.ConditionStepFailed)
	if c != nil && c.Status == metav1.ConditionTrue && c.Reason != string(d.step)+"Failed" {
		s.set(v1alpha1.ConditionStepFailed, false, "", "")
	}
}

// registerStepErrors registers and returns the metric of failed steps. A process registers it once.
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
