package etcdcluster

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/operator/internal/workload"
)

// compare adds to a snapshot how the spec differs from what was observed: the version, the pods, the volumes, and whether it is time to
// defragment. It changes only the snapshot, and the error for the user if the version is refused.
func (s *scope) compare(seen *clusterSnapshot) error {
	current := s.cluster.Status.CurrentVersion
	version, err := chooseVersion(s.cluster.Spec.Version, current, s.Version)
	if err != nil {
		s.userError = err
	}
	seen.version, seen.upgrading = version, current != "" && version != current
	if seen.changing, err = s.changing(seen); err != nil {
		return err
	}
	s.schedule(seen)
	s.measure(seen)
	return nil
}

// changing reports whether pods are asked for that the StatefulSet, or who makes them of it, does not know yet.
func (s *scope) changing(seen *clusterSnapshot) (bool, error) {
	set := seen.stateful
	if set == nil {
		return false, nil
	}
	wanted, held, err := s.wanted(seen, len(seen.pods))
	if err != nil || wanted == nil {
		return false, err
	}
	seen.rolloutHeld = &held
	return held.Status != metav1.ConditionTrue && !workload.Made(set, wanted) || set.Status.ObservedGeneration < set.Generation, nil
}
