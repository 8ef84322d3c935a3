package admission

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/auth/authorization"
)

// logicalClusterRules protects the LogicalCluster of each cluster, and adds the finalizer that keeps it until its content is deleted.
type logicalClusterRules struct{}

var (
	_ admission.MutationInterface   = logicalClusterRules{}
	_ admission.ValidationInterface = logicalClusterRules{}
)

// exempt are the groups that may change LogicalClusters like the server itself.
var exempt = []string{user.SystemPrivilegedGroup, authorization.LogicalClusterAdminGroup, authorization.ExternalAdminGroup,
	authorization.WorkspaceBootstrapper}

func isExempt(ctx context.Context, a admission.Attributes) bool {
	return slices.ContainsFunc(authorization.GroupsIn(ctx, a.GetUserInfo()), func(g string) bool { return slices.Contains(exempt, g) })
}

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
func (logicalClusterRules) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != logicalClusterResource {
		return nil
	}
	if step, ok := ctx.Value(stepKey{}).(step); ok {
		return validateStep(a, step)
	}
	if err := validateLimit(ctx, a); err != nil {
		return err
	}
	if err := validateRequiredGroups(ctx, a); err != nil {
		return err
	}
	if isExempt(ctx, a) || (a.GetSubresource() == "status" && mayAdminister(ctx, a)) {
		return nil
	}
	old := &corev1alpha1.LogicalCluster{}
	if a.GetOldObject() != nil {
		if err := decode(a.GetOldObject(), old); err != nil {
			return err
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
		return err
	}
	if problem := changeProblem(old, obj); problem != "" {
		return forbidden(a, "%s", problem)
	}
	return nil
}

// validateLimit refuses changes of the object limit by users who do not administer the installation, and values that are not numbers.
func validateLimit(ctx context.Context, a admission.Attributes) error {
	if a.GetOperation() == admission.Delete {
		return nil
	}
	limit, before := annotations(a.GetObject())[corev1alpha1.MaxTotalObjectsAnnotation], ""
	if a.GetOldObject() != nil {
		before = annotations(a.GetOldObject())[corev1alpha1.MaxTotalObjectsAnnotation]
	}
	if limit == before {
		return nil
	}
	if !mayAdminister(ctx, a) {
		return forbidden(a, "annotation %s can only be changed by administrators of the installation", corev1alpha1.MaxTotalObjectsAnnotation)
	}
	if _, err := strconv.ParseInt(limit, 10, 64); err != nil && limit != "" {
		return invalid(a, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "annotations").Key(corev1alpha1.MaxTotalObjectsAnnotation), limit,
				"must be an integer; zero or less means no limit"),
		})
	}
	return nil
}

// validateRequiredGroups refuses changes of the groups that users of a logical cluster must have, by users who do not administer the
// installation. A new logical cluster has the groups of the workspace above it.
func validateRequiredGroups(ctx context.Context, a admission.Attributes) error {
	const key = corev1alpha1.RequiredGroupsAnnotation
	if a.GetOperation() != admission.Update || mayAdminister(ctx, a) || annotations(a.GetObject())[key] == annotations(a.GetOldObject())[key] {
		return nil
	}
	return forbidden(a, "annotation %s can only be changed by administrators of the installation", key)
}

// mayAdminister reports whether the user of a request administers the installation, or is the server itself.
func mayAdminister(ctx context.Context, a admission.Attributes) bool {
	return authorization.Administers(authorization.GroupsIn(ctx, a.GetUserInfo()))
}

// treeAnnotations are the annotations with the type of a logical cluster, its place in the tree and its shard. Users cannot change them.
var treeAnnotations = []string{
	corev1alpha1.PathAnnotation, tenancyv1alpha1.TypeAnnotation, tenancyv1alpha1.TypeClusterAnnotation, tenancyv1alpha1.ShardAnnotation,
	tenancyv1alpha1.EpochAnnotation, tenancyv1alpha1.AncestorsAnnotation, tenancyv1alpha1.OwnerShardAnnotation,
	tenancyv1alpha1.SignersAnnotation,
}

