package component

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/apply"
	"github.com/kcplane/kcp/operator/internal/conditions"
	"github.com/kcplane/kcp/operator/internal/workload"
)

// Build builds the component with an image and a number of pods. Nil leaves the number to an autoscaler.
type Build func(image string, replicas *int32) *workload.Component

// Run creates the StatefulSet and the Service of the component, and related objects. Pods need all Secrets, the other objects only the
// spec.
func (s *Scope) Run(ctx context.Context, secrets bool, build Build) {
	live := &appsv1.StatefulSet{}
	err := s.Get(ctx, client.ObjectKey{Namespace: s.Owner.GetNamespace(), Name: s.Workload}, live)
	if client.IgnoreNotFound(err) != nil {
		s.Report.Set(conditions.Rest, err)
		return
	}
	replicas := s.Spec.Replicas
	if replicas == nil {
		replicas = live.Spec.Replicas // possibly set by an autoscaler
		if apierrors.IsNotFound(err) {
			replicas = new(cmp.Or(s.orphanedPods(ctx), s.DefaultReplicas))
		}
		replicas = workload.Started(s.Spec.Autoscaling, replicas)
		if !s.Owner.GetDeletionTimestamp().IsZero() && *replicas == 0 {
			replicas = &s.DefaultReplicas // Stop has ended the pods, and the owner remains nevertheless
		}
	}
	s.hold(ctx, live)
	s.record(ctx, live)
	component := build(s.image(), replicas)
	s.built = component
	s.service(ctx, component)
	s.Report.Set(conditions.Rest, s.pods(ctx, live, component, secrets))
	s.Report.Set(conditions.Rest, s.optional(ctx, component))
}

// service creates the Service of the pods. Without it, kcp is not available.
func (s *Scope) service(ctx context.Context, component *workload.Component) {
	service := workload.Service(component)
	err := apply.All(ctx, s.Client, s.Owner, service)
	if err == nil {
		return
	}
	live := &corev1.Service{}
	if s.Get(ctx, client.ObjectKeyFromObject(service), live) == nil && metav1.IsControlledBy(live, s.Owner) {
		s.Report.Set(conditions.Rest, err)
		return
	}
	s.Report.Set(v1alpha1.ConditionAvailable, err)
}

// pods applies the StatefulSet. While something is missing that new pods need, running pods are not changed: only their number is. A
// deleted StatefulSet is created again as soon as its pods can start.
func (s *Scope) pods(ctx context.Context, live *appsv1.StatefulSet, component *workload.Component, secrets bool) error {
	exists := live.Name != ""
	if exists && (!secrets || !s.prerequisites()) {
		return s.scale(ctx, live)
	}
	if !exists && !s.prerequisites() && (!secrets || !s.startable()) {
		return nil
	}
	if err := s.checkVersion(component.Image); err != nil {
		return cmp.Or(s.scale(ctx, live), err)
	}
	set, err := workload.StatefulSet(component)
	if err != nil {
		return cmp.Or(s.scale(ctx, live), conditions.Stall("InvalidPodTemplate", "%v", err))
	}
	if ran := s.Status.Image; ran != "" {
		metav1.SetMetaDataAnnotation(&set.ObjectMeta, imageAnnotation, ran)
	}
	if err := s.Pods.Admit(&set.Spec.Template, podFields(s.Spec)); err != nil {
		return cmp.Or(s.scale(ctx, live), conditions.Stall("PodForbidden", "%v", err))
	}
	inputs := append([]any{component.Image, ptr.Deref(s.Spec.Replicas, 0), s.Etcd, s.Inputs}, s.Related...)
	held, err := workload.Hold(s.Owner, live, set, inputs...)
	if err != nil {
		return err
	}
	if !exists {
		if err := s.former(ctx); err != nil {
			return err
		}
	}
	return s.replace(ctx, live, set, held)
}

// replace applies the StatefulSet, unless its pods are held.
func (s *Scope) replace(ctx context.Context, live, set *appsv1.StatefulSet, held metav1.Condition) error {
	waits, err := s.waitForMembers(ctx, live, set)
	if err != nil {
		return err
	}
	if waits != nil {
		workload.SetHeld(&s.Status.Conditions, *waits)
		return cmp.Or(s.scale(ctx, live), conditions.Unwatched(Again, conditions.Wait(waits.Reason, "%s", waits.Message)))
	}
	workload.SetHeld(&s.Status.Conditions, held)
	if held.Status == metav1.ConditionTrue {
		return nil
	}
	if err := apply.All(ctx, s.Client, s.Owner, set); err != nil {
		return err
	}
	s.set = set
	return nil
}

// prerequisites reports whether all dependencies of pods are met.
func (s *Scope) prerequisites() bool {
	return s.Report.Met(s.Prerequisites...)
}

// startable reports whether pods that ran before can start again: everything that they mount exists.
func (s *Scope) startable() bool {
	etcd := s.Etcd
	known := !s.waitsForEtcd() || len(etcd.Endpoints) > 0 && (!s.managed || etcd.Secret != "" && etcd.Trust != "")
	return s.Status.Image != "" && known && s.Report.Met(v1alpha1.ConditionReferenceValid)
}

