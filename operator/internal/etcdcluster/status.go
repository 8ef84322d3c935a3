package etcdcluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/apply"
	"github.com/kcplane/kcp/operator/internal/conditions"
	"github.com/kcplane/kcp/operator/internal/workload"
)

// reportObservation writes the parts of the status that depend on the observation only.
func (s *scope) reportObservation(observed *clusterSnapshot) {
	status := &s.cluster.Status
	status.DataDirectory = cmp.Or(observed.dataDirectory, status.DataDirectory)
	if observed.endRecovery {
		status.Recovery = nil
	}
	if observed.refuseRecovery {
		status.Recovery = &v1alpha1.EtcdRecoveryStatus{EtcdSurvivorSpec: *s.survivorSpec(), State: v1alpha1.EtcdRecoveryRefused}
		s.userError = cmp.Or(s.userError,
			conditions.Stall("RecoveryRefused", "spec.restore.survivor is refused because a majority of the members "+
				"answers: remove it from the spec"))
	}
	s.after = conditions.Earliest(s.after, observed.recheck)
}

// report writes the status of a decision. Without a snapshot, the status of members is kept, and blocked says why there is no snapshot.
func (s *scope) report(observed *clusterSnapshot, d decision, blocked error) {
	status := &s.cluster.Status
	if size := quota(s.cluster); size > largeQuota && status.ObservedGeneration != s.cluster.Generation {
		s.Recorder.Eventf(s.cluster, nil, corev1.EventTypeWarning, "LargeQuota", "Check",
			"spec.quotaBackendBytes is %d, more than the maximum of 8 GiB that "+
				"etcd recommends: members take long to start, to replace and to defragment", size)
	}
	status.ObservedGeneration = s.cluster.Generation
	if s.issued != nil {
		s.after = conditions.Earliest(s.after, conditions.Expiring(&status.Conditions, s.cluster.Generation, s.issued))
	}
	if _, err := s.statefulSet(members{}); err != nil && blocked == nil {
		blocked = conditions.Stall("InvalidPodTemplate", "%s", err.Error())
	}
	if s.certificatesErr != nil {
		s.set(v1alpha1.ConditionCertificatesReady, false, conditions.Cause(s.certificatesErr).Reason, s.certificatesErr.Error())
	} else if observed != nil {
		s.set(v1alpha1.ConditionCertificatesReady, true, "Issued", "")
	}
	if observed != nil {
		s.clearFailure(d)
		if d.reason == reasonComponent {
			held, _ := workload.Wait(status.Conditions, s.cluster.Generation, d.reason, d.why, s.Now())
			workload.SetHeld(&status.Conditions, held)
		} else if observed.rolloutHeld != nil {
			workload.SetHeld(&status.Conditions, *observed.rolloutHeld)
		}
		s.reportRotation()
		if d.step == stepRecordIdentity {
			status.ClusterID = identity(observed.clusterID)
		}
		if d.step == stepRestored {
			status.RestoreGeneration = 1
		}
		s.reportRecovery(d)
		s.reportRepairs(d)
		if status.ClusterID != "" {
			status.ClientSecretName, status.Endpoints = ClientSecretName(s.cluster.Name), []string{ClientURL(s.cluster)}
		}
		s.reportMembers(observed)
		s.reportOperation(d)
		s.reportHealth(observed, d)
	} else if retriable(blocked) == nil && apimeta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionAvailable) {
		apimeta.SetStatusCondition(&status.Conditions, metav1.Condition{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionUnknown,
			Reason: "NotObserved", Message: blocked.Error(), ObservedGeneration: s.cluster.Generation})
	}
	s.summarize(observed, d, blocked)
}

