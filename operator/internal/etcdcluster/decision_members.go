package etcdcluster

import (
	"fmt"
	"slices"
	"time"
)

// promoteLearner brings a learner to the point where it can vote, and promotes it. While there is a learner, nothing else changes.
func promoteLearner(o observation) (decision, bool) {
	for _, m := range o.members {
		if !m.learner {
			continue
		}
		p := o.pod(m.ordinal)
		switch {
		case m.ordinal >= o.want:
			return onMember(stepRemove, m, reasonScale, "spec.replicas is lower")
		case m.started && p.empty:
			return repair(o, stepRemove, m, "it has lost its volume before it could vote")
		case m.started && m.healthy:
			return onMember(stepPromote, m, reasonScale, "it has caught up")
		case !m.started && p.empty && !(p.hasStart && p.startID == m.id):
			return onMember(stepStart, m, reasonScale, "it is a learner now")
		case !m.started && p.crashing && !p.empty:
			return repair(o, stepWipe, m, "its volume holds the data of a removed member")
		}
		return wait(reasonScale, "waiting for member %d to copy the data of the others", m.ordinal), true
	}
	return undecided, false
}

// repair starts to replace a member, unless it was replaced recently. If a disk fails, or a process crashes for another reason than its
// data, the member would be replaced over and over, and each replacement copies all data over the network.
func repair(o observation, s step, m member, why string) (decision, bool) {
	if at := o.pod(m.ordinal).notBefore; !at.IsZero() {
		return wait(reasonRecentlyReplaced,
			"member %d was replaced recently, and is not replaced again before %s, although %s: check its volume "+
				"and its log", m.ordinal, at.UTC().Format(time.RFC3339), why), true
	}
	d, ok := onMember(s, m, reasonReplace, why)
	d.repair = true
	return d, ok
}

// replaceFailed removes members that cannot recover. Their pods join again as new members.
func replaceFailed(o observation) (decision, bool) {
	waiting := undecided
	for _, m := range o.voters() {
		p := o.pod(m.ordinal)
		why := ""
		switch {
		case p.empty:
			why = "its volume was lost"
		case m.corrupt:
			why = "its data differs from the other members"
		case p.crashing && !m.healthy && !p.outdated:
			why = "its process crashes repeatedly"
		default:
			continue
		}
		if !o.quorumWithout(m) {
			return actionRequired(reasonDegraded, "member %d cannot be replaced: %s, and without it the others have no majority; bring "+
				"another member back first", m.ordinal, why), true
		}
		d, _ := repair(o, stepRemove, m, why)
		switch {
		case d.step == stepWait: // another member may be replaced nevertheless
			waiting = d
		case m.leader:
			return moveLeader(o, m, reasonReplace, why)
		default:
			return d, true
		}
	}
	return waiting, waiting.step != stepNothing
}

// addMembers adds a member for each pod without one.
func addMembers(o observation) (decision, bool) {
	for ordinal := range min(len(o.pods), o.want) {
		if _, ok := o.at(ordinal); ok {
			continue
		}
		p := o.pods[ordinal]
		switch {
		case p.empty && o.healthy():
			return onPod(stepAdd, ordinal, reasonScale, "its volume is empty")
		case p.empty:
			return wait(reasonDegraded, "pod %d is added when every other member is healthy", ordinal), true
		case p.crashing:
			return onPod(stepWipe, ordinal, reasonReplace, "its volume holds the data of a removed member")
		}
		return wait(reasonPodsStarting, "waiting for pod %d to start", ordinal), true
	}
	return undecided, false
}

// scaleDown removes the member with the highest ordinal, and then its pod.
func scaleDown(o observation) (decision, bool) {
	last := len(o.pods) - 1
	for _, m := range o.members {
		last = max(last, m.ordinal)
	}
	if last < o.want {
		return undecided, false
	}
	m, ok := o.at(last)
	switch {
	case !ok:
		return scalePods(last, reasonScale, "pod %d is no longer a member", last)
	case !o.healthyExcept(m.id):
		return wait(reasonDegraded, "member %d is removed when every other member is healthy", last), true
	case m.leader:
		return moveLeader(o, m, reasonScale, "it is about to be removed")
	}
	return onMember(stepRemove, m, reasonScale, "spec.replicas is lower")
}

func moveLeader(o observation, from member, reason, why string) (decision, bool) {
	to, ok := o.nextLeader(from)
	if !ok {
		return wait(reasonDegraded, "no other member can take over from the leader, member %d", from.ordinal), true
	}
	return decision{step: stepMoveLeader, ordinal: from.ordinal, id: from.id, to: to.id, reason: reason, why: why}, true
}

