package informers

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// IsDeleted reports whether the content of a logical cluster is being deleted: nothing that the deletion removes may be created again.
// known is false if there is no LogicalCluster, because it is deleted, or because its event may arrive later than those of its content. The
// clusters of the system have none, and are never deleted.
func (s *Set) IsDeleted(cluster logicalcluster.Name) (deleted, known bool) {
	if cluster.IsSystem() {
		return false, true
	}
	lc, err := s.LogicalClusters.Get(cluster, "", corev1alpha1.LogicalClusterName)
	if err != nil {
		return false, !apierrors.IsNotFound(err)
	}
	return lc.DeletionTimestamp != nil && len(lc.Status.Terminators) == 0, true
}
