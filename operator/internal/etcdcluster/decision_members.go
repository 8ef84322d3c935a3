package etcdcluster

import (
	"fmt"
	"slices"
	"time"
)

// raiseLearner brings a learner to a vote. While there is one, nothing else changes.
func raiseLearner(o observation) (decision, bool) {
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
		case !m.started && p.empty && !(p.told && p.toldID == m.id):
			return onMember(stepStart, m, reasonScale, "it is a learner now")
		case !m.started && p.broken && !p.empty:
			return repair(o, stepWipe, m, "its volume holds the data of a removed member")
		}
		return wait(reasonScale, "waiting for member %d to copy the data of the others", m.ordinal), true
	}
	return undecided, false
}

// repair begins to replace a member, unless that was done lately: on a disk that fails, or with a process that ends for another reason
// than its data, it would be done over and over, and each time all data go over the network.
func repair(o observation, s step, m member, why string) (decision, bool) {
	if at := o.pod(m.ordinal).notBefore; !at.IsZero() {
		return wait(reasonRepaired, "member %d was replaced recently, and is not replaced again before %s, although %s: check its volume "+
			"and its log", m.ordinal, at.UTC().Format(time.RFC3339), why), true
	}
	d, ok := onMember(s, m, reasonReplace, why)
	d.repair = true
	return d, ok
}

// replaceLost takes members from the list that cannot come back. Their pods join again as new ones.
func replaceLost(o observation) (decision, bool) {
	later := undecided
	for _, m := range o.voters() {
		p := o.pod(m.ordinal)
		why := ""
		switch {
		case p.empty:
			why = "its volume was lost"
		case m.corrupt:
			why = "its data differs from the other members"
		case p.broken && !m.healthy && !p.outdated:
			why = "its process crashes repeatedly"
		default:
			continue
		}
		if !o.dispensable(m) {
			return help(reasonDegraded, "member %d cannot be replaced: %s, and without it the others have no majority; bring "+
				"another member back first", m.ordinal, why), true
		}
		d, _ := repair(o, stepRemove, m, why)
		switch {
		case d.step == stepWait: // another one need not wait for this
			later = d
		case m.leader:
			return moveLeader(o, m, reasonReplace, why)
		default:
			return d, true
		}
	}
	return later, later.step != stepNothing
}

// fillPods makes members of the pods that are none.
func fillPods(o observation) (decision, bool) {
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
		case p.broken:
			return onPod(stepWipe, ordinal, reasonReplace, "its volume holds the data of a removed member")
		}
		return wait(reasonPodsStarting, "pod %d starts", ordinal), true
	}
	return undecided, false
}

// shrink takes away the highest pod: its member first.
func shrink(o observation) (decision, bool) {
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
		return scalePods(last, reasonScale, "pod %d is no member any more", last)
	case !o.healthyBut(m.id):
		return wait(reasonDegraded, "member %d is removed when every other member is healthy", last), true
	case m.leader:
		return moveLeader(o, m, reasonScale, "it is about to be removed")
	}
	return onMember(stepRemove, m, reasonScale, "spec.replicas is lower")
}

func moveLeader(o observation, from member, reason, why string) (decision, bool) {
	to, ok := o.successor(from)
	if !ok {
		return wait(reasonDegraded, "no other member can take over from the leader, member %d", from.ordinal), true
	}
	return decision{step: stepMoveLeader, ordinal: from.ordinal, id: from.id, to: to.id, reason: reason, why: why}, true
}

// roll deletes the pods that were made otherwise than is asked for now, one at a time, while every member is healthy.
func roll(o observation) (decision, bool) {
	if o.changing {
		return decision{step: stepApply, reason: reasonRoll, why: "something else is asked for"}, true
	}
	var outdated []member
	for _, m := range o.followersFirst() {
		if o.pod(m.ordinal).outdated {
			outdated = append(outdated, m)
		}
	}
	if len(outdated) == 0 {
		return undecided, false
	}
	if o.noSpace && o.upgrading {
		return undecided, false // makeSpace goes first
	}
	next := outdated[0]
	if broken := slices.IndexFunc(outdated, func(m member) bool { return !m.healthy }); broken >= 0 {
		next = outdated[broken]
	}
	switch {
	case !o.healthyBut(next.id):
		return wait(reasonDegraded, "pod %d is replaced when every other member is healthy", next.ordinal), true
	case slices.ContainsFunc(o.members, func(m member) bool { return m.id != next.id && m.lag > lagLimit }):
		return wait(reasonRoll, "waiting for the members to catch up before the next pod is replaced"), true
	case next.leader && len(o.members) > 1:
		return moveLeader(o, next, reasonRoll, "it is about to be restarted")
	}
	return onPod(stepRestart, next.ordinal, reasonRoll, "something else was asked for since it was made")
}

// lagLimit is by how many changes a member may be behind its leader and still count as one that follows.
const lagLimit = 5000

func grow(o observation) (decision, bool) {
	switch pods := len(o.pods); {
	case pods >= o.want:
		return undecided, false
	case !o.healthy():
		return wait(reasonDegraded, "a member is added when all others are healthy"), true
	default:
		return scalePods(pods+1, reasonScale, "%d members are asked for", o.want)
	}
}

// growVolumes goes on until volumes, and the StatefulSet, are as large as is asked for.
func growVolumes(o observation) (decision, bool) {
	return decision{step: stepGrowVolumes, reason: reasonGrow, why: "spec.storage.size asks for larger volumes"}, o.growing && o.healthy()
}

// makeSpace ends the state in which etcd takes no writes, once the free space of every member was given back.
func makeSpace(o observation) (decision, bool) {
	if !o.noSpace {
		return undecided, false
	}
	if !o.healthy() {
		return wait(reasonNoSpace, "space is made when every member is healthy"), true
	}
	full := false
	for _, m := range o.followersFirst() {
		if fragmented(m, worthwhile) {
			return onMember(stepDefragment, m, reasonNoSpace, "the quota is used up")
		}
		full = full || float64(m.size) > roomy*float64(o.quota)
	}
	if full {
		return help(reasonNoSpace, "the database has outgrown spec.quotaBackendBytes (%d), and takes no writes: raise it, or delete keys and "+
			"wait for the compaction", o.quota), true
	}
	return decision{step: stepDisarm, reason: reasonNoSpace, why: "there is space again"}, true
}

const (
	// Below this share of free space, giving it back changes nothing.
	worthwhile = 0.1
	// Up to this share of the quota there is room to go on.
	roomy = 0.9
	// Databases below this size are left alone, unless they are full.
	smallest = 64 << 20
)

func fragmented(m member, threshold float64) bool {
	return float64(m.size-m.inUse) > threshold*float64(m.size)
}

// defragment gives free space back. The member takes no requests meanwhile, so one at a time, and only if the others can
// do without it.
func defragment(o observation) (decision, bool) {
	if !o.defrag.due || !o.healthy() {
		return undecided, false
	}
	for _, m := range o.followersFirst() {
		if m.size < smallest || !fragmented(m, o.defrag.threshold) || (len(o.members) == 1 && !o.defrag.allowUnavailable) {
			continue
		}
		if m.leader && len(o.members) > 1 {
			return moveLeader(o, m, reasonDefragment, "it is about to be defragmented")
		}
		return onMember(stepDefragment, m, reasonDefragment, fmt.Sprintf("%d of %d bytes are free", m.size-m.inUse, m.size))
	}
	return undecided, false
}
