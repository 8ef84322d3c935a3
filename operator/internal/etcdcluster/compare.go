package etcdcluster

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/apply"
	"github.com/kcplane/kcp/operator/internal/workload"
)

// compare adds the differences between the spec and the observed state to a snapshot: version, pods, volumes, and whether defragmentation
// is due. It changes only the snapshot, and the error for the user if the version is refused.
func (s *scope) compare(ctx context.Context, observed *clusterSnapshot) error {
	current := s.cluster.Status.CurrentVersion
	version, err := chooseVersion(s.cluster.Spec.Version, current, s.Version)
	if err != nil {
		s.userError = err
	}
	observed.version, observed.upgrading = version, current != "" && version != current
	if observed.changing, err = s.changing(observed); err != nil {
		return err
	}
	if observed.component, err = s.component(ctx, observed); err != nil {
		return err
	}
	s.schedule(observed)
	s.measure(observed)
	return nil
}

// component returns why members wait for the component that the cluster belongs to, or an empty string. Each of its pods needs etcd to
// become ready. While none is ready, or after workload.MaxWait, members do not wait.
func (s *scope) component(ctx context.Context, observed *clusterSnapshot) (string, error) {
	owner := metav1.GetControllerOf(s.cluster)
	if owner == nil || !slices.ContainsFunc(observed.pods, func(p pod) bool { return p.outdated }) {
		return "", nil
	}
	sets := &appsv1.StatefulSetList{}
	if err := s.Live.List(ctx, sets, client.InNamespace(s.cluster.Namespace),
		client.MatchingLabels{apply.ManagedByLabel: apply.FieldOwner}); err != nil {
		return "", err
	}
	for i := range sets.Items {
		set := &sets.Items[i]
		if by := metav1.GetControllerOf(set); by == nil || by.UID != owner.UID || set.Status.ReadyReplicas == 0 || workload.RolledOut(set) {
			continue
		}
		why := fmt.Sprintf("waiting for %s %s, at most %s: %d of %d pods are ready, %d are up to date", owner.Kind, owner.Name, workload.MaxWait,
			set.Status.ReadyReplicas, workload.Wanted(set), set.Status.UpdatedReplicas)
		_, waits := workload.Wait(s.cluster.Status.Conditions, s.cluster.Generation, reasonComponent, why, s.Now())
		if waits {
			return why, nil
		}
	}
	return "", nil
}

// Changing returns which members a cluster restarts or replaces, or an empty string. Waiting for the component of the cluster to roll out
// is no change: the two would wait for each other.
func Changing(cluster *v1alpha1.EtcdCluster) string {
	status := cluster.Status
	if status.ObservedGeneration < cluster.Generation {
		return "it has no current status yet"
	}
	for _, name := range []string{v1alpha1.ConditionProgressing, v1alpha1.ConditionDegraded} {
		c := apimeta.FindStatusCondition(status.Conditions, name)
		if c != nil && c.Status == metav1.ConditionTrue && c.Reason != reasonComponent {
			return c.Message
		}
	}
	return ""
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
