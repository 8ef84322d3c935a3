package etcdcluster

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/apply"
)

// recoveryState is the progress of a recovery from quorum loss, as requested by spec.restore.survivor. A recovery never changes existing
// data: the members start in a new directory on their volumes, the survivor with a copy of its data.
type recoveryState string

const (
	recoverNone      recoveryState = ""         // not requested, or a majority answers
	recoverUnknown   recoveryState = "Unknown"  // the request names another cluster or an unknown member
	recoverRefused   recoveryState = "Refused"  // a majority answered after the request
	recoverRequested recoveryState = "Asked"    // not started
	recoverStopping  recoveryState = "Stopping" // pods must be stopped
	recoverStopped   recoveryState = "Stopped"  // the survivor's pod is terminating
	recoverNeeded    recoveryState = jobNeeded
	recoverRunning   recoveryState = jobRunning
	recoverStuck     recoveryState = jobStuck
	recoverFailed    recoveryState = jobFailed
	recoverCopied    recoveryState = jobDone
	recoverStarting  recoveryState = "Starting" // the members start with the recovered data
)

// recoverFromSurvivor recovers the cluster from the member in spec.restore.survivor, while no majority answers.
func recoverFromSurvivor(o observation) (decision, bool) {
	from := o.survivor
	onSurvivor := func(s step, why string) (decision, bool) { return onPod(s, from, reasonRecover, why) }
	switch o.recovery {
	case recoverUnknown:
		return actionRequired(reasonQuorumLost,
			"spec.restore.survivor does not match this cluster: set a voting member of status.members and the "+
				"clusterID of the status"), true
	case recoverRefused:
		return actionRequired(reasonQuorumLost, "spec.restore.survivor was set while a majority of the members answered, and stays refused: "+
			"remove it, and set it again if quorum is lost"), true
	case recoverRequested:
		if o.pod(from).empty {
			return actionRequired(reasonQuorumLost, "member %d has lost its volume, too: set another one in spec.restore.survivor", from), true
		}
		if best := o.highestRevision(); o.revisions[from] > 0 && o.revisions[best] > o.revisions[from] {
			return actionRequired(reasonQuorumLost,
				"member %d has a higher revision than member %d: set that one in spec.restore.survivor", best, from), true
		}
		return onSurvivor(stepRecover, "spec.restore.survivor names it, and quorum is lost")
	case recoverStopping:
		return onSurvivor(stepStop, "its data is copied next, and must not change")
	case recoverStopped:
		return wait(reasonRecover, "waiting for the pod of member %d to end before its data is copied", from), true
	case recoverNeeded:
		return onSurvivor(stepCopy, "spec.restore.survivor names it")
	case recoverRunning:
		return wait(reasonRecover, "copying the data of member %d%s", from, o.recoveryMessage), true
	case recoverStuck:
		return actionRequired(reasonRecover, "the pod that copies the data of member %d cannot start%s", from, o.recoveryMessage), true
	case recoverFailed:
		return actionRequired(reasonRecover, "cannot recover the cluster from member %d: %s. Delete the Job to try again, name another member, "+
			"or remove spec.restore.survivor to return to the state before", from, o.recoveryMessage), true
	case recoverCopied:
		return onSurvivor(stepRecovered, "its data is copied")
	case recoverStarting:
		switch {
		case !o.quorum:
			return wait(reasonRecover, "waiting for member %d to start the recovered cluster", from), true
		case o.otherCluster:
			return decision{step: stepRecordIdentity, reason: reasonRecover, why: "the survivor answers"}, true
		}
	case recoverNone:
	}
	return undecided, false
}

// survivorSpec returns spec.restore.survivor, or nil.
func (s *scope) survivorSpec() *v1alpha1.EtcdSurvivorSpec {
	if s.cluster.Spec.Restore == nil {
		return nil
	}
	return s.cluster.Spec.Restore.Survivor
}

// observeRecovery observes the progress of a recovery. A recovery that the spec no longer requests ends, unless the members already start
// with its data.
func (s *scope) observeRecovery(ctx context.Context, observed *clusterSnapshot) error {
	recovery, requested := s.cluster.Status.Recovery, s.survivorSpec()
	if !observed.initialized && requested != nil {
		observed.recovery = recoverUnknown
		return nil
	}
	same := recovery != nil && requested != nil && recovery.EtcdSurvivorSpec == *requested
	switch {
	case recovery != nil && recovery.State == v1alpha1.EtcdRecoveryStarting:
		observed.recovery, observed.survivor = recoverStarting, ordinalOf(s.cluster, recovery.Member)
		how, _, err := s.observeJob(ctx, rescueJobName(recovery))
		if how != jobNeeded { // the operator stopped after it wrote the status, and before it removed the Job
			observed.recovery = recoverCopied
		}
		return err
	case same && recovery.State == v1alpha1.EtcdRecoveryDone:
		return nil
	case !same && recovery != nil && recovery.State != v1alpha1.EtcdRecoveryDone:
		observed.endRecovery = true
	}
	switch {
	case requested == nil:
		return nil
	case requested.ClusterID != s.cluster.Status.ClusterID:
		if !observed.quorum {
			observed.recovery = recoverUnknown
		}
		return nil
	case observed.quorum:
		observed.refuseRecovery = true
		return nil
	}
	observed.survivor = ordinalOf(s.cluster, requested.Member)
	switch {
	case !s.wasVoter(requested.Member):
		observed.recovery = recoverUnknown
	case !same:
		observed.recovery = recoverRequested
	case recovery.State == v1alpha1.EtcdRecoveryRefused:
		observed.recovery = recoverRefused
	default:
		return s.observeCopy(ctx, observed, recovery)
	}
	return nil
}

