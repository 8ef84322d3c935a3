package admission

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// lifecycle refuses to create objects in logical clusters and namespaces that do not exist or are being deleted, and to delete the default
// namespaces.
type lifecycle struct {
	*admission.Handler
	config Config
}

var _ admission.ValidationInterface = &lifecycle{}

// immortalNamespaces cannot be deleted while their cluster exists.
var immortalNamespaces = sets.New(metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic)

func newLifecycle(config Config) *lifecycle {
	return &lifecycle{Handler: handles(admission.Create, admission.Delete), config: config}
}

// Validate implements admission.ValidationInterface.
func (l *lifecycle) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	resource := a.GetResource().GroupResource()
	if isReview(a) || resource == logicalClusterResource {
		return nil
	}
	if a.GetOperation() == admission.Delete {
		if resource == namespaceResource && immortalNamespaces.Has(a.GetName()) {
			return l.validateNamespaceDeletion(ctx, a, cluster)
		}
		return nil
	}
	if err := l.validateCluster(ctx, a, cluster); err != nil {
		return err
	}
	if a.GetNamespace() == "" || resource == namespaceResource {
		return nil
	}
	return l.validateNamespace(ctx, a, cluster)
}

func (l *lifecycle) validateNamespaceDeletion(ctx context.Context, a admission.Attributes, cluster logicalcluster.Name) error {
	lc, err := l.logicalCluster(ctx, cluster)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if err == nil && lc.DeletionTimestamp == nil {
		return forbidden(a, "this namespace may not be deleted")
	}
	return nil
}

// validateCluster refuses objects in clusters that do not exist or are being deleted. Only administrators of the shard can send requests to
// clusters that do not exist.
func (l *lifecycle) validateCluster(ctx context.Context, a admission.Attributes, cluster logicalcluster.Name) error {
	if cluster.IsSystem() {
		return nil
	}
	lc, err := l.logicalCluster(ctx, cluster)
	if apierrors.IsNotFound(err) {
		return forbidden(a, "logical cluster %q does not exist: create its LogicalCluster object first", cluster)
	}
	if err != nil {
		return err
	}
	// The phase is stored later, and only if the deletion takes long.
	deleting := lc.DeletionTimestamp != nil && len(lc.Status.Terminators) == 0
	if deleting || lc.Status.Phase == corev1alpha1.LogicalClusterPhaseDeleting {
		return withCause(forbidden(a, "the logical cluster %q is being deleted", cluster),
			metav1.StatusCause{Type: logicalcluster.TerminatingCause, Message: fmt.Sprintf("logical cluster %s is being deleted", cluster)})
	}
	return nil
}

// logicalCluster returns the LogicalCluster of a cluster from memory, or from the storage if the informers do not have it yet.
func (l *lifecycle) logicalCluster(ctx context.Context, cluster logicalcluster.Name) (*corev1alpha1.LogicalCluster, error) {
	l.config.Set.LogicalClusters.Current(ctx, cluster)
	lc, err := l.config.Set.LogicalClusters.Get(cluster, "", corev1alpha1.LogicalClusterName)
	if !apierrors.IsNotFound(err) {
		return lc, err
	}
	resource := corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters")
	live, err := l.config.Dynamic.Resource(resource).Get(ctx, corev1alpha1.LogicalClusterName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	lc = &corev1alpha1.LogicalCluster{}
	return lc, decode(live, lc)
}

func (l *lifecycle) validateNamespace(ctx context.Context, a admission.Attributes, cluster logicalcluster.Name) error {
	name := a.GetNamespace()
	terminating := func(n *corev1.Namespace) bool {
		return n.DeletionTimestamp != nil || n.Status.Phase == corev1.NamespaceTerminating
	}
	l.config.Set.Namespaces.Current(ctx, cluster)
	namespace, err := l.config.Set.Namespaces.Get(cluster, "", name)
	if apierrors.IsNotFound(err) || (err == nil && terminating(namespace)) { // another server may have just created it
		namespace, err = l.config.Kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	}
	if err != nil || !terminating(namespace) {
		return err
	}
	return withCause(forbidden(a, "unable to create new content in namespace %s because it is being terminated", name), metav1.StatusCause{
		Type: corev1.NamespaceTerminatingCause, Message: fmt.Sprintf("namespace %s is being terminated", name), Field: "metadata.namespace",
	})
}

// withCause adds a cause to the Status of a refusal. Clients identify the refusal by the cause.
func withCause(refusal error, cause metav1.StatusCause) error {
	if status := (*apierrors.StatusError)(nil); errors.As(refusal, &status) && status.ErrStatus.Details != nil {
		status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, cause)
	}
	return refusal
}