// changeProblem returns why an update by an ordinary user is refused, or an empty string if it is admitted.
func changeProblem(old, obj *corev1alpha1.LogicalCluster) string {
	switch {
	case !slices.Equal(old.Spec.Initializers, obj.Spec.Initializers):
		return "spec.initializers is immutable"
	case !reflect.DeepEqual(old.Spec.CreatedBy, obj.Spec.CreatedBy):
		return "spec.createdBy is immutable"
	case !reflect.DeepEqual(old.Spec.Owner, obj.Spec.Owner):
		return "spec.owner is immutable"
	case slices.ContainsFunc(treeAnnotations, func(key string) bool { return annotations(old)[key] != annotations(obj)[key] }):
		return fmt.Sprintf("annotations %s are immutable", strings.Join(treeAnnotations, ", "))
	case !slices.Equal(old.Status.Initializers, obj.Status.Initializers), !slices.Equal(old.Status.Terminators, obj.Status.Terminators):
		return "status.initializers and status.terminators are changed by their controllers only: each removes its own entry in the virtual " +
			"workspace of its type"
	case old.Status.Phase != obj.Status.Phase, old.Status.URL != obj.Status.URL:
		return "status.phase and status.URL are set by the system"
	case !subset(systemFinalizers(old), systemFinalizers(obj)):
		return fmt.Sprintf("the finalizers %s and %s are removed by the system when all content is deleted", corev1alpha1.DeletionFinalizer,
			corev1alpha1.TerminatorsFinalizer)
	case annotations(old)[corev1alpha1.InactiveAnnotation] != annotations(obj)[corev1alpha1.InactiveAnnotation] &&
		old.Status.Phase != corev1alpha1.LogicalClusterPhaseReady && old.Status.Phase != corev1alpha1.LogicalClusterPhaseInactive:
		return fmt.Sprintf("annotation %s can be changed only while the phase is Ready or Inactive", corev1alpha1.InactiveAnnotation)
	}
	return ""
}

// systemFinalizers returns the finalizers with which the system prevents that a logical cluster is deleted.
func systemFinalizers(lc *corev1alpha1.LogicalCluster) []string {
	return slices.DeleteFunc(slices.Clone(lc.Finalizers), func(f string) bool {
		return f != corev1alpha1.DeletionFinalizer && f != corev1alpha1.TerminatorsFinalizer
	})
}

func subset[T comparable](some, all []T) bool {
	for _, s := range some {
		if !slices.Contains(all, s) {
			return false
		}
	}
	return true
}

// step is the initializer or terminator of the controller that sends a request.
type step struct {
	initializer corev1alpha1.LogicalClusterInitializer
	terminator  corev1alpha1.LogicalClusterTerminator
}

type stepKey struct{}

// WithInitializer returns a context in which an update of a LogicalCluster may remove this initializer and change conditions only.
func WithInitializer(ctx context.Context, id corev1alpha1.LogicalClusterInitializer) context.Context {
	return context.WithValue(ctx, stepKey{}, step{initializer: id})
}

// WithTerminator returns a context in which an update of a LogicalCluster may remove this terminator and change conditions only.
func WithTerminator(ctx context.Context, id corev1alpha1.LogicalClusterTerminator) context.Context {
	return context.WithValue(ctx, stepKey{}, step{terminator: id})
}

// validateStep refuses all changes except the removal of the step of the controller, and changes of conditions.
func validateStep(a admission.Attributes, own step) error {
	old, obj := &corev1alpha1.LogicalCluster{}, &corev1alpha1.LogicalCluster{}
	if a.GetOperation() != admission.Update || a.GetSubresource() != "status" {
		return forbidden(a, "only the status can be updated")
	}
	if err := decodeBoth(a, obj, old); err != nil {
		return err
	}
	initializers := slices.DeleteFunc(slices.Clone(old.Status.Initializers),
		func(i corev1alpha1.LogicalClusterInitializer) bool { return i == own.initializer })
	terminators := slices.DeleteFunc(slices.Clone(old.Status.Terminators),
		func(t corev1alpha1.LogicalClusterTerminator) bool { return t == own.terminator })
	switch {
	case !slices.Equal(obj.Status.Initializers, old.Status.Initializers) && !slices.Equal(obj.Status.Initializers, initializers):
		return forbidden(a, "status.initializers: only %q can be removed, other entries cannot be changed", own.initializer)
	case !slices.Equal(obj.Status.Terminators, old.Status.Terminators) && !slices.Equal(obj.Status.Terminators, terminators):
		return invalid(a, field.ErrorList{field.Invalid(field.NewPath("status", "terminators"), obj.Status.Terminators,
			fmt.Sprintf("only removing the %q terminator is supported", own.terminator))})
	case obj.Status.Phase != old.Status.Phase || obj.Status.URL != old.Status.URL:
		return forbidden(a, "status.phase and status.URL are set by the system")
	}
	return nil
}
