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

// measure finds out whether volumes are to grow.
func (s *scope) measure(seen *clusterSnapshot) {
	want := volumeSize(s.cluster)
	seen.growing = seen.stateful == nil && s.grows() || seen.stateful != nil && want.Cmp(*templateSize(seen)) > 0
}

// grows reports whether the status says that volumes grow.
func (s *scope) grows() bool {
	under := s.cluster.Status.Operation
	return under != nil && under.Type == v1alpha1.EtcdGrowVolume
}

// growVolumes expands the volumes, and then deletes the StatefulSet, whose template of volumes cannot be changed; the pods stay. The next
// reconciliation creates the StatefulSet again.
func (s *scope) growVolumes(ctx context.Context, seen *clusterSnapshot) error {
	want := volumeSize(s.cluster)
	for i := range seen.claims {
		volume := &seen.claims[i]
		if want.Cmp(*volume.Spec.Resources.Requests.Storage()) <= 0 {
			continue
		}
		before := volume.DeepCopy()
		volume.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: want}
		err := s.Patch(ctx, volume, client.MergeFrom(before))
		if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
			return conditions.Stall(reasonNoExpansion,
				"spec.storage.size: PersistentVolumeClaim %s cannot grow, since its class does not "+
					"allow it: set allowVolumeExpansion there, if its volumes can grow, or restore a snapshot into a new cluster", volume.Name)
		}
		if err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	err := s.Delete(ctx, seen.stateful, client.Preconditions{UID: &seen.stateful.UID},
		client.PropagationPolicy(metav1.DeletePropagationOrphan))
	return client.IgnoreNotFound(err)
}
