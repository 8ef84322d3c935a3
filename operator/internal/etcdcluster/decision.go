package etcdcluster

import (
	"fmt"
	"strconv"
	"strings"
)

// step is the action of a decision. A reconciliation executes one step; the next one is decided from the result.
type step string

const (
	stepNothing        step = ""               // the cluster matches the spec
	stepWait           step = "Wait"           // something completes without an action
	stepActionRequired step = "ActionRequired" // a person has to act
	stepScalePods      step = "ScalePods"      // change the number of pods
	stepApply          step = "Apply"          // update the pod template
	stepBootstrap      step = "Bootstrap"      // instruct the first pod to start a cluster; once for each cluster
	stepRecordIdentity step = "RecordIdentity" // write the ID of the cluster into the status
	stepClearStart     step = "ClearStart"     // remove the start annotation of a pod
	stepAdd            step = "Add"            // add a learner
	stepStart          step = "Start"          // instruct a pod to join the cluster
	stepPromote        step = "Promote"        // promote a learner to a voter
	stepRemove         step = "Remove"         // remove a member
	stepWipe           step = "Wipe"           // delete a volume that no member uses, and its pod
	stepMoveLeader     step = "MoveLeader"
	stepRestart        step = "Restart" // delete a pod, which is created again from the current template
	stepDefragment     step = "Defragment"
	stepGrowVolumes    step = "GrowVolumes" // expand all volumes, and replace the StatefulSet
	stepDisarm         step = "Disarm"      // disarm an alarm
	stepRestore        step = "Restore"
	stepRestored       step = "Restored"  // write the completed restoration into the status
	stepRecover        step = "Recover"   // write the recovery into the status
	stepStop           step = "Stop"      // stop all pods, and keep all volumes
	stepCopy           step = "Copy"      // copy the data of the survivor
	stepRecovered      step = "Recovered" // write the new data directory into the status
)

// decision is the next step, its target and its reason.
type decision struct {
	step    step
	ordinal int    // of the pod
	id      uint64 // of the member
	to      uint64 // the new leader
	pods    int    // the new number of pods
	repair  bool   // it starts to replace a member
	reason  string // in conditions and events
	why     string
}

// Reasons of decisions, in conditions and events.
const (
	reasonPaused            = "Paused"
	reasonBootstrap         = "Bootstrapping"
	reasonQuorumLost        = "QuorumLost"
	reasonUnknownMember     = "UnknownMember"
	reasonClusterIDMismatch = "ClusterIDMismatch"
	reasonScale             = "Scaling"
	reasonReplace           = "ReplacingMember"
	reasonDegraded          = "MemberUnhealthy"
	reasonRecentlyReplaced  = "RecentlyReplaced"
	reasonRoll              = "RollingPods"
	reasonNoSpace           = "OutOfSpace"
	reasonDefragment        = "Defragmenting"
	reasonReconciled        = "Reconciled"
	reasonPodsStarting      = "PodsStarting"
	reasonFormerPods        = "FormerPods"
	reasonRestore           = "Restoring"
	reasonRecover           = "Recovering"
	reasonGrow              = "GrowingVolumes"
	reasonNoExpansion       = "VolumeExpansionUnsupported"
	reasonComponent         = "ComponentRollingOut"
)

// decide returns the next step. The rules are in the order of priority; the first rule that applies decides.
func decide(o observation) decision {
	d := next(o)
	if o.paused && d.step != stepNothing && d.step != stepWait && d.step != stepActionRequired {
		return actionRequired(reasonPaused, "spec.maintenance.paused is set: the next step would be %s (%s)", d.step, d.why)
	}
	return d
}

func next(o observation) decision {
	rules := []func(observation) (decision, bool){
		restartBlockedPods, waitForFormerPods, restoreBeforeStart, bootstrap, recoverFromSurvivor, restartDistrusting, waitForQuorum,
		refuseUnknownMembers, clearStart, disarmRemoved, promoteLearner,
		replaceFailed, addMembers, scaleDown, rollPods, scaleUp, freeSpace, defragment, growVolumes,
	}
	for _, rule := range rules {
		if d, ok := rule(o); ok {
			return d
		}
	}
	if !o.healthy() {
		return wait(reasonDegraded, "%s", o.unhealthyMembers())
	}
	return decision{reason: reasonReconciled, why: fmt.Sprintf("%d of %d members are healthy", len(o.members), o.want)}
}

// unhealthyMembers describes which members do not answer. It is possible that less than a majority answers the operator, while a majority
// answers one of the members.
func (o observation) unhealthyMembers() string {
	var ordinals []string
	for _, m := range o.voters() {
		if !m.healthy || m.corrupt {
			ordinals = append(ordinals, strconv.Itoa(m.ordinal))
		}
	}
	who := "member " + strings.Join(ordinals, "") + " does not answer"
	if len(ordinals) > 1 {
		who = "members " + strings.Join(ordinals, " and ") + " do not answer"
	}
	if o.healthyMajority() {
		return who + "; the others have quorum"
	}
	return who + " the operator, though a majority answers another member: if this lasts, check the network between the operator and their " +
		"pods"
}

func wait(reason, why string, args ...any) decision {
	return decision{step: stepWait, reason: reason, why: fmt.Sprintf(why, args...)}
}

func actionRequired(reason, why string, args ...any) decision {
	return decision{step: stepActionRequired, reason: reason, why: fmt.Sprintf(why, args...)}
}

func scalePods(pods int, reason, why string, args ...any) (decision, bool) {
	return decision{step: stepScalePods, pods: pods, reason: reason, why: fmt.Sprintf(why, args...)}, true
}

func onMember(s step, m member, reason, why string) (decision, bool) {
	return decision{step: s, ordinal: m.ordinal, id: m.id, reason: reason, why: why}, true
}