func (s *scope) reportMembers(observed *clusterSnapshot) {
	status := &s.cluster.Status
	ready := 0
	if !observed.quorum { // without a majority, the last list is kept
		for i := range status.Members {
			status.Members[i].Ready = false
		}
	} else {
		status.Members, status.Leader = nil, ""
		versions := map[string]bool{}
		for _, m := range observed.members {
			reported := v1alpha1.EtcdMemberStatus{ID: identity(m.id), IsLearner: m.learner, IsLeader: m.leader, Version: m.version,
				Ready: m.healthy && !m.learner,
				Name:  memberName(s.cluster, m.ordinal), DBSize: coarse(m.size), DBSizeInUse: coarse(m.inUse)}
			if m.ordinal < 0 {
				reported.Name = fmt.Sprintf("%s (%x)", m.name, m.id)
			}
			if m.lag > lagLimit {
				reported.RaftIndexLag = m.lag
			}
			if m.leader {
				status.Leader = reported.Name
			}
			if reported.Ready {
				ready++
			}
			versions[m.version] = true
			status.Members = append(status.Members, reported)
		}
		delete(versions, "")
		if len(versions) == 1 && observed.healthy() {
			for version := range versions {
				status.CurrentVersion = version
			}
		}
		s.set(v1alpha1.ConditionVersionSkew, len(versions) > 1, "MultipleVersions", fmt.Sprintf("%d versions run", len(versions)))
	}
	status.ReadyMembers = fmt.Sprintf("%d/%d", ready, observed.want)
}

// coarse rounds a size up, so that the status does not change with every write to etcd.
func coarse(bytes int64) int64 {
	const unit = 4 << 20
	return (bytes + unit - 1) / unit * unit
}

// reportOperation reports the current operation, and when it started.
func (s *scope) reportOperation(d decision) {
	status := &s.cluster.Status
	kinds := map[step]v1alpha1.EtcdOperationType{
		stepAdd: v1alpha1.EtcdAdd, stepStart: v1alpha1.EtcdAdd, stepPromote: v1alpha1.EtcdAdd, stepRemove: v1alpha1.EtcdRemove,
		stepWipe: v1alpha1.EtcdReplace, stepRecover: v1alpha1.EtcdRestore, stepRestart: v1alpha1.EtcdUpgrade,
		stepDefragment:  v1alpha1.EtcdDefragment,
		stepGrowVolumes: v1alpha1.EtcdGrowVolume,
	}
	kind, known := kinds[d.step]
	switch {
	case d.step == stepNothing:
		status.Operation = nil
		return
	case !known:
		return
	case d.reason == reasonReplace:
		kind = v1alpha1.EtcdReplace
	}
	name := memberName(s.cluster, d.ordinal)
	if kind == v1alpha1.EtcdGrowVolume {
		name = "" // all members
	}
	if under := status.Operation; under != nil && under.Member == name &&
		(under.Type == kind || under.Type == v1alpha1.EtcdReplace && kind == v1alpha1.EtcdAdd) {
		return
	}
	operation := &v1alpha1.EtcdOperationStatus{Type: kind, Member: name, StartedAt: metav1.NewTime(s.Now()).Rfc3339Copy()}
	if d.id != 0 {
		operation.MemberID = identity(d.id)
	}
	if kind == v1alpha1.EtcdDefragment {
		status.LastDefragmentation = &operation.StartedAt
	}
	status.Operation = operation
}

func (s *scope) reportHealth(observed *clusterSnapshot, d decision) {
	unhealthy := len(observed.members) < min(observed.want, observed.recorded)
	corrupt := false
	for _, m := range observed.voters() {
		unhealthy, corrupt = unhealthy || !m.healthy, corrupt || m.corrupt
	}
	known := s.cluster.Status.ClusterID != ""
	switch {
	case !observed.quorum:
		s.set(v1alpha1.ConditionAvailable, false, d.reason, d.why)
	case !slices.ContainsFunc(observed.members, func(m member) bool { return m.healthy }): // a healthy member knows a leader
		s.set(v1alpha1.ConditionAvailable, false, "NoLeader", "the members are electing a leader")
	case observed.noSpace || corrupt || observed.otherCluster:
		s.set(v1alpha1.ConditionAvailable, false, d.reason, d.why)
	default:
		s.set(v1alpha1.ConditionAvailable, known, "Quorum", "a majority of the members answers")
	}
	s.set(v1alpha1.ConditionQuorumLost, known && !observed.quorum, d.reason, d.why)
	s.set(v1alpha1.ConditionDegraded, observed.quorum && (unhealthy || corrupt), d.reason, d.why)
	s.set(v1alpha1.ConditionProgressing, s.cluster.Status.Operation != nil || d.step == stepScalePods || d.step == stepApply, d.reason, d.why)
	s.set(v1alpha1.ConditionAlarm, observed.noSpace || corrupt, d.reason, d.why)
}

