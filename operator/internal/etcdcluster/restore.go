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

// restorationState is the progress of restoring a snapshot, with which a new cluster may start.
type restorationState string

const (
	restoreNone    restorationState = ""        // not requested, or completed earlier
	restoreTaken   restorationState = "Taken"   // volumes exist that the restoration would overwrite
	restoreUnready restorationState = "Unready" // its store does not exist, or lacks credentials
	restoreNeeded  restorationState = jobNeeded
	restoreRunning restorationState = jobRunning
	restoreStuck   restorationState = jobStuck
	restoreFailed  restorationState = jobFailed
	restoreDone    restorationState = jobDone
)

// restoreBeforeStart restores the snapshot in the spec before a cluster is started.
func restoreBeforeStart(o observation) (decision, bool) {
	if o.initialized {
		return undecided, false
	}
	switch o.restore {
	case restoreTaken:
		return actionRequired(reasonRestore, "spec.restore is set, and volumes of an earlier cluster of this name exist: delete the "+
			"PersistentVolumeClaims if their data is not needed, or choose another name"), true
	case restoreUnready:
		return actionRequired(reasonRestore, "%s", o.restoreMessage), true
	case restoreNeeded:
		return decision{step: stepRestore, reason: reasonRestore, why: "spec.restore is set"}, true
	case restoreRunning:
		return wait(reasonRestore, "restoring the snapshot%s", o.restoreMessage), true
	case restoreStuck:
		return actionRequired(reasonRestore, "the pod that restores the snapshot cannot start%s", o.restoreMessage), true
	case restoreFailed:
		return actionRequired(reasonRestore, "restoring the snapshot failed: %s. Delete the Job to try again", o.restoreMessage), true
	case restoreDone:
		return decision{step: stepRestored, reason: reasonRestore, why: "the snapshot is restored"}, true
	case restoreNone:
	}
	return undecided, false
}

// observeRestoration observes the progress of a restoration.
func (s *scope) observeRestoration(ctx context.Context, observed *clusterSnapshot, claims []corev1.PersistentVolumeClaim) error {
	if s.cluster.Spec.Restore == nil || s.cluster.Spec.Restore.Store == nil || observed.initialized {
		return nil
	}
	done := s.cluster.Status.RestoreGeneration > 0
	for i := range claims {
		if !done && claims[i].Annotations[restoredAnnotation] != string(s.cluster.UID) {
			observed.restore = restoreTaken
			return nil
		}
	}
	how, message, err := s.observeJob(ctx, restoreJobName(s.cluster))
	switch {
	case !done && how == jobNeeded && err == nil:
		return s.checkRestoration(ctx, observed)
	case !done:
		observed.restore, observed.restoreMessage = restorationState(how), message
	case how != jobNeeded: // the operator stopped after it wrote the status, and before it removed the Job
		observed.restore = restoreDone
	}
	return err
}

// States of a Job that prepares the data of a member.
const (
	jobNeeded  = "Needed" // the Job does not exist
	jobRunning = "Running"
	jobStuck   = "Stuck" // its pod has not started for minutes
	jobFailed  = "Failed"
	jobDone    = "Done" // the data is complete, and not in use yet
)

// observeJob returns the state of a Job, and its message.
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

// JobState returns whether a Job has succeeded, and whether it has failed permanently.
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

// JobTrouble returns why the pod of a Job does not run. The image of a Job is the one of its EtcdCluster when the Job was created.
func JobTrouble(ctx context.Context, c client.Client, job *batchv1.Job, now time.Time) (workload.Trouble, error) {
	pods, err := jobPods(ctx, c, job)
	return workload.FindTrouble(pods.Items,
		fmt.Sprintf("correct spec.image of EtcdCluster %s, or set its imagePullSecrets, and delete Job %s",
			job.Labels["app.kubernetes.io/instance"], job.Name), "", now), err
}

// JobMessage returns the termination message of the last pod of a Job, or of the pod that succeeded.
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

// beginRestoration creates the volume of the first member, and the Job that restores the snapshot to it.
func (s *scope) beginRestoration(ctx context.Context) error {
	volume := restoreClaim(s.cluster)
	// The volume has no owner, like those that the StatefulSet creates, so it outlives the EtcdCluster.
	if err := s.Create(ctx, volume); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating the volume for the snapshot: %w", err)
	}
	job := restoreJob(s.cluster, Image(s.cluster, s.Repository, s.Version), s.peerURL(0), s.restoreToken())
	s.Pods.Assign(&job.Spec.Template.Spec)
	return apply.All(ctx, s.Client, s.cluster, job)
}

// endRestoration removes the Job, so that the first member can use the volume.
func (s *scope) endRestoration(ctx context.Context) error {
	job := &batchv1.Job{}
	job.Namespace, job.Name = s.cluster.Namespace, restoreJobName(s.cluster)
	return apply.Remove(ctx, s.Client, s.cluster, job)
}

func (s *scope) restoreToken() string { return fmt.Sprintf("%s-restored", s.cluster.UID) }
