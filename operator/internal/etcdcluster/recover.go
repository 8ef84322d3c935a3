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

// recovery is how far the recovery from a lost majority is, which spec.restore.survivor asks for. Nobody's data are changed by it: the
// members begin anew in a directory beside that of their data, the survivor with what is made of its own.
type recovery string

const (
	recoverNone     recovery = ""         // none is asked for, or a majority answers
	recoverUnknown  recovery = "Unknown"  // one of somebody else is asked for
	recoverRefused  recovery = "Refused"  // a majority answered after it was asked for
	recoverAsked    recovery = "Asked"    // nothing was done yet
	recoverStopping recovery = "Stopping" // pods are to be stopped
	recoverStopped  recovery = "Stopped"  // the last of them that matters ends
	recoverNeeded   recovery = jobNeeded
	recoverRunning  recovery = jobRunning
	recoverStuck    recovery = jobStuck
	recoverFailed   recovery = jobFailed
	recoverCopied   recovery = jobDone
	recoverStarting recovery = "Starting" // the members run on them
)

// recoverLost begins anew with the survivor that somebody has named, while there is no majority.
func recoverLost(o observation) (decision, bool) {
	from := o.survivor
	onSurvivor := func(s step, why string) (decision, bool) { return onPod(s, from, reasonRecover, why) }
	switch o.recovery {
	case recoverUnknown:
		return help(reasonQuorumLost, "spec.restore.survivor does not match this cluster: set a voting member of status.members and the "+
			"clusterID of the status"), true
	case recoverRefused:
		return help(reasonQuorumLost, "spec.restore.survivor was set while a majority of the members answered, and stays refused: "+
			"remove it, and set it again if quorum is lost"), true
	case recoverAsked:
		if o.pod(from).empty {
			return help(reasonQuorumLost, "member %d has lost its volume, too: set another one in spec.restore.survivor", from), true
		}
		if best := o.latest(); o.revisions[from] > 0 && o.revisions[best] > o.revisions[from] {
			return help(reasonQuorumLost, "member %d has a higher revision than member %d: set that one in spec.restore.survivor", best, from), true
		}
		return onSurvivor(stepRecover, "spec.restore.survivor names it, and quorum is lost")
	case recoverStopping:
		return onSurvivor(stepStop, "its data is copied next, and nothing may write to it")
	case recoverStopped:
		return wait(reasonRecover, "waiting for the pod of member %d to end before its data is copied", from), true
	case recoverNeeded:
		return onSurvivor(stepCopy, "spec.restore.survivor names it")
	case recoverRunning:
		return wait(reasonRecover, "copying the data of member %d%s", from, o.recoveryMessage), true
	case recoverStuck:
		return help(reasonRecover, "the pod that copies the data of member %d cannot start%s", from, o.recoveryMessage), true
	case recoverFailed:
		return help(reasonRecover, "cannot recover the cluster from member %d: %s. Delete the Job to try again, name another member, "+
			"or remove spec.restore.survivor to return to the state before", from, o.recoveryMessage), true
	case recoverCopied:
		return onSurvivor(stepRecovered, "its data is copied")
	case recoverStarting:
		switch {
		case !o.quorum:
			return wait(reasonRecover, "waiting for member %d to start the recovered cluster", from), true
		case o.another:
			return decision{step: stepRecordIdentity, reason: reasonRecover, why: "the survivor answers"}, true
		}
	case recoverNone:
	}
	return undecided, false
}

// survivor returns what spec.restore asks for, or nil.
func (s *scope) survivor() *v1alpha1.EtcdSurvivorSpec {
	if s.cluster.Spec.Restore == nil {
		return nil
	}
	return s.cluster.Spec.Restore.Survivor
}

// observeRecovery finds out how far the recovery is. One that the spec does not ask for any more is forgotten, unless members run on its
// data.
func (s *scope) observeRecovery(ctx context.Context, seen *clusterSnapshot) error {
	under, asked := s.cluster.Status.Recovery, s.survivor()
	if !seen.known && asked != nil {
		seen.recovery = recoverUnknown
		return nil
	}
	same := under != nil && asked != nil && under.EtcdSurvivorSpec == *asked
	switch {
	case under != nil && under.State == v1alpha1.EtcdRecoveryStarting:
		seen.recovery, seen.survivor = recoverStarting, ordinalOf(s.cluster, under.Member)
		how, _, err := s.observeJob(ctx, rescueJobName(under))
		if how != jobNeeded { // an operator has written down where the data are, and has ended before it removed the Job
			seen.recovery = recoverCopied
		}
		return err
	case same && under.State == v1alpha1.EtcdRecoveryDone:
		return nil
	case !same && under != nil && under.State != v1alpha1.EtcdRecoveryDone:
		seen.endRecovery = true
	}
	switch {
	case asked == nil:
		return nil
	case asked.ClusterID != s.cluster.Status.ClusterID:
		if !seen.quorum {
			seen.recovery = recoverUnknown
		}
		return nil
	case seen.quorum:
		seen.refuseRecovery = true
		return nil
	}
	seen.survivor = ordinalOf(s.cluster, asked.Member)
	switch {
	case !s.voted(asked.Member):
		seen.recovery = recoverUnknown
	case !same:
		seen.recovery = recoverAsked
	case under.State == v1alpha1.EtcdRecoveryRefused:
		seen.recovery = recoverRefused
	default:
		return s.observeCopy(ctx, seen, under)
	}
	return nil
}