// wasVoter reports whether a member was a voter when a majority last answered.
func (s *scope) wasVoter(member string) bool {
	for _, m := range s.cluster.Status.Members {
		if m.Name == member {
			return !m.IsLearner
		}
	}
	return false
}

// observeCopy observes the progress of copying the survivor's data. Pods that cannot terminate, because their node is gone, block the copy
// only if they belong to the survivor.
func (s *scope) observeCopy(ctx context.Context, observed *clusterSnapshot, recovery *v1alpha1.EtcdRecoveryStatus) error {
	observed.recovery = recoverNeeded
	if observed.terminating || observed.live[observed.survivor] != nil {
		observed.recovery = recoverStopped
	}
	stops := observed.stateful != nil
	for _, live := range observed.live {
		stops = stops || !observed.terminating && live.DeletionTimestamp.IsZero()
	}
	if stops {
		observed.recovery = recoverStopping
	}
	if observed.recovery != recoverNeeded {
		return nil
	}
	how, message, err := s.observeJob(ctx, rescueJobName(recovery))
	observed.recovery, observed.recoveryMessage = recoveryState(how), message
	return err
}

// reportRecovery reports the step of a recovery that is executed next.
func (s *scope) reportRecovery(d decision) {
	status := &s.cluster.Status
	switch d.step {
	case stepRecover:
		status.Recovery = &v1alpha1.EtcdRecoveryStatus{EtcdSurvivorSpec: *s.survivorSpec(), State: v1alpha1.EtcdRecoveryCopying,
			Directory: "data-" + s.Now().UTC().Format("20060102150405")}
	case stepRecovered:
		if status.Recovery.State == v1alpha1.EtcdRecoveryStarting {
			return
		}
		status.Recovery.State, status.DataDirectory = v1alpha1.EtcdRecoveryStarting, status.Recovery.Directory
		status.RestoreGeneration++
	case stepRecordIdentity:
		if status.Recovery != nil {
			status.Recovery.State = v1alpha1.EtcdRecoveryDone
		}
	default: // the other steps do not change the recovery
	}
}

// stop deletes the StatefulSet and all pods. The StatefulSet is deleted without its volumes, whatever its retention policy is.
func (s *scope) stop(ctx context.Context, observed *clusterSnapshot) error {
	if observed.stateful != nil {
		return client.IgnoreNotFound(s.Delete(ctx, observed.stateful, client.Preconditions{UID: &observed.stateful.UID},
			client.PropagationPolicy(metav1.DeletePropagationOrphan)))
	}
	for ordinal := range observed.live {
		if err := s.deletePod(ctx, observed, ordinal); err != nil {
			return err
		}
	}
	return nil
}

// markVolumes annotates each volume with the directory in use, for a later EtcdCluster of the same name.
func (s *scope) markVolumes(ctx context.Context, observed *clusterSnapshot) error {
	if s.cluster.Status.DataDirectory == "" {
		return nil
	}
	for i := range observed.claims {
		claim := &observed.claims[i]
		if claim.Annotations[directoryAnnotation] == s.cluster.Status.DataDirectory || !claim.DeletionTimestamp.IsZero() {
			continue
		}
		before := claim.DeepCopy()
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, directoryAnnotation, s.cluster.Status.DataDirectory)
		if err := client.IgnoreNotFound(s.Patch(ctx, claim, client.MergeFrom(before))); err != nil {
			return fmt.Errorf("annotating volume %s with its data directory: %w", claim.Name, err)
		}
	}
	return nil
}

// directoryAnnotation of a PersistentVolumeClaim names the data directory of its member, if that is not the default.
const directoryAnnotation = "operator.kcp.io/data-directory"

// dataDirectory returns the path of the data of a member.
func dataDirectory(cluster *v1alpha1.EtcdCluster) string {
	return dataMount + "/" + cmp.Or(cluster.Status.DataDirectory, "data")
}

// rescueJob returns the Job that copies the data of the survivor into a new directory on the same volume, as the data of a new cluster.
func (s *scope) rescueJob(recovery *v1alpha1.EtcdRecoveryStatus) *batchv1.Job {
	job := snapshotJob(s.cluster, rescueJobName(recovery), Image(s.cluster, s.Repository, s.Version), nil, []string{
		"rescue", "--etcd=/etcd", "--from=" + dataDirectory(s.cluster), "--name=" + recovery.Member,
		"--peer-url=" + s.peerURL(ordinalOf(s.cluster, recovery.Member)),
		"--token=" + fmt.Sprintf("%s-%s", s.cluster.UID, recovery.Directory), "--data-dir=" + dataMount + "/" + recovery.Directory,
	})
	mountClaim(job, volumeName(s.cluster, ordinalOf(s.cluster, recovery.Member)))
	s.Pods.Assign(&job.Spec.Template.Spec)
	return job
}

// rescueJobName returns a name that is unique for each recovery.
func rescueJobName(recovery *v1alpha1.EtcdRecoveryStatus) string {
	return recovery.Member + strings.TrimPrefix(recovery.Directory, "data")
}

func (s *scope) beginCopy(ctx context.Context) error {
	return apply.All(ctx, s.Client, s.cluster, s.rescueJob(s.cluster.Status.Recovery))
}

// endCopy removes the Job, so that the survivor can use the volume.
func (s *scope) endCopy(ctx context.Context) error {
	job := &batchv1.Job{}
	job.Namespace, job.Name = s.cluster.Namespace, rescueJobName(s.cluster.Status.Recovery)
	return apply.Remove(ctx, s.Client, s.cluster, job)
}
