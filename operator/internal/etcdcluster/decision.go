package etcdcluster

import (
	"fmt"
	"strconv"
	"strings"
)

// step is what a decision says to do. There is one in a reconciliation, and the next is decided from what came of it.
type step string

const (
	stepNothing        step = ""               // all is as it should be
	stepWait           step = "Wait"           // for something that goes on by itself
	stepHelp           step = "Help"           // nothing can be done until a person does something
	stepScalePods      step = "ScalePods"      // to a number of pods
	stepApply          step = "Apply"          // what pods are made of
	stepBootstrap      step = "Bootstrap"      // tell the first pod to start a cluster: once in a life
	stepRecordIdentity step = "RecordIdentity" // write down which cluster this is
	stepForget         step = "Forget"         // take back what a pod was told
	stepAdd            step = "Add"            // as a learner
	stepStart          step = "Start"          // tell a pod to join
	stepPromote        step = "Promote"        // a learner to a voter
	stepRemove         step = "Remove"         // from the list of members
	stepWipe           step = "Wipe"           // delete a volume that no member uses, and its pod
	stepMoveLeader     step = "MoveLeader"
	stepRestart        step = "Restart" // delete a pod, so that it is made as asked for
	stepDefragment     step = "Defragment"
	stepGrowVolumes    step = "GrowVolumes" // of all members, and make the StatefulSet anew
	stepDisarm         step = "Disarm"      // say that there is space again
	stepRestore        step = "Restore"
	stepRestored       step = "Restored"  // write down that it is done
	stepRecover        step = "Recover"   // write down that a survivor is gone on with
	stepStop           step = "Stop"      // all pods, and not one volume
	stepCopy           step = "Copy"      // the data of the survivor
	stepRecovered      step = "Recovered" // write down where they are
)

// decision is what to do next, to whom, and why.
type decision struct {
	step    step
	ordinal int    // of the pod that it is about
	id      uint64 // of the member that it is about
	to      uint64 // who leads afterwards
	pods    int    // how many there are afterwards
	repair  bool   // whether it begins to replace a member
	reason  string // for conditions and events
	why     string
}

// Reasons of decisions, in the words of conditions and events.
const (
	reasonPaused       = "Paused"
	reasonBootstrap    = "Bootstrapping"
	reasonQuorumLost   = "QuorumLost"
	reasonForeign      = "UnknownMember"
	reasonAnother      = "ClusterIDMismatch"
	reasonScale        = "Scaling"
	reasonReplace      = "ReplacingMember"
	reasonDegraded     = "MemberUnhealthy"
	reasonRepaired     = "RecentlyReplaced"
	reasonRoll         = "RollingPods"
	reasonNoSpace      = "OutOfSpace"
	reasonDefragment   = "Defragmenting"
	reasonReconciled   = "Reconciled"
	reasonPodsStarting = "PodsStarting"
	reasonRestore      = "Restoring"
	reasonRecover      = "Recovering"
	reasonGrow         = "GrowingVolumes"
	reasonNoExpansion  = "VolumeExpansionUnsupported"
)

// decide says what to do next. Its rules come in the order of their urgency; the first that has something to say decides.
func decide(o observation) decision {
	d := next(o)
	if o.paused && d.step != stepNothing && d.step != stepWait && d.step != stepHelp {
		return help(reasonPaused, "spec.maintenance.paused is set: the next step would be %s (%s)", d.step, d.why)
	}
	return d
}

func next(o observation) decision {
	rules := []func(observation) (decision, bool){
		unstick, restoreFirst, identify, recoverLost, renewTrust, keepQuorum, onlyOurs, forget, forgive, raiseLearner,
		replaceLost, fillPods, shrink, roll, grow, makeSpace, defragment, growVolumes,
	}
	for _, rule := range rules {
		if d, ok := rule(o); ok {
			return d
		}
	}
	if !o.healthy() {
		return wait(reasonDegraded, "%s", o.silence())
	}
	return decision{reason: reasonReconciled, why: fmt.Sprintf("%d of %d members are healthy", len(o.members), o.want)}
}

// silence says which members do not answer. Fewer than a majority may answer the operator while a majority answers one of them.
func (o observation) silence() string {
	var silent []string
	for _, m := range o.voters() {
		if !m.healthy || m.corrupt {
			silent = append(silent, strconv.Itoa(m.ordinal))
		}
	}
	who := "member " + strings.Join(silent, "") + " does not answer"
	if len(silent) > 1 {
		who = "members " + strings.Join(silent, " and ") + " do not answer"
	}
	if o.majority() {
		return who + "; the others have quorum"
	}
	return who + " the operator, though a majority answers another member: if this lasts, check the network between the operator and their " +
		"pods"
}