// reportBackups reports whether the schedules of the cluster have the snapshots that they should have.
func (s *scope) reportBackups(ctx context.Context) error {
	schedules := &v1alpha1.EtcdBackupScheduleList{}
	if err := s.List(ctx, schedules, client.InNamespace(s.cluster.Namespace)); err != nil {
		return err
	}
	found := false
	for _, schedule := range schedules.Items {
		if schedule.Spec.Cluster != s.cluster.Name || schedule.Spec.Suspend {
			continue
		}
		found = true
		if ready := apimeta.FindStatusCondition(schedule.Status.Conditions, v1alpha1.ConditionReady); ready != nil &&
			ready.Status == metav1.ConditionFalse {
			s.set(v1alpha1.ConditionBackupHealthy, false, ready.Reason, schedule.Name+": "+ready.Message)
			return nil
		}
	}
	if !found {
		apimeta.RemoveStatusCondition(&s.cluster.Status.Conditions, v1alpha1.ConditionBackupHealthy)
		return nil
	}
	s.set(v1alpha1.ConditionBackupHealthy, true, "OnSchedule", "")
	return nil
}

// summarize writes the summary conditions and the phase.
func (s *scope) summarize(observed *clusterSnapshot, d decision, blocked error) {
	if blocked == nil && d.step == stepNothing {
		blocked = s.certificatesErr
	}
	if blocked != nil {
		why := conditions.Cause(blocked)
		if d = wait(why.Reason, "%s", why.Message); why.Stalled {
			d.step = stepActionRequired
		}
	}
	ready := d.step == stepNothing && observed != nil && observed.healthy() && len(observed.members) == observed.want
	s.set(v1alpha1.ConditionReady, ready, d.reason, d.why)
	s.set(v1alpha1.ConditionReconciling, !ready && d.step != stepActionRequired, d.reason, d.why)
	s.set(v1alpha1.ConditionStalled, d.step == stepActionRequired, d.reason, d.why)
	status := &s.cluster.Status
	switch {
	case d.step == stepActionRequired:
		status.Phase = v1alpha1.PhaseFailed
	case apimeta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionAvailable):
		status.Phase = v1alpha1.PhaseRunning
	default:
		status.Phase = v1alpha1.PhaseProvisioning
	}
}

// set writes a condition. A condition that is False when all is well has no message while it is False: the message would only repeat the
// one of the other conditions.
func (s *scope) set(name string, met bool, reason, message string) {
	c := metav1.Condition{Type: name, Status: metav1.ConditionFalse, Reason: reason, Message: message,
		ObservedGeneration: s.cluster.Generation}
	if met {
		c.Status = metav1.ConditionTrue
	}
	if bad := name != v1alpha1.ConditionReady && name != v1alpha1.ConditionAvailable && name != v1alpha1.ConditionBackupHealthy &&
		name != v1alpha1.ConditionCertificatesReady; bad && !met {
		c.Reason, c.Message = "AsExpected", ""
	}
	apimeta.SetStatusCondition(&s.cluster.Status.Conditions, c)
}

// retriable returns an error that must be retried, and nil for an error whose end is reported by a watch.
func retriable(err error) error {
	var blocked *conditions.Blocked
	var taken *apply.TakenError
	if errors.As(err, &blocked) || errors.As(err, &taken) {
		return nil
	}
	return err
}
