package etcdcluster

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/operator/internal/apply"
	"github.com/kcplane/kcp/operator/internal/workload"
)

// restoration is how far the restoration of a snapshot is, which a cluster may begin with.
type restoration string

const (
	restoreNone    restoration = ""        // none was asked for, or it is long done
	restoreTaken   restoration = "Taken"   // volumes exist that it would overwrite
	restoreUnready restoration = "Unready" // its store cannot be read
	restoreNeeded  restoration = jobNeeded
	restoreRunning restoration = jobRunning
	restoreStuck   restoration = jobStuck
	restoreFailed  restoration = jobFailed
	restoreDone    restoration = jobDone
)

// restoreFirst sees to it that a cluster which is to begin with a snapshot does not begin without.
func restoreFirst(o observation) (decision, bool) {
	if o.known {
		return undecided, false
	}
	switch o.restore {
	case restoreTaken:
		return help(reasonRestore, "spec.restore is set, and volumes of an earlier cluster of this name exist: delete the "+
			"PersistentVolumeClaims if their data is not needed, or choose another name"), true
	case restoreUnready:
		return help(reasonRestore, "%s", o.restoreMessage), true
	case restoreNeeded:
		return decision{step: stepRestore, reason: reasonRestore, why: "spec.restore is set"}, true
	case restoreRunning:
		return wait(reasonRestore, "restoring the snapshot%s", o.restoreMessage), true
	case restoreStuck:
		return help(reasonRestore, "the pod that restores the snapshot cannot start%s", o.restoreMessage), true
	case restoreFailed:
		return help(reasonRestore, "restoring the snapshot failed: %s. Delete the Job to try again", o.restoreMessage), true
	case restoreDone:
		return decision{step: stepRestored, reason: reasonRestore, why: "the snapshot is restored"}, true
	case restoreNone:
	}
	return undecided, false
}

// observeRestoration finds out how far the restoration is.
func (s *scope) observeRestoration(ctx context.Context, seen *clusterSnapshot, claims []corev1.PersistentVolumeClaim) error {
	if s.cluster.Spec.Restore == nil || s.cluster.Spec.Restore.Store == nil || seen.known {
		return nil
	}
	done := s.cluster.Status.RestoreGeneration > 0
	for i := range claims {
		if !done && claims[i].Annotations[restoredAnnotation] != string(s.cluster.UID) {
			seen.restore = restoreTaken
			return nil
		}
	}
	how, message, err := s.observeJob(ctx, restoreJobName(s.cluster))
	switch {
	case !done && how == jobNeeded && err == nil:
		return s.checkRestoration(ctx, seen)
	case !done:
		seen.restore, seen.restoreMessage = restoration(how), message
	case how != jobNeeded: // an operator has written down that it is done, and has ended before it removed the Job
		seen.restore = restoreDone
	}
	return err
}

// How far a Job is that makes the data of a member.
const (
	jobNeeded  = "Needed" // nothing was done yet
	jobRunning = "Running"
	jobStuck   = "Stuck" // its pod has failed to start for minutes
	jobFailed  = "Failed"
	jobDone    = "Done" // the data is there, and nobody runs on it yet
)

// observeJob finds out how far a Job is, and what it has to tell.
func (s *scope) observeJob(ctx context.Context, name string) (how, message string, err error) {
	job := &batchv1.Job{}
	err = s.Get(ctx, client.ObjectKey{Namespace: s.cluster.Namespace, Name: name}, job)
	if err != nil {
		return jobNeeded, "", client.IgnoreNotFound(err)
	}
	switch done, failed := JobState(job); {
	case done:
		return jobDone, "", nil
	case failed:
		message, err = JobMessage(ctx, s.Client, job)
		return jobFailed, message, err
	default:
		trouble, err := JobTrouble(ctx, s.Client, job, s.Now())
		if trouble.Stalled() {
			return jobStuck, trouble.String(), err
		}
		return jobRunning, trouble.String(), err
	}
}

// JobState tells whether a Job has succeeded, and whether it has failed for good.
func JobState(job *batchv1.Job) (done, failed bool) {
	for _, c := range job.Status.Conditions {
		done = done || c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue
		failed = failed || c.Type == batchv1.JobFailed && c.Status == corev1.ConditionTrue
	}
	return done, failed
}

func jobPods(ctx context.Context, c client.Client, job *batchv1.Job) (*corev1.PodList, error) {
	pods := &corev1.PodList{}
	return pods, c.List(ctx, pods, client.InNamespace(job.Namespace), client.MatchingLabels{batchv1.JobNameLabel: job.Name})
}

// JobTrouble returns what keeps the pod of a Job from running. A Job keeps the image that its EtcdCluster named when the Job was created.
func JobTrouble(ctx context.Context, c client.Client, job *batchv1.Job, now time.Time) (workload.Trouble, error) {
	pods, err := jobPods(ctx, c, job)
	return workload.FindTrouble(pods.Items,
		fmt.Sprintf("correct spec.image of EtcdCluster %s, or give its imagePullSecrets, and delete Job %s",
			job.Labels["app.kubernetes.io/instance"], job.Name), "", now), err
}

// JobMessage returns what the last pod of a Job had to tell: of one that succeeded, if there is one.
func JobMessage(ctx context.Context, c client.Client, job *batchv1.Job) (string, error) {
	pods, err := jobPods(ctx, c, job)
	if err != nil {
		return "", err
	}
	message := "its pods no longer exist"
	for _, p := range pods.Items {
		for _, status := range p.Status.ContainerStatuses {
			if ended := status.State.Terminated; ended != nil {
				message = ended.Message
				if ended.ExitCode == 0 {
					return message, nil
				}
			}
		}
	}
	return message, nil
}

// beginRestoration makes the volume of the first member, and the Job that fills it.
func (s *scope) beginRestoration(ctx context.Context) error {
	volume := restoreClaim(s.cluster)
	// It outlives the object, as those do that the StatefulSet makes: no owner.
	if err := s.Create(ctx, volume); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating the volume for the snapshot: %w", err)
	}
	job := restoreJob(s.cluster, Image(s.cluster, s.Repository, s.Version), s.peerURL(0), s.restoreToken())
	s.Pods.Assign(&job.Spec.Template.Spec)
	return apply.All(ctx, s.Client, s.cluster, job)
}

// endRestoration gives the volume free for the first member.
func (s *scope) endRestoration(ctx context.Context) error {
	job := &batchv1.Job{}
	job.Namespace, job.Name = s.cluster.Namespace, restoreJobName(s.cluster)
	return apply.Remove(ctx, s.Client, s.cluster, job)
}

func (s *scope) restoreToken() string { return fmt.Sprintf("%s-restored", s.cluster.UID) }