// voted reports whether a member was a voter when a majority last answered.
func (s *scope) voted(member string) bool {
	for _, m := range s.cluster.Status.Members {
		if m.Name == member {
			return !m.IsLearner
		}
	}
	return false
}

// observeCopy finds out how far the copy of the survivor's data is. Pods that cannot end, for their node is gone, are waited for only if
// they are the survivor's.
func (s *scope) observeCopy(ctx context.Context, seen *clusterSnapshot, under *v1alpha1.EtcdRecoveryStatus) error {
	seen.recovery = recoverNeeded
	if seen.leaving || seen.live[seen.survivor] != nil {
		seen.recovery = recoverStopped
	}
	stops := seen.stateful != nil
	for _, live := range seen.live {
		stops = stops || !seen.leaving && live.DeletionTimestamp.IsZero()
	}
	if stops {
		seen.recovery = recoverStopping
	}
	if seen.recovery != recoverNeeded {
		return nil
	}
	how, message, err := s.observeJob(ctx, rescueJobName(under))
	seen.recovery, seen.recoveryMessage = recovery(how), message
	return err
}

// reportRecovery writes down what is about to be done.
func (s *scope) reportRecovery(d decision) {
	status := &s.cluster.Status
	switch d.step {
	case stepRecover:
		status.Recovery = &v1alpha1.EtcdRecoveryStatus{EtcdSurvivorSpec: *s.survivor(), State: v1alpha1.EtcdRecoveryCopying,
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

// stop ends all pods, and what makes them. The volumes belong to nobody then: whatever the policies are, they stay.
func (s *scope) stop(ctx context.Context, seen *clusterSnapshot) error {
	if seen.stateful != nil {
		return client.IgnoreNotFound(s.Delete(ctx, seen.stateful, client.Preconditions{UID: &seen.stateful.UID},
			client.PropagationPolicy(metav1.DeletePropagationOrphan)))
	}
	for ordinal := range seen.live {
		if err := s.deletePod(ctx, seen, ordinal); err != nil {
			return err
		}
	}
	return nil
}

// markVolumes writes down at each volume which directory of it is in use, for an EtcdCluster that takes them up one day.
func (s *scope) markVolumes(ctx context.Context, seen *clusterSnapshot) error {
	if s.cluster.Status.DataDirectory == "" {
		return nil
	}
	for i := range seen.claims {
		claim := &seen.claims[i]
		if claim.Annotations[directoryAnnotation] == s.cluster.Status.DataDirectory || !claim.DeletionTimestamp.IsZero() {
			continue
		}
		before := claim.DeepCopy()
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, directoryAnnotation, s.cluster.Status.DataDirectory)
		if err := client.IgnoreNotFound(s.Patch(ctx, claim, client.MergeFrom(before))); err != nil {
			return fmt.Errorf("directory of volume %s: %w", claim.Name, err)
		}
	}
	return nil
}

// directoryAnnotation of a PersistentVolumeClaim names the directory that its member has its data in, if it is not the first one.
const directoryAnnotation = "operator.kcp.io/data-directory"

// dataDirectory returns where a member has its data.
func dataDirectory(cluster *v1alpha1.EtcdCluster) string {
	return dataMount + "/" + cmp.Or(cluster.Status.DataDirectory, "data")
}

// rescueJob builds what makes data to begin anew with from those of a survivor, on the volume of that.
func (s *scope) rescueJob(under *v1alpha1.EtcdRecoveryStatus) *batchv1.Job {
	job := snapshotJob(s.cluster, rescueJobName(under), Image(s.cluster, s.Repository, s.Version), nil, []string{
		"rescue", "--etcd=/etcd", "--from=" + dataDirectory(s.cluster), "--name=" + under.Member,
		"--peer-url=" + s.peerURL(ordinalOf(s.cluster, under.Member)),
		"--token=" + fmt.Sprintf("%s-%s", s.cluster.UID, under.Directory), "--data-dir=" + dataMount + "/" + under.Directory,
	})
	mountClaim(job, volumeName(s.cluster, ordinalOf(s.cluster, under.Member)))
	s.Pods.Assign(&job.Spec.Template.Spec)
	return job
}

// rescueJobName returns a name that no earlier recovery had.
func rescueJobName(under *v1alpha1.EtcdRecoveryStatus) string {
	return under.Member + strings.TrimPrefix(under.Directory, "data")
}

func (s *scope) beginCopy(ctx context.Context) error {
	return apply.All(ctx, s.Client, s.cluster, s.rescueJob(s.cluster.Status.Recovery))
}

// endCopy gives the volume free for the survivor.
func (s *scope) endCopy(ctx context.Context) error {
	job := &batchv1.Job{}
	job.Namespace, job.Name = s.cluster.Namespace, rescueJobName(s.cluster.Status.Recovery)
	return apply.Remove(ctx, s.Client, s.cluster, job)
}
