package rootshard

import (
	"cmp"
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/apply"
	"github.com/kcplane/kcp/operator/conditions"
	"github.com/kcplane/kcp/operator/shard"
	"github.com/kcplane/kcp/operator/workload"
)

// defaultReplicas is the number of pods while nobody says another.
const defaultReplicas = 2

// workload makes what runs the shard.
func (s *scope) workload(ctx context.Context) error {
	live := &appsv1.StatefulSet{}
	err := s.Get(ctx, client.ObjectKey{Namespace: s.rs.Namespace, Name: s.shard.WorkloadName()}, live)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	if s.shard.Replicas == nil {
		s.shard.Replicas = live.Spec.Replicas // an autoscaler's, perhaps
		if apierrors.IsNotFound(err) {
			s.shard.Replicas = new(int32(defaultReplicas))
		}
	}
	// The status is lost where objects are copied.
	chosen := cmp.Or(s.rs.Status.Image, imageOf(live.Spec.Template.Spec, shard.Container))
	s.shard.Image = image(s.rs.Spec.Image, chosen, s.DefaultImage)
	if err := checkVersion(s.rs, s.shard.Image); err != nil {
		return err
	}
	component := shard.Component(s.shard)
	set, err := workload.StatefulSet(component)
	if err != nil {
		return conditions.Stall("TemplateInvalid", "%v", err)
	}
	if err := apply.All(ctx, s.Client, s.rs, workload.Service(component)); err != nil {
		return err
	}
	held, err := workload.Hold(s.rs, live, set, s.shard.Image, ptr.Deref(s.rs.Spec.Replicas, 0), s.shard.Etcd, s.shard.Inputs)
	if err != nil {
		return err
	}
	meta.SetStatusCondition(&s.rs.Status.Conditions, held)
	if held.Status != metav1.ConditionTrue {
		if err := apply.All(ctx, s.Client, s.rs, set); err != nil {
			return err
		}
		s.set = set
	}
	s.rs.Status.Image = s.shard.Image
	return s.optional(ctx, component)
}

// optional makes what is wanted of this, and removes what is wanted no more.
func (s *scope) optional(ctx context.Context, component *workload.Component) error {
	budget, wanted := workload.PodDisruptionBudget(component)
	if err := apply.Optional(ctx, s.Client, s.rs, wanted, budget); err != nil {
		return err
	}
	policy, wanted := workload.NetworkPolicy(component)
	if err := apply.Optional(ctx, s.Client, s.rs, wanted, policy); err != nil {
		return err
	}
	monitor, wanted := workload.ServiceMonitor(component)
	err := apply.Optional(ctx, s.Client, s.rs, wanted, monitor)
	if meta.IsNoMatchError(err) {
		return conditions.Unwatched(again, workload.NoServiceMonitors())
	}
	return err
}

// available reports whether kcp can be used, and whether all pods are as they are to be.
func (s *scope) available(ctx context.Context) {
	set := &appsv1.StatefulSet{}
	err := s.Get(ctx, client.ObjectKey{Namespace: s.rs.Namespace, Name: s.shard.WorkloadName()}, set)
	switch {
	case apierrors.IsNotFound(err):
		s.report.Set(v1alpha1.ConditionAvailable, conditions.Wait("NotCreated", "StatefulSet %s does not exist yet", s.shard.WorkloadName()))
		return
	case err != nil:
		s.report.Set(v1alpha1.ConditionAvailable, err)
		return
	}
	s.version(ctx, set)
	wanted, trouble := workload.Wanted(set), ""
	if set.Status.ReadyReplicas < wanted {
		trouble = s.trouble(ctx, set)
	}
	switch {
	case wanted == 0:
		s.report.Set(v1alpha1.ConditionAvailable, conditions.Stall("ScaledToZero", "spec.replicas is 0: kcp is off"))
	case set.Status.ReadyReplicas == 0:
		s.report.Set(v1alpha1.ConditionAvailable, conditions.Wait("NoPodReady", "waiting for StatefulSet %s: none of %d pods is ready%s", set.Name, wanted, trouble))
	default:
		s.report.Set(v1alpha1.ConditionAvailable, nil)
	}
	if s.set != nil {
		applied, err := apply.Applied(s.Scheme(), s.rs, s.set, set)
		if err != nil || !applied {
			s.report.Set(conditions.Rest, cmp.Or(err, conditions.Wait("RollingOut", "waiting for StatefulSet %s to be seen as it was changed", set.Name)))
		}
	}
	if !workload.RolledOut(set) {
		s.report.Set(conditions.Rest, conditions.Wait("RollingOut", "waiting for StatefulSet %s: %d of %d pods are ready, %d as they are to be%s",
			set.Name, set.Status.ReadyReplicas, wanted, set.Status.UpdatedReplicas, trouble))
	}
}

// trouble says what keeps a pod from running, if the kubelet or the scheduler has told.
func (s *scope) trouble(ctx context.Context, set *appsv1.StatefulSet) string {
	pods := &corev1.PodList{}
	if err := s.List(ctx, pods, client.InNamespace(set.Namespace), client.MatchingLabels(set.Spec.Selector.MatchLabels)); err != nil {
		return ""
	}
	return workload.Trouble(pods.Items, workload.CorrectImage)
}
