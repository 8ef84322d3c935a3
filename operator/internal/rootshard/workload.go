package rootshard

import (
	"cmp"
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/apply"
	"github.com/kcplane/kcp/operator/internal/conditions"
	"github.com/kcplane/kcp/operator/internal/shard"
	"github.com/kcplane/kcp/operator/internal/workload"
)

// defaultReplicas is the number of pods unless the spec or an autoscaler sets another one.
const defaultReplicas = 2

// workload creates the StatefulSet and the Service of the shard, and related objects. Pods need all Secrets, the other objects only the
// spec.
func (s *scope) workload(ctx context.Context, secrets bool) {
	live := &appsv1.StatefulSet{}
	err := s.Get(ctx, client.ObjectKey{Namespace: s.rs.Namespace, Name: s.shard.WorkloadName()}, live)
	if client.IgnoreNotFound(err) != nil {
		s.report.Set(conditions.Rest, err)
		return
	}
	if s.shard.Replicas == nil {
		s.shard.Replicas = live.Spec.Replicas // possibly set by an autoscaler
		if apierrors.IsNotFound(err) {
			s.shard.Replicas = new(cmp.Or(s.orphanedPods(ctx), defaultReplicas))
		}
	}
	s.record(ctx, live)
	s.shard.Image = image(s.rs.Spec.Image, s.rs.Status.Image, s.DefaultImage)
	component := shard.Component(s.shard)
	s.service(ctx, component)
	s.report.Set(conditions.Rest, s.pods(ctx, live, component, secrets))
	s.report.Set(conditions.Rest, s.optional(ctx, component))
}

// service creates the Service of the pods. Without it, kcp is not available.
func (s *scope) service(ctx context.Context, component *workload.Component) {
	service := workload.Service(component)
	err := apply.All(ctx, s.Client, s.rs, service)
	if err == nil {
		return
	}
	live := &corev1.Service{}
	if s.Get(ctx, client.ObjectKeyFromObject(service), live) == nil && metav1.IsControlledBy(live, s.rs) {
		s.report.Set(conditions.Rest, err)
		return
	}
	s.report.Set(v1alpha1.ConditionAvailable, err)
}

