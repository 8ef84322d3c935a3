package etcdcluster

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/operator/conditions"
)

// growVolumes asks for larger volumes, and then gives up the StatefulSet, whose template of volumes cannot be changed; the pods
// stay. It is made anew in the next reconciliation, whoever does that. It reports whether there is one to be made.
func (s *scope) growVolumes(ctx context.Context, seen *sight) (bool, error) {
	want := volumeSize(s.cluster)
	if want.Cmp(*templateSize(seen)) <= 0 {
		return false, nil
	}
	for i := range seen.claims {
		volume := &seen.claims[i]
		if want.Cmp(*volume.Spec.Resources.Requests.Storage()) <= 0 {
			continue
		}
		before := volume.DeepCopy()
		volume.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: want}
		err := s.Patch(ctx, volume, client.MergeFrom(before))
		if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
			return false, conditions.Stall("VolumesDoNotGrow", "spec.storage.size: PersistentVolumeClaim %s cannot grow, since its class does not "+
				"allow it: set allowVolumeExpansion there, if its volumes can grow, or restore a snapshot into a new cluster", volume.Name)
		}
		if err != nil {
			return false, client.IgnoreNotFound(err)
		}
	}
	err := s.Delete(ctx, seen.stateful, client.Preconditions{UID: &seen.stateful.UID}, client.PropagationPolicy(metav1.DeletePropagationOrphan))
	return true, client.IgnoreNotFound(err)
}