// scale changes only the number of pods of a StatefulSet.
func (s *Scope) scale(ctx context.Context, live *appsv1.StatefulSet) error {
	wanted := s.Spec.Replicas
	if live.Name == "" || wanted == nil || workload.Wanted(live) == *wanted || !metav1.IsControlledBy(live, s.Owner) {
		return nil
	}
	scaled := live.DeepCopy()
	scaled.Spec.Replicas = wanted
	return s.Patch(ctx, scaled, client.MergeFrom(live), client.FieldOwner(apply.FieldOwner))
}

// waitsForEtcd reports whether the component needs an etcd.
func (s *Scope) waitsForEtcd() bool {
	return slices.Contains(s.Prerequisites, v1alpha1.ConditionEtcdReady)
}

// podFields names the fields of a spec that decide what the pods ask for.
func podFields(spec *v1alpha1.ComponentSpec) string {
	switch {
	case len(spec.ExtraVolumes) == 0:
		return "spec.deploymentTemplate"
	case spec.DeploymentTemplate == nil:
		return "spec.extraVolumes"
	}
	return "spec.deploymentTemplate, spec.extraVolumes"
}

// optional creates the optional objects that the spec enables, and removes the others.
func (s *Scope) optional(ctx context.Context, component *workload.Component) error {
	budget, budgetWanted := workload.PodDisruptionBudget(component)
	policy, policyWanted := workload.NetworkPolicy(component)
	monitor, monitorWanted := workload.ServiceMonitor(component)
	autoscaler, autoscalerWanted := workload.Autoscaler(component)
	unmonitored := apply.Optional(ctx, s.Client, s.Owner, monitorWanted, monitor)
	if meta.IsNoMatchError(unmonitored) {
		unmonitored = conditions.Unwatched(Again, workload.NoServiceMonitors())
	}
	return cmp.Or(apply.Optional(ctx, s.Client, s.Owner, budgetWanted, budget),
		apply.Optional(ctx, s.Client, s.Owner, policyWanted, policy),
		apply.Optional(ctx, s.Client, s.Owner, autoscalerWanted, autoscaler), unmonitored)
}

// Available reports whether the component is available, and whether all pods are up to date.
func (s *Scope) Available(ctx context.Context) {
	set := &appsv1.StatefulSet{}
	err := s.Get(ctx, client.ObjectKey{Namespace: s.Owner.GetNamespace(), Name: s.Workload}, set)
	switch {
	case apierrors.IsNotFound(err):
		s.Report.Set(v1alpha1.ConditionAvailable,
			cmp.Or(s.former(ctx), conditions.Wait("NotCreated", "StatefulSet %s does not exist yet", s.Workload)))
		return
	case err != nil:
		s.Report.Set(v1alpha1.ConditionAvailable, err)
		return
	}
	s.record(ctx, set)
	wanted, trouble := workload.Wanted(set), workload.Trouble{}
	s.Status.Replicas, s.Status.Selector = set.Status.Replicas, labels.SelectorFromSet(s.Selector).String()
	s.Status.Pods = fmt.Sprintf("%d/%d", set.Status.ReadyReplicas, wanted)
	if set.Status.ReadyReplicas < wanted {
		trouble = s.trouble(ctx)
	}
	switch {
	case wanted == 0:
		s.Report.Set(v1alpha1.ConditionAvailable, conditions.Stall(conditions.ScaledToZero, "spec.replicas is 0: kcp is turned off"))
	case set.Status.ReadyReplicas == 0:
		s.Report.Set(v1alpha1.ConditionAvailable,
			trouble.Because("NoPodReady", "waiting for StatefulSet %s: none of %d pods is ready", set.Name, wanted))
	default:
		s.Report.Set(v1alpha1.ConditionAvailable, nil)
	}
	if s.set != nil {
		applied, err := apply.Applied(s.Scheme(), s.Owner, s.set, set)
		if err != nil || !applied {
			s.Report.Set(conditions.Rest,
				cmp.Or(err, conditions.Wait("RollingOut", "waiting for the change of StatefulSet %s to be observed", set.Name)))
		}
	}
	if !workload.RolledOut(set) {
		s.Report.Set(conditions.Rest, trouble.Because("RollingOut", "waiting for StatefulSet %s: %d of %d pods are ready, %d are up to date",
			set.Name, set.Status.ReadyReplicas, wanted, set.Status.UpdatedReplicas))
	}
}

// trouble returns why pods do not run. While etcd does not answer, they wait for etcd.
func (s *Scope) trouble(ctx context.Context) workload.Trouble {
	pods, err := s.podsOf(ctx)
	if err != nil {
		return workload.Trouble{}
	}
	if !s.waitsForEtcd() || s.Report.Met(v1alpha1.ConditionEtcdReady) {
		return workload.FindTrouble(pods, workload.CorrectImage, "it runs but is not ready, check its log", time.Now())
	}
	return workload.FindTrouble(pods, workload.CorrectImage, "it waits for etcd", time.Now()).Passing()
}
