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

// act takes the step that was decided on. What it says, to whom, is an event.
func (s *scope) act(ctx context.Context, seen *clusterSnapshot, d decision) error {
	var err error
	switch d.step {
	// done by writing the status, or the StatefulSet
	case stepNothing, stepWait, stepHelp, stepRecordIdentity, stepScalePods, stepApply:
		return nil
	case stepBootstrap:
		err = s.annotateStart(ctx, seen, d.ordinal, &etcdmember.Start{State: etcdmember.StateNew, Cluster: s.named(d.ordinal), Token: s.token()})
	case stepForget:
		return s.annotateStart(ctx, seen, d.ordinal, nil)
	case stepAdd:
		err = seen.change(ctx, func(ctx context.Context, c *clientv3.Client) error {
			_, err := c.MemberAddAsLearner(ctx, []string{s.peerURL(d.ordinal)})
			return err
		})
	case stepStart:
		err = s.annotateStart(ctx, seen, d.ordinal, s.join(seen, d))
	case stepPromote:
		err = seen.change(ctx, func(ctx context.Context, c *clientv3.Client) error {
			_, err := c.MemberPromote(ctx, d.id)
			return err
		})
		if errors.Is(err, rpctypes.ErrMemberLearnerNotReady) {
			return nil // it is asked again until the member has caught up
		}
	case stepRemove:
		err = seen.change(ctx, func(ctx context.Context, c *clientv3.Client) error {
			_, err := c.MemberRemove(ctx, d.id)
			return err
		})
	case stepMoveLeader:
		err = seen.clients[d.ordinal].change(ctx, changeTimeout, func(ctx context.Context, c *clientv3.Client) error {
			_, err := c.MoveLeader(ctx, d.to)
			return err
		})
	case stepWipe:
		err = s.wipe(ctx, seen, d.ordinal)
	case stepRestart:
		err = s.deletePod(ctx, seen, d.ordinal)
	case stepDefragment:
		err = seen.clients[d.ordinal].change(ctx, defragTimeout, func(ctx context.Context, c *clientv3.Client) error {
			_, err := c.Defragment(ctx, c.Endpoints()[0])
			return err
		})
	case stepGrowVolumes:
		if seen.stateful == nil {
			return nil // it is made by applyMembers, with larger volumes
		}
		err = s.growVolumes(ctx, seen)
	case stepDisarm:
		err = s.disarm(ctx, seen)
	case stepRestore:
		err = s.beginRestoration(ctx)
	case stepRestored:
		return s.endRestoration(ctx)
	case stepRecover: // done by writing the status
	case stepStop:
		err = s.stop(ctx, seen)
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
		return name + " is requested to start the cluster"
	case stepAdd:
		return name + " is added as a learner"
	case stepStart:
		return name + " is requested to join"
	case stepPromote:
		return name + " is a voting member now"
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

// token tells this cluster from all others, and from what it was before its data was restored.
func (s *scope) token() string {
	return fmt.Sprintf("%s-%d", s.cluster.UID, s.cluster.Status.RestoreGeneration)
}

func (s *scope) named(ordinal int) string {
	return memberName(s.cluster, ordinal) + "=" + s.peerURL(ordinal)
}

// join says how a learner joins: as one of all members that etcd lists, itself included.
func (s *scope) join(seen *clusterSnapshot, d decision) *etcdmember.Start {
	var all []string
	for _, m := range seen.members {
		all = append(all, s.named(m.ordinal))
	}
	return &etcdmember.Start{State: etcdmember.StateExisting, Cluster: strings.Join(all, ","), Token: s.token(), MemberID: identity(d.id)}
}

// annotateStart writes the annotation that a pod starts by, or removes it.
func (s *scope) annotateStart(ctx context.Context, seen *clusterSnapshot, ordinal int, start *etcdmember.Start) error {
	live := seen.live[ordinal]
	if live == nil {
		return fmt.Errorf("pod %d is gone", ordinal)
	}
	told := live.DeepCopy()
	if start == nil {
		delete(told.Annotations, etcdmember.Annotation)
	} else {
		text, err := json.Marshal(start)
		if err != nil {
			return err
		}
		if told.Annotations == nil {
			told.Annotations = map[string]string{}
		}
		told.Annotations[etcdmember.Annotation] = string(text)
	}
	// The lock keeps an older pod's turn from reaching the one that took its place.
	return s.Patch(ctx, told, client.MergeFromWithOptions(live, client.MergeFromWithOptimisticLock{}))
}

// wipe deletes the volume of a pod that is no member, and the pod, which holds on to it.
func (s *scope) wipe(ctx context.Context, seen *clusterSnapshot, ordinal int) error {
	if m, ok := seen.at(ordinal); ok && m.started {
		return errors.New("its volume is in use")
	}
	for i := range seen.claims {
		claim := &seen.claims[i]
		if claim.Name != volumeName(s.cluster, ordinal) {
			continue
		}
		// Not the one that took its place, of which the cache may not know yet.
		if err := client.IgnoreNotFound(s.Delete(ctx, claim, client.Preconditions{UID: &claim.UID})); err != nil {
			return err
		}
	}
	return s.deletePod(ctx, seen, ordinal)
}

func (s *scope) deletePod(ctx context.Context, seen *clusterSnapshot, ordinal int) error {
	live := seen.live[ordinal]
	if live == nil {
		return nil
	}
	return client.IgnoreNotFound(s.Delete(ctx, live, client.Preconditions{UID: &live.UID}))
}

// disarm ends the alarms that nothing is behind any more. Corruption is forgiven of members that are gone only.
func (s *scope) disarm(ctx context.Context, seen *clusterSnapshot) error {
	return seen.change(ctx, func(ctx context.Context, c *clientv3.Client) error {
		for _, alarm := range seen.alarms {
			listed := slices.ContainsFunc(seen.members, func(m member) bool { return m.id == alarm.MemberID })
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

// applyMembers makes the StatefulSet what it is to be. How many pods there are is decided step by step; what they are made
// of can change at any time, since it is the operator that replaces them.
func (s *scope) applyMembers(ctx context.Context, seen *clusterSnapshot, d decision) error {
	pods := len(seen.pods)
	switch {
	case d.step == stepScalePods:
		pods = d.pods
	case seen.stateful == nil && pods == 0:
		return nil
	}
	if r := s.cluster.Status.Recovery; seen.leaving || r != nil && r.State == v1alpha1.EtcdRecoveryCopying {
		return nil
	}
	if err := s.markVolumes(ctx, seen); err != nil {
		return err
	}
	wanted, held, err := s.wanted(seen, pods)
	switch {
	case err != nil:
		return err
	case wanted != nil && held.Status != metav1.ConditionTrue:
		return apply.All(ctx, s.Client, s.cluster, wanted)
	case seen.stateful != nil:
		return s.resize(ctx, seen.stateful, seen.atLeast(pods))
	}
	return nil
}

// resize changes how many pods there are, and nothing else.
func (s *scope) resize(ctx context.Context, set *appsv1.StatefulSet, pods int32) error {
	if workload.Wanted(set) == pods {
		return nil
	}
	resized := set.DeepCopy()
	resized.Spec.Replicas = &pods
	return s.Patch(ctx, resized, client.MergeFrom(set), client.FieldOwner(apply.FieldOwner))
}

// wanted builds the StatefulSet, and the condition RolloutHeld, which says whether its pods are held as they are. The StatefulSet is nil
// where the condition Stalled says why.
func (s *scope) wanted(seen *clusterSnapshot, pods int) (set *appsv1.StatefulSet, held metav1.Condition, err error) {
	m := members{pods: seen.atLeast(pods), image: image(s.cluster.Spec.Image, s.Repository, seen.version), authorities: s.authorities,
		sharing: seen.sharing()}
	if seen.stateful != nil {
		m.size = templateSize(seen)
	}
	if set, err = s.statefulSet(m); err != nil {
		return nil, held, nil
	}
	held, err = workload.Hold(s.cluster, seen.stateful, set, seen.version, m.authorities, m.sharing, dataDirectory(s.cluster))
	return set, held, err
}

// atLeast returns a number of pods that has one for each member, whatever an old copy of the StatefulSet says.
func (seen *clusterSnapshot) atLeast(pods int) int32 {
	for _, m := range seen.members {
		pods = max(pods, m.ordinal+1)
	}
	return int32(pods)
}

// adopt makes the cluster an owner of its pods beside their StatefulSet, so that the garbage collector keeps them when somebody deletes
// that. Pods of an earlier cluster of the same name are left alone: they go with it.
func (s *scope) adopt(ctx context.Context, seen *clusterSnapshot) error {
	if seen.stateful == nil || !metav1.IsControlledBy(seen.stateful, s.cluster) {
		return nil
	}
	for _, live := range seen.live {
		if !live.DeletionTimestamp.IsZero() || !metav1.IsControlledBy(live, seen.stateful) {
			continue
		}
		if err := apply.Share(ctx, s.Client, s.cluster, live); err != nil {
			return fmt.Errorf("owner of pod %s: %w", live.Name, err)
		}
	}
	return nil
}