// rollPods deletes outdated pods, one at a time, while all other members are healthy.
func rollPods(o observation) (decision, bool) {
	if o.changing {
		return decision{step: stepApply, reason: reasonRoll, why: "the pod template has changed"}, true
	}
	var outdated []member
	for _, m := range o.leaderLast() {
		if o.pod(m.ordinal).outdated {
			outdated = append(outdated, m)
		}
	}
	if len(outdated) == 0 {
		return undecided, false
	}
	if o.noSpace && o.upgrading {
		return undecided, false // freeSpace has priority
	}
	next := outdated[0]
	if crashing := slices.IndexFunc(outdated, func(m member) bool { return !m.healthy }); crashing >= 0 {
		next = outdated[crashing]
	}
	switch {
	case !o.healthyExcept(next.id):
		return wait(reasonDegraded, "pod %d is replaced when every other member is healthy", next.ordinal), true
	case slices.ContainsFunc(o.members, func(m member) bool { return m.id != next.id && m.lag > lagLimit }):
		return wait(reasonRoll, "waiting for the members to catch up before the next pod is replaced"), true
	case next.healthy && o.component != "":
		return wait(reasonComponent, "pod %d is replaced after that: %s", next.ordinal, o.component), true
	case next.leader && len(o.members) > 1:
		return moveLeader(o, next, reasonRoll, "it is about to be restarted")
	}
	return onPod(stepRestart, next.ordinal, reasonRoll, "its pod template has changed")
}

// lagLimit is the number of Raft entries that a member may be behind its leader and still counts as up to date.
const lagLimit = 5000

// scaleUp adds a pod, while all members are healthy.
func scaleUp(o observation) (decision, bool) {
	switch pods := len(o.pods); {
	case pods >= o.want:
		return undecided, false
	case !o.healthy():
		return wait(reasonDegraded, "a member is added when all others are healthy"), true
	default:
		return scalePods(pods+1, reasonScale, "spec.replicas is %d", o.want)
	}
}

// growVolumes expands volumes until they, and the StatefulSet, have the size in the spec.
func growVolumes(o observation) (decision, bool) {
	return decision{step: stepGrowVolumes, reason: reasonGrow, why: "spec.storage.size is larger than the volumes"}, o.growing && o.healthy()
}

// freeSpace makes etcd accept writes again after its quota was exceeded: it defragments every member, and disarms the alarm.
func freeSpace(o observation) (decision, bool) {
	if !o.noSpace {
		return undecided, false
	}
	if !o.healthy() {
		return wait(reasonNoSpace, "members are defragmented when every member is healthy"), true
	}
	full := false
	for _, m := range o.leaderLast() {
		if fragmented(m, minReclaimable) {
			return onMember(stepDefragment, m, reasonNoSpace, "the quota is exceeded")
		}
		full = full || float64(m.size) > maxFillRatio*float64(o.quota)
	}
	if full {
		return actionRequired(reasonNoSpace,
			"the database exceeds spec.quotaBackendBytes (%d), and rejects writes: raise the quota, or delete keys and "+
				"wait for the compaction", o.quota), true
	}
	return decision{step: stepDisarm, reason: reasonNoSpace, why: "the database is below the quota again"}, true
}

const (
	// minReclaimable is the share of free space below which defragmentation is useless.
	minReclaimable = 0.1
	// maxFillRatio is the share of the quota up to which the cluster can continue.
	maxFillRatio = 0.9
	// minDefragSize is the size below which databases are not defragmented, unless the quota is exceeded.
	minDefragSize = 64 << 20
)

func fragmented(m member, threshold float64) bool {
	return float64(m.size-m.inUse) > threshold*float64(m.size)
}

// defragment returns free space to the file system. A member serves no requests while it is defragmented. So only one member at a time is
// defragmented, and only if all members are healthy.
func defragment(o observation) (decision, bool) {
	if !o.defrag.due || !o.healthy() {
		return undecided, false
	}
	for _, m := range o.leaderLast() {
		if m.size < minDefragSize || !fragmented(m, o.defrag.threshold) || (len(o.members) == 1 && !o.defrag.allowUnavailable) {
			continue
		}
		if m.leader && len(o.members) > 1 {
			return moveLeader(o, m, reasonDefragment, "it is about to be defragmented")
		}
		return onMember(stepDefragment, m, reasonDefragment, fmt.Sprintf("%d of %d bytes are free", m.size-m.inUse, m.size))
	}
	return undecided, false
}
