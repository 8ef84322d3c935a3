package etcdcluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	etcdserverpb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/apply"
	"github.com/kcplane/kcp/operator/internal/etcdmember"
	"github.com/kcplane/kcp/operator/internal/workload"
)

// act executes the step of a decision, and sends an event about it.
func (s *scope) act(ctx context.Context, observed *clusterSnapshot, d decision) error {
	var err error
	switch d.step {
	// done when the status or the StatefulSet is written
	case stepNothing, stepWait, stepActionRequired, stepRecordIdentity, stepScalePods, stepApply:
		return nil
	case stepBootstrap:
		err = s.annotateStart(ctx, observed, d.ordinal,
			&etcdmember.Start{State: etcdmember.StateNew, Cluster: s.named(d.ordinal), Token: s.token()})
	case stepClearStart:
		return s.annotateStart(ctx, observed, d.ordinal, nil)
	case stepAdd:
		err = observed.change(ctx, func(ctx context.Context, c *clientv3.Client) error {
			_, err := c.MemberAddAsLearner(ctx, []string{s.peerURL(d.ordinal)})
			return err
		})
	case stepStart:
		err = s.annotateStart(ctx, observed, d.ordinal, s.joinStart(observed, d))
	case stepPromote:
		err = observed.change(ctx, func(ctx context.Context, c *clientv3.Client) error {
			_, err := c.MemberPromote(ctx, d.id)
			return err
		})
		if errors.Is(err, rpctypes.ErrMemberLearnerNotReady) {
			return nil // retried until the member has caught up
		}
	case stepRemove:
		err = observed.change(ctx, func(ctx context.Context, c *clientv3.Client) error {
			_, err := c.MemberRemove(ctx, d.id)
			return err
		})
	case stepMoveLeader:
		err = observed.clients[d.ordinal].change(ctx, changeTimeout, func(ctx context.Context, c *clientv3.Client) error {
			_, err := c.MoveLeader(ctx, d.to)
			return err
		})
	case stepWipe:
		err = s.wipe(ctx, observed, d.ordinal)
	case stepRestart:
		err = s.deletePod(ctx, observed, d.ordinal)
	case stepDefragment:
		err = observed.clients[d.ordinal].change(ctx, defragTimeout, func(ctx context.Context, c *clientv3.Client) error {
			_, err := c.Defragment(ctx, c.Endpoints()[0])
			return err
		})
	case stepGrowVolumes:
		if observed.stateful == nil {
			return nil // applyMembers creates it with the new size
		}
		err = s.growVolumes(ctx, observed)
	case stepDisarm:
		err = s.disarm(ctx, observed)
	case stepRestore:
		err = s.beginRestoration(ctx)
	case stepRestored:
		return s.endRestoration(ctx)
	case stepRecover: // done when the status is written
	case stepStop:
		err = s.stop(ctx, observed)
	case stepCopy:
		err = s.beginCopy(ctx)
	case stepRecovered:
		err = s.endCopy(ctx)
	}
	if err != nil {
		return fmt.Errorf("%s of member %d: %w", d.step, d.ordinal, err)
	}
	s.Recorder.Eventf(s.cluster, nil, corev1.EventTypeNormal, d.reason, string(d.step), "%s, since %s", s.describe(d), d.why)
	return nil
}

func (s *scope) describe(d decision) string {
	name := memberName(s.cluster, d.ordinal)
	switch d.step {
	case stepBootstrap:
		return name + " is instructed to start the cluster"
	case stepAdd:
		return name + " is added as a learner"
	case stepStart:
		return name + " is instructed to join the cluster"
	case stepPromote:
		return name + " is promoted to a voting member"
	case stepRemove:
		return fmt.Sprintf("member %x of %s is removed", d.id, name)
	case stepMoveLeader:
		return fmt.Sprintf("leadership moves from %s to member %x", name, d.to)
	case stepWipe:
		return "the volume of " + name + " is deleted"
	case stepRestart:
		return name + " is restarted"
	case stepDefragment:
		return name + " is defragmented"
	case stepGrowVolumes:
		return "the volumes are expanded"
	case stepRestore:
		return "the snapshot " + s.cluster.Spec.Restore.Key + " is restored"
	case stepRecover:
		return "the cluster is recovered from " + name
	case stepStop:
		return "all members are stopped"
	case stepCopy:
		return "the data of " + name + " is copied"
	case stepRecovered:
		return "the members start from the data directory " + dataDirectory(s.cluster)
	default:
		return "the alarm is disarmed"
	}
}

// token identifies this cluster, as opposed to other clusters, and to the same cluster before its data was restored.
func (s *scope) token() string {
	return fmt.Sprintf("%s-%d", s.cluster.UID, s.cluster.Status.RestoreGeneration)
}

// named returns a member in the form of --initial-cluster.
func (s *scope) named(ordinal int) string {
	return memberName(s.cluster, ordinal) + "=" + s.peerURL(ordinal)
}

// joinStart returns how a learner starts: with all members that etcd lists, the learner included.
func (s *scope) joinStart(observed *clusterSnapshot, d decision) *etcdmember.Start {
	var all []string
	for _, m := range observed.members {
		all = append(all, s.named(m.ordinal))
	}
	return &etcdmember.Start{State: etcdmember.StateExisting, Cluster: strings.Join(all, ","), Token: s.token(), MemberID: identity(d.id)}
}

