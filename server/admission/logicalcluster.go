package admission

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/authorization"
)

// logicalClusterRules guard the one LogicalCluster object of each cluster, and hold it until its content is deleted.
type logicalClusterRules struct{}

var (
	_ admission.MutationInterface   = logicalClusterRules{}
	_ admission.ValidationInterface = logicalClusterRules{}
)

// exempt are the groups that may do with LogicalClusters what the server itself does.
var exempt = []string{user.SystemPrivilegedGroup, authorization.LogicalClusterAdminGroup, authorization.ExternalAdminGroup, authorization.WorkspaceBootstrapper}

// Handles implements admission.Interface.
func (logicalClusterRules) Handles(op admission.Operation) bool { return op != admission.Connect }

// Admit implements admission.MutationInterface.
func (logicalClusterRules) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != logicalClusterResource || a.GetSubresource() != "" || a.GetOperation() == admission.Delete {
		return nil
	}
	m, err := meta.Accessor(a.GetObject())
	if err != nil {
		return fmt.Errorf("%w: %w", errUnexpected, err)
	}
	if finalizers := m.GetFinalizers(); m.GetDeletionTimestamp() == nil && !slices.Contains(finalizers, corev1alpha1.DeletionFinalizer) {
		m.SetFinalizers(append(slices.Clone(finalizers), corev1alpha1.DeletionFinalizer))
	}
	return nil
}

// Validate implements admission.ValidationInterface.
func (logicalClusterRules) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != logicalClusterResource {
		return nil
	}
	for _, group := range a.GetUserInfo().GetGroups() {
		if slices.Contains(exempt, group) {
			return nil
		}
	}
	old := &corev1alpha1.LogicalCluster{}
	if a.GetOldObject() != nil {
		if err := decode(a.GetOldObject(), old); err != nil {
			return fmt.Errorf("%w: %w", errUnexpected, err)
		}
	}
	switch a.GetOperation() {
	case admission.Create:
		return forbidden(a, "LogicalClusters are created by the system")
	case admission.Delete:
		if !old.Spec.DirectlyDeletable {
			return forbidden(a, "LogicalCluster cannot be deleted directly; delete its owner instead")
		}
		return nil
	}
	obj := &corev1alpha1.LogicalCluster{}
	if err := decode(a.GetObject(), obj); err != nil {
		return fmt.Errorf("%w: %w", errUnexpected, err)
	}
	if problem := changeProblem(old, obj); problem != "" {
		return forbidden(a, "%s", problem)
	}
	return nil
}

// order of the phases that users may bring forward.
var order = map[corev1alpha1.LogicalClusterPhase]int{
	"": 1, corev1alpha1.LogicalClusterPhaseScheduling: 2, corev1alpha1.LogicalClusterPhaseInitializing: 3, corev1alpha1.LogicalClusterPhaseReady: 4,
}

// changeProblem returns what is wrong with an update by an ordinary user, empty if nothing.
func changeProblem(old, obj *corev1alpha1.LogicalCluster) string {
	initializing := old.Status.Phase == corev1alpha1.LogicalClusterPhaseInitializing
	switch {
	case !slices.Equal(old.Spec.Initializers, obj.Spec.Initializers):
		return "spec.initializers is immutable"
	case !reflect.DeepEqual(old.Spec.CreatedBy, obj.Spec.CreatedBy):
		return "spec.createdBy is immutable"
	case !reflect.DeepEqual(old.Spec.Owner, obj.Spec.Owner):
		return "spec.owner is immutable"
	case annotations(old)[corev1alpha1.PathAnnotation] != annotations(obj)[corev1alpha1.PathAnnotation],
		annotations(old)[tenancyv1alpha1.TypeAnnotation] != annotations(obj)[tenancyv1alpha1.TypeAnnotation]:
		return fmt.Sprintf("annotations %s and %s are immutable", corev1alpha1.PathAnnotation, tenancyv1alpha1.TypeAnnotation)
	case initializing && !subset(obj.Status.Initializers, old.Status.Initializers):
		return "status.initializers must not grow"
	case !initializing && !slices.Equal(old.Status.Initializers, obj.Status.Initializers):
		return "status.initializers is immutable after initializing"
	case !subset(obj.Status.Terminators, old.Status.Terminators):
		return "status.terminators must not grow"
	case annotations(old)[corev1alpha1.InactiveAnnotation] != annotations(obj)[corev1alpha1.InactiveAnnotation] &&
		old.Status.Phase != corev1alpha1.LogicalClusterPhaseReady && old.Status.Phase != corev1alpha1.LogicalClusterPhaseInactive:
		return fmt.Sprintf("annotation %s can be changed only while the phase is Ready or Inactive", corev1alpha1.InactiveAnnotation)
	}
	return phaseProblem(old.Status.Phase, obj)
}

func phaseProblem(from corev1alpha1.LogicalClusterPhase, obj *corev1alpha1.LogicalCluster) string {
	to := obj.Status.Phase
	if from == to {
		return ""
	}
	if order[from] == 0 || order[to] <= order[from] {
		return fmt.Sprintf("status.phase cannot change from %q to %q", from, to)
	}
	if from == corev1alpha1.LogicalClusterPhaseInitializing && len(obj.Status.Initializers) > 0 {
		return "status.phase cannot leave Initializing while status.initializers is not empty"
	}
	return ""
}

func subset[T comparable](some, all []T) bool {
	for _, s := range some {
		if !slices.Contains(all, s) {
			return false
		}
	}
	return true
}