func wait(reason, why string, args ...any) decision {
	return decision{step: stepWait, reason: reason, why: fmt.Sprintf(why, args...)}
}

func help(reason, why string, args ...any) decision {
	return decision{step: stepHelp, reason: reason, why: fmt.Sprintf(why, args...)}
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

// unstick replaces pods that cannot even start as they are, when something else was asked for since. It takes nothing from
// anybody, so it needs no quorum.
func unstick(o observation) (decision, bool) {
	for ordinal, p := range o.pods {
		if p.exists && p.outdated && (p.stuck || p.broken) {
			return onPod(stepRestart, ordinal, reasonRoll, "it cannot start, and its pod template has changed since")
		}
	}
	return undecided, false
}

// identify sees to the first start. Pods are made for all volumes that exist, so that a cluster whose object was made anew
// is found again. A cluster is started only if there are no data at all.
func identify(o observation) (decision, bool) {
	if o.known {
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
	if o.pods[0].told {
		return wait(reasonBootstrap, "pod 0 starts the cluster"), true
	}
	if o.recovery != recoverNone {
		return help(reasonBootstrap, "spec.restore.survivor names a member, and no volume holds data: remove it to start an empty cluster"), true
	}
	return onPod(stepBootstrap, 0, reasonBootstrap, "no volume holds data")
}

// renewTrust restarts the pods that do not trust the current authorities, one at a time, when all processes have run for a while and
// members still do not answer: they may refuse each other, or the operator, and waiting does not help. It touches no data, so it needs no
// quorum. While there is one, it leaves the members alone that keep it.
func renewTrust(o observation) (decision, bool) {
	if !o.known || !o.ailing || !o.steady || o.changing {
		return undecided, false
	}
	for ordinal := len(o.pods) - 1; ordinal >= 0; ordinal-- {
		if m, ok := o.at(ordinal); o.quorum && ok && m.healthy {
			continue
		}
		if p := o.pods[ordinal]; p.exists && p.distrusts && !p.told {
			return onPod(stepRestart, ordinal, reasonRoll, "members do not answer, and its process does not trust the current authorities")
		}
	}
	return undecided, false
}

// keepQuorum stops everything while there is no majority: what it would do could be what destroys the last copy.
func keepQuorum(o observation) (decision, bool) {
	if o.quorum {
		return undecided, false
	}
	if need := max(1, o.recorded); len(o.pods) == 0 {
		return scalePods(need, reasonQuorumLost, "the pods of the members are gone; they are created again with their volumes")
	}
	lost := 0
	for _, ordinal := range o.voted {
		if o.pod(ordinal).empty {
			lost++
		}
	}
	if left := len(o.voted) - lost; lost > 0 && left <= len(o.voted)/2 {
		return help(reasonQuorumLost, "%d of %d members have lost their volumes, so no majority is left, and nothing is changed. Bring the "+
			"volumes back, set a remaining member in spec.restore.survivor, or restore a snapshot into a new EtcdCluster; the remaining "+
			"volumes stay as they are", lost, len(o.voted)), true
	}
	return wait(reasonQuorumLost, "no majority of the members answers, and nothing is changed. Find out why the pods are not ready: "+
		"the cluster recovers by itself once a majority runs"), true
}

func onlyOurs(o observation) (decision, bool) {
	if o.another {
		return help(reasonAnother, "the members answer as another cluster than the one in status.clusterID; bring its volumes back, or "+
			"delete this EtcdCluster and create it again to take over the one that answers"), true
	}
	for _, m := range o.members {
		if m.ordinal < 0 {
			return help(reasonForeign, "member %x (%s) was not added by the operator; remove it with etcdctl member remove %x",
				m.id, m.name, m.id), true
		}
	}
	return undecided, false
}

// forget takes back what a pod was told as soon as it is done, so that it can't be done a second time.
func forget(o observation) (decision, bool) {
	for ordinal, p := range o.pods {
		if m, ok := o.at(ordinal); p.told && !p.empty && ok && m.healthy {
			return onPod(stepForget, ordinal, reasonScale, "it has started as requested")
		}
	}
	return undecided, false
}

// forgive ends the alarms of members that are gone. Such an alarm keeps the others from taking writes.
func forgive(o observation) (decision, bool) {
	return decision{step: stepDisarm, reason: reasonReplace, why: "the member with the alarm is gone"}, o.goneAlarm
}
