package etcdcluster

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/conditions"
)

// measure observes whether volumes must be expanded.
func (s *scope) measure(observed *clusterSnapshot) {
	want := volumeSize(s.cluster)
	observed.growing = observed.stateful == nil && s.grows() || observed.stateful != nil && want.Cmp(*templateSize(observed)) > 0
}

// grows reports whether the operation in the status is the expansion of volumes.
func (s *scope) grows() bool {
	under := s.cluster.Status.Operation
	return under != nil && under.Type == v1alpha1.EtcdGrowVolume
}

// growVolumes expands the volumes, and then deletes the StatefulSet, because its volume template is immutable; the pods are kept. The next
// reconciliation creates the StatefulSet again.
func (s *scope) growVolumes(ctx context.Context, observed *clusterSnapshot) error {
	want := volumeSize(s.cluster)
	for i := range observed.claims {
		volume := &observed.claims[i]
		if want.Cmp(*volume.Spec.Resources.Requests.Storage()) <= 0 {
			continue
		}
		before := volume.DeepCopy()
		volume.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: want}
		err := s.Patch(ctx, volume, client.MergeFrom(before))
		if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
			return conditions.Stall(reasonNoExpansion,
				"spec.storage.size: PersistentVolumeClaim %s cannot be expanded, because its StorageClass does not "+
					"allow it: set allowVolumeExpansion there, if its volumes can grow, or restore a snapshot into a new cluster", volume.Name)
		}
		if err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	err := s.Delete(ctx, observed.stateful, client.Preconditions{UID: &observed.stateful.UID},
		client.PropagationPolicy(metav1.DeletePropagationOrphan))
	return client.IgnoreNotFound(err)
}
