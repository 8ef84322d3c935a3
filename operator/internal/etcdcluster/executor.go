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

// execute takes the step that was decided on and written into the status, and then makes the pods what they are to be. It is the only
// place that changes a cluster that was observed. A step that fails is counted, and decided on again:
//   - if trying again may help, the condition StepFailed and an event say so;
//   - if a person has to act, the condition Stalled says so, and the rest of the cluster is maintained.
func (s *scope) execute(ctx context.Context, seen *clusterSnapshot, d decision) (ctrl.Result, error) {
	decided := s.cluster.DeepCopy()
	if err := s.act(ctx, seen, d); err != nil {
		ctrl.LoggerFrom(ctx).Info("step failed, deciding again", "step", d.step, "ordinal", d.ordinal, "error", err.Error())
		if s.StepErrors != nil {
			s.StepErrors.WithLabelValues(string(d.step)).Inc()
		}
		refused := (*conditions.Blocked)(nil)
		if !errors.As(err, &refused) {
			s.recordFailure(d.step, err)
			return ctrl.Result{RequeueAfter: whileWaiting}, s.save(ctx, decided)
		}
		d = help(refused.Reason, "%s", refused.Message)
		s.report(seen, d, s.userError)
		if err := s.save(ctx, decided); err != nil {
			return ctrl.Result{}, err
		}
	}
	result := ctrl.Result{RequeueAfter: conditions.Earliest(pause(d), s.after)}
	if d.step == stepGrowVolumes && seen.stateful != nil {
		return result, nil // the StatefulSet is deleted, and created again in the next reconciliation
	}
	if err := s.adopt(ctx, seen); err != nil || seen.paused {
		return result, err
	}
	return result, s.applyMembers(ctx, seen, d)
}

// recordFailure writes a failed step into the condition StepFailed. The event is sent once for each step that begins to fail.
func (s *scope) recordFailure(failed step, err error) {
	reason := string(failed) + "Failed"
	before := apimeta.FindStatusCondition(s.cluster.Status.Conditions, v1alpha1.ConditionStepFailed)
	if before == nil || before.Status != metav1.ConditionTrue || before.Reason != reason {
		s.Recorder.Eventf(s.cluster, nil, corev1.EventTypeWarning, reason, string(failed), "%.1000s", err.Error())
	}
	s.set(v1alpha1.ConditionStepFailed, true, reason, err.Error()+"; the step is tried again")
}

// refusedBefore returns the decision to report before a step is taken that the API server has refused before: the refusal, until the step
// succeeds. Otherwise each attempt would change the conditions twice.
func (s *scope) refusedBefore(seen *clusterSnapshot, d decision) decision {
	c := apimeta.FindStatusCondition(s.cluster.Status.Conditions, v1alpha1.ConditionStalled)
	if d.step == stepGrowVolumes && seen.stateful != nil && c != nil && c.Status == metav1.ConditionTrue && c.Reason == reasonNoExpansion {
		return help(c.Reason, "%s", c.Message)
	}
	return d
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
