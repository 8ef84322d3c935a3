// Package component takes the steps that the reconcilers of all components have in common: certificates and the trust in them, an etcd,
// references, pods, and their state in the status.
package component

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/conditions"
	"github.com/kcplane/kcp/operator/internal/settings"
	"github.com/kcplane/kcp/operator/internal/workload"
)

// Again is the interval of checks for changes that no watch reports.
const Again = 30 * time.Second

// Environment is what the reconcilers of all components use.
type Environment struct {
	client.Client
	// Live bypasses the cache. With an outdated status from the cache, a necessary write of the status could be skipped.
	Live     client.Reader
	Recorder events.EventRecorder
	// DefaultImage is the image of components whose spec has none, as repository:tag.
	DefaultImage string
	// Namespace is the namespace of the operator. Empty: unknown.
	Namespace string
	// Pods are the limits of this installation for pods.
	Pods workload.Security
	// EtcdChecker checks external etcds. Nil: they count as available.
	EtcdChecker *EtcdChecker
}

// Read reads the object of a request, past the cache, and reports whether it exists. If it does not, what is known about its etcd is
// forgotten.
func (e *Environment) Read(ctx context.Context, request ctrl.Request, into client.Object) (exists bool, err error) {
	err = e.Live.Get(ctx, request.NamespacedName, into)
	if apierrors.IsNotFound(err) && e.EtcdChecker != nil {
		e.EtcdChecker.Forget(request.NamespacedName)
	}
	return err == nil, client.IgnoreNotFound(err)
}

// Scope is the state of one reconciliation of a component.
type Scope struct {
	*Environment
	// Owner is the object, and Spec and Status are parts of it.
	Owner  client.Object
	Spec   *v1alpha1.ComponentSpec
	Status *v1alpha1.ComponentStatus
	// Workload is the name of the StatefulSet and of the Service, and Container that of the container that serves.
	Workload, Container string
	// Labels are those of certificates and Secrets, and Selector those of the pods.
	Labels, Selector map[string]string
	// DefaultReplicas is the number of pods unless the spec or an autoscaler sets another one.
	DefaultReplicas int32
	// Follows is the image of the RootShard, which components without an image in their spec have, too. Empty: they keep theirs.
	Follows string
	// Turn is why the component does not get another image yet. Nil: it may. It does not stop an upgrade that has begun.
	Turn func(ctx context.Context, image string) error
	// Follower is the name of a StatefulSet whose pods have the files of the component, and FollowerSelector has their labels. Empty: there
	// is none.
	Follower         string
	FollowerSelector map[string]string
	// Prerequisites are the conditions without which pods are not changed.
	Prerequisites []string
	// Later are the conditions that are checked when the component is available.
	Later []string
	// Report collects the conditions.
	Report *conditions.Report
	// Etcd stores the data. Components without data have none.
	Etcd settings.Etcd
	// Inputs are hashes of the data that the component reads only when it starts.
	Inputs map[string]string
	// Related is what else the pods depend on, besides the spec of the owner.
	Related []any
	// After is the time until the next reconciliation that no watch triggers, such as the time until the renewal of a certificate is overdue.
	After time.Duration

	// built is the component of the pods, and set the applied StatefulSet. Both may be nil.
	built *workload.Component
	set   *appsv1.StatefulSet
	// held reports whether the component keeps the image with which it has run, whatever its spec says.
	held bool
	// managed reports whether the operator creates the etcd.
	managed  bool
	leaves   []client.Object
	rotation rotation
	found    map[string]*corev1.Secret
}

// Begin completes a scope.
func (s *Scope) Begin() {
	all := append(slices.Clone(s.Prerequisites), v1alpha1.ConditionAvailable)
	s.Report = conditions.NewReport(slices.Concat(all, s.Later, []string{conditions.Rest})...)
	s.Inputs, s.found = map[string]string{}, map[string]*corev1.Secret{}
	s.DefaultReplicas = cmp.Or(s.DefaultReplicas, 2)
}

// End writes the status of the owner, compared with the one before, and returns the result of the reconciliation.
func (s *Scope) End(ctx context.Context, before client.Object, was []metav1.Condition) (ctrl.Result, error) {
	status := s.Status
	s.Report.Write(&status.Conditions, s.Owner.GetGeneration())
	status.ObservedGeneration = s.Owner.GetGeneration()
	switch {
	case !s.Owner.GetDeletionTimestamp().IsZero():
		status.Phase = v1alpha1.PhaseDeleting
	case s.Report.Met(v1alpha1.ConditionAvailable):
		status.Phase = v1alpha1.PhaseRunning
	case s.Report.Stalled():
		status.Phase = v1alpha1.PhaseFailed
	default:
		status.Phase = v1alpha1.PhaseProvisioning
	}
	if err := conditions.Save(ctx, s.Client, s.Recorder, before, s.Owner, was, status.Conditions); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: conditions.Earliest(s.Report.After(), s.After)}, s.Report.Err()
}

// Ignored records an event if fields are set that have no effect. It reports each generation once.
func (s *Scope) Ignored(fields []string) {
	if len(fields) > 0 && s.Status.ObservedGeneration != s.Owner.GetGeneration() {
		s.Recorder.Eventf(s.Owner, nil, corev1.EventTypeWarning, "FieldsIgnored", "Check",
			"these fields are accepted for compatibility and have no effect: %s", strings.Join(fields, "; "))
	}
}