// annotateStart sets the start annotation of a pod, or removes it if start is nil.
func (s *scope) annotateStart(ctx context.Context, observed *clusterSnapshot, ordinal int, start *etcdmember.Start) error {
	live := observed.live[ordinal]
	if live == nil {
		return fmt.Errorf("pod %d is gone", ordinal)
	}
	annotated := live.DeepCopy()
	if start == nil {
		delete(annotated.Annotations, etcdmember.Annotation)
	} else {
		text, err := json.Marshal(start)
		if err != nil {
			return err
		}
		if annotated.Annotations == nil {
			annotated.Annotations = map[string]string{}
		}
		annotated.Annotations[etcdmember.Annotation] = string(text)
	}
	// The lock ensures that only the observed pod is annotated, not a pod that replaced it.
	return s.Patch(ctx, annotated, client.MergeFromWithOptions(live, client.MergeFromWithOptimisticLock{}))
}

// wipe deletes the volume of a pod that is not a member, and the pod, because a volume in use is not removed.
func (s *scope) wipe(ctx context.Context, observed *clusterSnapshot, ordinal int) error {
	if m, ok := observed.at(ordinal); ok && m.started {
		return errors.New("its volume is in use")
	}
	for i := range observed.claims {
		claim := &observed.claims[i]
		if claim.Name != volumeName(s.cluster, ordinal) {
			continue
		}
		// The precondition protects a volume that replaced it, which may not be in the cache yet.
		if err := client.IgnoreNotFound(s.Delete(ctx, claim, client.Preconditions{UID: &claim.UID})); err != nil {
			return err
		}
	}
	return s.deletePod(ctx, observed, ordinal)
}

func (s *scope) deletePod(ctx context.Context, observed *clusterSnapshot, ordinal int) error {
	live := observed.live[ordinal]
	if live == nil {
		return nil
	}
	return client.IgnoreNotFound(s.Delete(ctx, live, client.Preconditions{UID: &live.UID}))
}

// disarm disarms alarms whose cause is gone. CORRUPT alarms are disarmed only for members that were removed.
func (s *scope) disarm(ctx context.Context, observed *clusterSnapshot) error {
	return observed.change(ctx, func(ctx context.Context, c *clientv3.Client) error {
		for _, alarm := range observed.alarms {
			listed := slices.ContainsFunc(observed.members, func(m member) bool { return m.id == alarm.MemberID })
			if listed && alarm.Alarm == etcdserverpb.AlarmType_CORRUPT {
				continue
			}
			if _, err := c.AlarmDisarm(ctx, (*clientv3.AlarmMember)(alarm)); err != nil {
				return err
			}
		}
		return nil
	})
}

// applyMembers updates the StatefulSet. The number of pods follows from the steps. The pod template can change at any time, because the
// operator decides when pods are replaced.
func (s *scope) applyMembers(ctx context.Context, observed *clusterSnapshot, d decision) error {
	pods := len(observed.pods)
	switch {
	case d.step == stepScalePods:
		pods = d.pods
	case observed.stateful == nil && pods == 0:
		return nil
	}
	if r := s.cluster.Status.Recovery; observed.terminating || r != nil && r.State == v1alpha1.EtcdRecoveryCopying {
		return nil
	}
	if err := s.markVolumes(ctx, observed); err != nil {
		return err
	}
	wanted, held, err := s.wanted(observed, pods)
	switch {
	case err != nil:
		return err
	case observed.former != "":
		return nil
	case wanted != nil && held.Status != metav1.ConditionTrue:
		return apply.All(ctx, s.Client, s.cluster, wanted)
	case observed.stateful != nil:
		return s.resize(ctx, observed.stateful, observed.atLeast(pods))
	}
	return nil
}

// resize changes the number of pods, and nothing else.
func (s *scope) resize(ctx context.Context, set *appsv1.StatefulSet, pods int32) error {
	if workload.Wanted(set) == pods {
		return nil
	}
	resized := set.DeepCopy()
	resized.Spec.Replicas = &pods
	return s.Patch(ctx, resized, client.MergeFrom(set), client.FieldOwner(apply.FieldOwner))
}

// wanted returns the desired StatefulSet, and the condition RolloutHeld, which is True while a new operator leaves the pods unchanged. The
// StatefulSet is nil if the spec is invalid; the condition Stalled reports that.
func (s *scope) wanted(observed *clusterSnapshot, pods int) (set *appsv1.StatefulSet, held metav1.Condition, err error) {
	m := members{pods: observed.atLeast(pods), image: image(s.cluster.Spec.Image, s.Repository, observed.version), authorities: s.authorities,
		sharing: observed.sharing()}
	if observed.stateful != nil {
		m.size = templateSize(observed)
	}
	if set, err = s.statefulSet(m); err != nil {
		return nil, held, nil
	}
	held, err = workload.Hold(s.cluster, observed.stateful, set, observed.version, m.authorities, m.sharing, dataDirectory(s.cluster))
	return set, held, err
}

// atLeast returns the number of pods, raised to cover each member, even if the copy of the StatefulSet is outdated.
func (observed *clusterSnapshot) atLeast(pods int) int32 {
	for _, m := range observed.members {
		pods = max(pods, m.ordinal+1)
	}
	return int32(pods)
}

// adopt adds the EtcdCluster to the owners of its pods. So the garbage collector keeps the pods when a user deletes the StatefulSet. Pods
// of an earlier EtcdCluster of the same name are not adopted: they are deleted with it.
func (s *scope) adopt(ctx context.Context, observed *clusterSnapshot) error {
	if observed.stateful == nil || !metav1.IsControlledBy(observed.stateful, s.cluster) {
		return nil
	}
	for _, live := range observed.live {
		if !live.DeletionTimestamp.IsZero() || !metav1.IsControlledBy(live, observed.stateful) {
			continue
		}
		if err := apply.Share(ctx, s.Client, s.cluster, live); err != nil {
			return fmt.Errorf("owner of pod %s: %w", live.Name, err)
		}
	}
	return nil
}
