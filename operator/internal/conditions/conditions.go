// Package conditions converts the results of a reconciliation into conditions, as in kstatus: Ready, Reconciling and Stalled summarize one
// condition for each dependency of the object.
package conditions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/apply"
)

// Blocked is an error for which a retry is useless. A watch triggers a reconciliation when its cause has changed, unless After is set.
type Blocked struct {
	// Reason is a word in CamelCase for programs. Message names the object that the reconciler waits for.
	Reason, Message string
	// Stalled means that a user must change something.
	Stalled bool
	// After is when to reconcile again, if no watch reports the change. Zero: a watch does.
	After time.Duration
}

func (b *Blocked) Error() string { return b.Message }

// Wait returns an error for something that is in progress.
func Wait(reason, format string, args ...any) error {
	return &Blocked{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Stall returns an error for something that a user must change.
func Stall(reason, format string, args ...any) error {
	return &Blocked{Reason: reason, Message: fmt.Sprintf(format, args...), Stalled: true}
}

// Unwatched sets, in an error of Wait or Stall, when to reconcile again, for a cause that no watch reports.
func Unwatched(after time.Duration, err error) error {
	if blocked := (*Blocked)(nil); errors.As(err, &blocked) {
		blocked.After = after
	}
	return err
}

// ScaledToZero is the reason of an object whose spec.replicas is 0, and of an object that waits for such an object.
const ScaledToZero = "ScaledToZero"

// Rest is a dependency without its own condition: only Ready reports it.
const Rest = ""

// Report collects the states of the dependencies of an object.
type Report struct {
	dependencies []string
	found        map[string]error
	failed       []error
}

// NewReport returns an empty report. Dependencies are types of conditions; Ready has the message of the first one that is not met.
func NewReport(dependencies ...string) *Report {
	return &Report{dependencies: dependencies, found: map[string]error{}}
}

// Set records that a dependency is met, or an error. The first error of a dependency is kept.
func (r *Report) Set(dependency string, err error) {
	if r.found[dependency] == nil {
		r.found[dependency] = err
	}
	if blocked := (*Blocked)(nil); err != nil && !errors.As(err, &blocked) && !isTaken(err) {
		r.failed = append(r.failed, err)
	}
}

// Err returns the errors for which a retry is useful.
func (r *Report) Err() error { return errors.Join(r.failed...) }

// After returns when to reconcile again because of dependencies that no watch reports. Zero: watches report all of them.
func (r *Report) After() time.Duration {
	after := time.Duration(0)
	for _, err := range r.found {
		if err != nil {
			after = Earliest(after, Cause(err).After)
		}
	}
	return after
}

// Earliest returns the shortest duration that is not zero, or zero.
func Earliest(times ...time.Duration) time.Duration {
	return slices.MinFunc(times, func(a, b time.Duration) int {
		return cmp.Compare(uint64(a-1), uint64(b-1)) // zero comes last
	})
}

// Met reports whether dependencies are met.
func (r *Report) Met(dependencies ...string) bool {
	for _, dependency := range dependencies {
		if err, known := r.found[dependency]; err != nil || !known && dependency != Rest {
			return false
		}
	}
	return true
}

// Ready reports whether all dependencies are met.
func (r *Report) Ready() bool { return r.Met(r.dependencies...) }

// Stalled reports whether a user must change something.
func (r *Report) Stalled() bool {
	for _, err := range r.found {
		if err != nil && Cause(err).Stalled {
			return true
		}
	}
	return false
}

// Write sets the conditions.
func (r *Report) Write(conditions *[]metav1.Condition, generation int64) {
	set := func(name string, status bool, reason, message string) {
		if name == Rest {
			return
		}
		condition := metav1.Condition{Type: name, Status: metav1.ConditionFalse, Reason: reason, Message: message, ObservedGeneration: generation}
		if status {
			condition.Status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(conditions, condition)
	}
	var first, stalled *Blocked
	prerequisite := v1alpha1.ConditionReady // reports dependencies without their own condition
	for _, dependency := range r.dependencies {
		err, known := r.found[dependency]
		switch {
		case err != nil:
			blocked := Cause(err)
			if first == nil {
				first, prerequisite = blocked, cmp.Or(dependency, prerequisite)
			}
			if stalled == nil && blocked.Stalled {
				stalled = blocked
			}
			set(dependency, false, blocked.Reason, blocked.Message)
		case known:
			set(dependency, true, "AsExpected", "")
		case dependency != Rest:
			meta.SetStatusCondition(conditions, metav1.Condition{Type: dependency, Status: metav1.ConditionUnknown, Reason: "PrerequisiteNotMet",
				Message: "a prerequisite is not met, see condition " + prerequisite, ObservedGeneration: generation})
		}
	}
	switch {
	case stalled != nil:
		set(v1alpha1.ConditionReady, false, stalled.Reason, stalled.Message)
		set(v1alpha1.ConditionReconciling, false, stalled.Reason, "action required, see condition Stalled")
		set(v1alpha1.ConditionStalled, true, stalled.Reason, stalled.Message)
	case first != nil:
		set(v1alpha1.ConditionReady, false, first.Reason, first.Message)
		set(v1alpha1.ConditionReconciling, true, first.Reason, first.Message)
		set(v1alpha1.ConditionStalled, false, "Progressing", "")
	default:
		set(v1alpha1.ConditionReady, true, "Reconciled", "all resources match the spec")
		set(v1alpha1.ConditionReconciling, false, "Reconciled", "")
		set(v1alpha1.ConditionStalled, false, "Reconciled", "")
	}
}

// whileTaken is the interval of checks whether a conflicting object still exists, because objects of others are not watched.
const whileTaken = 30 * time.Second

// Cause converts an error to the reason and message of a condition.
func Cause(err error) *Blocked {
	var blocked *Blocked
	if errors.As(err, &blocked) {
		return blocked
	}
	if isTaken(err) {
		return &Blocked{Reason: "NameConflict", Message: err.Error(), Stalled: true, After: whileTaken}
	}
	// cert-manager returns NotAcceptable; the usual cause is what the spec adds to the object
	if apierrors.IsInvalid(err) || apierrors.IsNotAcceptable(err) {
		return &Blocked{Reason: "ObjectRejected", Message: err.Error(), Stalled: true}
	}
	return &Blocked{Reason: "ReconcileError", Message: err.Error()}
}

func isTaken(err error) bool {
	var taken *apply.TakenError
	return errors.As(err, &taken)
}

// Save writes the status of an object if it changed, and records an event if its readiness changed or there is a new warning. With an
// outdated copy of the object, the same change and event could be written twice: in that case, nothing is written, and the error is a
// conflict.
func Save(ctx context.Context, c client.Client, recorder events.EventRecorder, before, after client.Object, was,
	is []metav1.Condition) error {
	if equality.Semantic.DeepEqual(before, after) {
		return nil
	}
	warning, ready := warned(was, is), changed(was, is)
	patch := client.MergeFrom(before)
	if warning != nil || ready != nil {
		from := before.DeepCopyObject().(client.Object)
		from.SetResourceVersion(after.GetResourceVersion()) // another write of the reconciler may have changed it
		patch = client.MergeFromWithOptions(from, client.MergeFromWithOptimisticLock{})
	}
	if err := c.Status().Patch(ctx, after, patch); err != nil {
		return client.IgnoreNotFound(err)
	}
	if warning != nil {
		recorder.Eventf(after, nil, "Warning", warning.Reason, "Reconcile", "%.1000s", warning.Message)
	}
	if ready == nil {
		return nil
	}
	kind := "Normal"
	if meta.IsStatusConditionTrue(is, v1alpha1.ConditionStalled) || meta.IsStatusConditionTrue(is, v1alpha1.ConditionQuorumLost) {
		kind = "Warning"
	}
	recorder.Eventf(after, nil, kind, ready.Reason, "Reconcile", "%.1000s", ready.Message) // an API server accepts at most 1024
	return nil
}

// warnings are the types of conditions that warn while they are True.
var warnings = []string{v1alpha1.ConditionCertificatesExpiring, v1alpha1.ConditionEtcdShared}

// warned returns the first condition that is a new warning.
func warned(was, is []metav1.Condition) *metav1.Condition {
	for _, name := range warnings {
		if meta.IsStatusConditionTrue(is, name) && !meta.IsStatusConditionTrue(was, name) {
			return meta.FindStatusCondition(is, name)
		}
	}
	return nil
}

// changed returns the condition Ready if its status or reason changed.
func changed(was, is []metav1.Condition) *metav1.Condition {
	old, now := meta.FindStatusCondition(was, v1alpha1.ConditionReady), meta.FindStatusCondition(is, v1alpha1.ConditionReady)
	if now == nil || old != nil && old.Status == now.Status && old.Reason == now.Reason {
		return nil
	}
	return now
}