func onPod(s step, ordinal int, reason, why string) (decision, bool) {
	return decision{step: s, ordinal: ordinal, reason: reason, why: why}, true
}

var undecided decision

// restartBlockedPods replaces pods that cannot start, if their template has changed since. Nothing is lost by that, so it needs no quorum.
func restartBlockedPods(o observation) (decision, bool) {
	for ordinal, p := range o.pods {
		if p.exists && p.outdated && (p.unstartable || p.crashing) {
			return onPod(stepRestart, ordinal, reasonRoll, "it cannot start, and its pod template has changed since")
		}
	}
	return undecided, false
}

// waitForFormerPods waits for pods of a deleted StatefulSet before the next one is created.
func waitForFormerPods(o observation) (decision, bool) {
	if o.former == "" {
		return undecided, false
	}
	return wait(reasonFormerPods, "waiting for pod %s to terminate, which belongs to a deleted StatefulSet", o.former), true
}

// bootstrap starts a new cluster. Pods are created for all volumes that exist, so that the members of a deleted EtcdCluster of the same
// name are found again. A cluster is started only if no volume holds data.
func bootstrap(o observation) (decision, bool) {
	if o.initialized {
		return undecided, false
	}
	if o.quorum {
		return decision{step: stepRecordIdentity, reason: reasonBootstrap, why: "the members answer"}, true
	}
	if need := max(1, o.volumes); len(o.pods) < need {
		return scalePods(need, reasonBootstrap, "a cluster starts with one member")
	}
	for ordinal, p := range o.pods {
		switch {
		case !p.exists:
			return wait(reasonPodsStarting, "pod %d does not exist yet", ordinal), true
		case !p.empty:
			return wait(reasonPodsStarting, "waiting for pod %d to answer; if the members whose volumes exist do not reach a majority, "+
				"check the logs of the pods", ordinal), true
		}
	}
	if o.pods[0].hasStart {
		return wait(reasonBootstrap, "pod 0 starts the cluster"), true
	}
	if o.recovery != recoverNone {
		return actionRequired(reasonBootstrap,
			"spec.restore.survivor names a member, and no volume holds data: remove it to start an empty cluster"), true
	}
	return onPod(stepBootstrap, 0, reasonBootstrap, "no volume holds data")
}

// restartDistrusting restarts the pods that do not trust the current authorities, one at a time, if all processes are stable and members
// still do not answer: they may reject each other, or the operator, and waiting does not help. It changes no data, so it needs no quorum.
// While there is a quorum, healthy members are not restarted.
func restartDistrusting(o observation) (decision, bool) {
	if !o.initialized || !o.unhealthyForLong || !o.allStable || o.changing {
		return undecided, false
	}
	for ordinal := len(o.pods) - 1; ordinal >= 0; ordinal-- {
		if m, ok := o.at(ordinal); o.quorum && ok && m.healthy {
			continue
		}
		if p := o.pods[ordinal]; p.exists && p.outdatedTrust && !p.hasStart {
			return onPod(stepRestart, ordinal, reasonRoll, "members do not answer, and its process does not trust the current authorities")
		}
	}
	return undecided, false
}

// waitForQuorum stops all other changes while no majority answers: they could destroy the last copy of the data.
func waitForQuorum(o observation) (decision, bool) {
	if o.quorum {
		return undecided, false
	}
	if need := max(1, o.recorded); len(o.pods) == 0 {
		return scalePods(need, reasonQuorumLost, "the pods of the members are gone; they are created again with their volumes")
	}
	lost := 0
	for _, ordinal := range o.recordedVoters {
		if o.pod(ordinal).empty {
			lost++
		}
	}
	if left := len(o.recordedVoters) - lost; lost > 0 && left <= len(o.recordedVoters)/2 {
		return actionRequired(reasonQuorumLost,
			"%d of %d members have lost their volumes, so no majority is left, and nothing is changed. Bring the "+
				"volumes back, set a remaining member in spec.restore.survivor, or restore a snapshot into a new EtcdCluster; the remaining "+
				"volumes stay as they are", lost, len(o.recordedVoters)), true
	}
	return wait(reasonQuorumLost, "no majority of the members answers, and nothing is changed. Find out why the pods are not ready: "+
		"the cluster recovers by itself once a majority runs"), true
}

// refuseUnknownMembers requires an action if another cluster answers, or the cluster has members that the operator did not add.
func refuseUnknownMembers(o observation) (decision, bool) {
	if o.otherCluster {
		return actionRequired(reasonClusterIDMismatch,
			"the cluster ID of the members is not the one in status.clusterID; bring the volumes of that cluster back, or "+
				"delete this EtcdCluster and create it again to adopt the cluster that answers"), true
	}
	for _, m := range o.members {
		if m.ordinal < 0 {
			return actionRequired(reasonUnknownMember, "member %x (%s) was not added by the operator; remove it with etcdctl member remove %x",
				m.id, m.name, m.id), true
		}
	}
	return undecided, false
}

// clearStart removes the start annotation as soon as the member has started, so that it cannot be used a second time.
func clearStart(o observation) (decision, bool) {
	for ordinal, p := range o.pods {
		if m, ok := o.at(ordinal); p.hasStart && !p.empty && ok && m.healthy {
			return onPod(stepClearStart, ordinal, reasonScale, "it has started as instructed")
		}
	}
	return undecided, false
}

// disarmRemoved disarms alarms of members that were removed. Such an alarm makes the other members reject writes.
func disarmRemoved(o observation) (decision, bool) {
	return decision{step: stepDisarm, reason: reasonReplace, why: "the member with the alarm was removed"}, o.removedMemberAlarm
}