// pods applies the StatefulSet. While something is missing that new pods need, running pods are not changed: only their number is. A
// deleted StatefulSet is created again as soon as its pods can start.
func (s *scope) pods(ctx context.Context, live *appsv1.StatefulSet, component *workload.Component, secrets bool) error {
	exists := live.Name != ""
	if exists && (!secrets || !s.prerequisites()) {
		return s.scale(ctx, live)
	}
	if !exists && !s.prerequisites() && (!secrets || !s.startable()) {
		return nil
	}
	if err := checkVersion(s.rs, s.shard.Image); err != nil {
		return cmp.Or(s.scale(ctx, live), err)
	}
	set, err := workload.StatefulSet(component)
	if err != nil {
		return cmp.Or(s.scale(ctx, live), conditions.Stall("InvalidPodTemplate", "%v", err))
	}
	if ran := s.rs.Status.Image; ran != "" {
		metav1.SetMetaDataAnnotation(&set.ObjectMeta, imageAnnotation, ran)
	}
	if err := s.Pods.Admit(&set.Spec.Template, podFields(&s.rs.Spec.CommonShardSpec)); err != nil {
		return cmp.Or(s.scale(ctx, live), conditions.Stall("PodForbidden", "%v", err))
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
	return nil
}

// prerequisites reports whether all dependencies of pods are met.
func (s *scope) prerequisites() bool {
	return s.report.Met(v1alpha1.ConditionCertificatesReady, v1alpha1.ConditionEtcdReady, v1alpha1.ConditionReferenceValid)
}

// startable reports whether pods that ran before can start again: everything that they mount exists.
func (s *scope) startable() bool {
	etcd := s.shard.Etcd
	known := len(etcd.Endpoints) > 0 && (s.rs.Spec.Etcd.Managed == nil || etcd.Secret != "" && etcd.Trust != "")
	return s.rs.Status.Image != "" && known && s.report.Met(v1alpha1.ConditionReferenceValid)
}

// scale changes only the number of pods of a StatefulSet.
func (s *scope) scale(ctx context.Context, live *appsv1.StatefulSet) error {
	wanted := s.rs.Spec.Replicas
	if live.Name == "" || wanted == nil || workload.Wanted(live) == *wanted || !metav1.IsControlledBy(live, s.rs) {
		return nil
	}
	scaled := live.DeepCopy()
	scaled.Spec.Replicas = wanted
	return s.Patch(ctx, scaled, client.MergeFrom(live), client.FieldOwner(apply.FieldOwner))
}

// podFields names the fields of a spec that decide what the pods ask for.
func podFields(spec *v1alpha1.CommonShardSpec) string {
	switch {
	case len(spec.ExtraVolumes) == 0:
		return "spec.deploymentTemplate"
	case spec.DeploymentTemplate == nil:
		return "spec.extraVolumes"
	}
	return "spec.deploymentTemplate, spec.extraVolumes"
}

// optional creates the optional objects that the spec enables, and removes the others.
func (s *scope) optional(ctx context.Context, component *workload.Component) error {
	budget, budgetWanted := workload.PodDisruptionBudget(component)
	policy, policyWanted := workload.NetworkPolicy(component)
	monitor, monitorWanted := workload.ServiceMonitor(component)
	unmonitored := apply.Optional(ctx, s.Client, s.rs, monitorWanted, monitor)
	if meta.IsNoMatchError(unmonitored) {
		unmonitored = conditions.Unwatched(again, workload.NoServiceMonitors())
	}
	return cmp.Or(apply.Optional(ctx, s.Client, s.rs, budgetWanted, budget),
		apply.Optional(ctx, s.Client, s.rs, policyWanted, policy), unmonitored)
}

// available reports whether kcp is available, and whether all pods are up to date.
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
	s.record(ctx, set)
	wanted, trouble := workload.Wanted(set), workload.Trouble{}
	s.rs.Status.Pods = fmt.Sprintf("%d/%d", set.Status.ReadyReplicas, wanted)
	if set.Status.ReadyReplicas < wanted {
		trouble = s.trouble(ctx)
	}
	switch {
	case wanted == 0:
		s.report.Set(v1alpha1.ConditionAvailable, conditions.Stall(conditions.ScaledToZero, "spec.replicas is 0: kcp is turned off"))
	case set.Status.ReadyReplicas == 0:
		s.report.Set(v1alpha1.ConditionAvailable,
			trouble.Because("NoPodReady", "waiting for StatefulSet %s: none of %d pods is ready", set.Name, wanted))
	default:
		s.report.Set(v1alpha1.ConditionAvailable, nil)
	}
	if s.set != nil {
		applied, err := apply.Applied(s.Scheme(), s.rs, s.set, set)
		if err != nil || !applied {
			s.report.Set(conditions.Rest,
				cmp.Or(err, conditions.Wait("RollingOut", "waiting for the change of StatefulSet %s to be observed", set.Name)))
		}
	}
	if !workload.RolledOut(set) {
		s.report.Set(conditions.Rest, trouble.Because("RollingOut", "waiting for StatefulSet %s: %d of %d pods are ready, %d are up to date",
			set.Name, set.Status.ReadyReplicas, wanted, set.Status.UpdatedReplicas))
	}
}

// trouble returns why pods do not run. While etcd does not answer, they wait for etcd.
func (s *scope) trouble(ctx context.Context) workload.Trouble {
	pods, err := s.podsOf(ctx)
	if err != nil {
		return workload.Trouble{}
	}
	if s.report.Met(v1alpha1.ConditionEtcdReady) {
		return workload.FindTrouble(pods, workload.CorrectImage, "it runs but is not ready, check its log", time.Now())
	}
	return workload.FindTrouble(pods, workload.CorrectImage, "it waits for etcd", time.Now()).Passing()
}
