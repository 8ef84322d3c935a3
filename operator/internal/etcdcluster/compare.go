package etcdcluster

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/operator/internal/workload"
)

// compare adds the differences between the spec and the observed state to a snapshot: version, pods, volumes, and whether defragmentation
// is due. It changes only the snapshot, and the error for the user if the version is refused.
func (s *scope) compare(observed *clusterSnapshot) error {
	current := s.cluster.Status.CurrentVersion
	version, err := chooseVersion(s.cluster.Spec.Version, current, s.Version)
	if err != nil {
		s.userError = err
	}
	observed.version, observed.upgrading = version, current != "" && version != current
	if observed.changing, err = s.changing(observed); err != nil {
		return err
	}
	s.schedule(observed)
	s.measure(observed)
	return nil
}

// changing reports whether the desired pod template differs from the one in the StatefulSet, or its controller has not observed it yet.
func (s *scope) changing(observed *clusterSnapshot) (bool, error) {
	set := observed.stateful
	if set == nil {
		return false, nil
	}
	wanted, held, err := s.wanted(observed, len(observed.pods))
	if err != nil || wanted == nil {
		return false, err
	}
	observed.rolloutHeld = &held
	return held.Status != metav1.ConditionTrue && !workload.Made(set, wanted) || set.Status.ObservedGeneration < set.Generation, nil
}
