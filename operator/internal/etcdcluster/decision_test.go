package etcdcluster

import (
	"strings"
	"testing"
	"time"
)

// cluster returns an observation of a cluster of n members in which all is well, the first leading.
func cluster(n int) observation {
	o := observation{want: n, initialized: true, recorded: n, volumes: n, quorum: true, quota: 2 << 30,
		defrag: defragmentation{due: true, threshold: 0.5}}
	for ordinal := range n {
		o.pods, o.recordedVoters = append(o.pods, pod{exists: true}), append(o.recordedVoters, ordinal)
		o.members = append(o.members, member{id: uint64(100 + ordinal), ordinal: ordinal, started: true, healthy: true, leader: ordinal == 0})
	}
	return o
}

func (o observation) requested(want int) observation { o.want = want; return o }

func (o observation) with(change func(*observation)) observation { change(&o); return o }

func setLeader(ordinal int) func(*observation) {
	return func(o *observation) {
		for i := range o.members {
			o.members[i].leader = o.members[i].ordinal == ordinal
		}
	}
}

func outdated(ordinals ...int) func(*observation) {
	return func(o *observation) {
		for _, ordinal := range ordinals {
			o.pods[ordinal].outdated = true
		}
	}
}

// componentRollsOut says that the component of the cluster replaces its pods.
func componentRollsOut(o *observation) { o.component = "2 of 3 pods are ready" }

// lose takes the volume of a member.
func loseVolumes(ordinals ...int) func(*observation) {
	return func(o *observation) {
		for _, ordinal := range ordinals {
			o.pods[ordinal].empty = true
			o.members[ordinal].healthy, o.members[ordinal].leader = false, false
		}
	}
}

func setUnhealthy(ordinals ...int) func(*observation) {
	return func(o *observation) {
		for _, ordinal := range ordinals {
			o.members[ordinal].healthy, o.members[ordinal].leader = false, false
		}
	}
}

// distrusting says that no pod trusts the current authorities, and that members have not answered for a while.
func setDistrusting(o *observation) {
	o.unhealthyForLong, o.allStable = true, true
	for i := range o.pods {
		o.pods[i].outdatedTrust = true
	}
}

// lately says that a member was replaced, so that it is not again before three o'clock.
func recentlyReplaced(ordinal int) func(*observation) {
	return func(o *observation) { o.pods[ordinal].notBefore = time.Date(2031, 5, 6, 3, 0, 0, 0, time.UTC) }
}

// recovering requests the recovery of the cluster from the second member.
func recovering(how recoveryState) func(*observation) {
	return func(o *observation) {
		o.recovery, o.survivor, o.recoveryMessage = how, 1, "no space"
		o.revisions = map[int]int64{1: 10, 2: 10}
	}
}

func restoring(how restorationState) func(*observation) {
	return func(o *observation) { o.restore, o.restoreMessage = how, "no such key" }
}

// join adds a pod which is empty, and its member as a learner if it has one.
func addPod(m *member) func(*observation) {
	return func(o *observation) {
		o.pods = append(o.pods, pod{exists: true, empty: m == nil || !m.started})
		if m != nil {
			m.learner, m.ordinal = true, len(o.pods)-1
			o.members = append(o.members, *m)
		}
	}
}

func TestDecideReturnsTheStepForEachState(t *testing.T) {
	fresh := func(pods ...pod) observation { return observation{want: 3, pods: pods, volumes: len(pods)} }
	empty := pod{exists: true, empty: true}
	noQuorum := func(o *observation) { o.quorum, o.members = false, nil }
	fragment := func(size, inUse int64, ordinals ...int) func(*observation) {
		return func(o *observation) {
			for _, ordinal := range ordinals {
				o.members[ordinal].size, o.members[ordinal].inUse = size, inUse
			}
		}
	}
	full := func(o *observation) { o.noSpace = true }
	grows := func(o *observation) { o.growing = true }

	for _, c := range []struct {
		name    string
		o       observation
		step    step
		ordinal int
		says    string
	}{
		{"all is well", cluster(3), stepNothing, 0, "3 of 3"},
		{"members refuse each other", cluster(3).with(setUnhealthy(0, 1, 2)).with(setDistrusting).with(func(o *observation) { o.quorum = false }), stepRestart, 2, "does not trust"},
		{"one is refused by the others", cluster(3).with(setUnhealthy(0)).with(setDistrusting), stepRestart, 0, "does not trust"},
		{"the cluster is paused", cluster(1).requested(3).with(func(o *observation) { o.paused = true }), stepActionRequired, 0, "paused"},

		{"all is well, and the cluster is paused", cluster(3).with(func(o *observation) { o.paused = true }), stepNothing, 0, ""},

		{"nothing exists", fresh(), stepScalePods, 1, ""},
		{"the first pod does not exist yet", fresh(pod{}), stepWait, 0, "not exist"},
		{"the first pod does not answer yet", fresh(pod{exists: true}), stepWait, 0, "waiting for pod 0 to answer"},
		{"the first pod has an empty volume", fresh(empty), stepBootstrap, 0, ""},
		{"the first pod has the start annotation", fresh(pod{exists: true, empty: true, hasStart: true}), stepWait, 0, "starts the cluster"},
		{"volumes of an earlier object exist", observation{want: 3, volumes: 3, pods: []pod{empty}}, stepScalePods, 3, ""},
		{"one of the earlier volumes holds data", fresh(empty, pod{exists: true}, empty), stepWait, 0, "waiting for pod 1 to answer"},
		{"all of the earlier volumes are empty", fresh(empty, empty, empty), stepBootstrap, 0, ""},
		{"a snapshot must be restored", fresh().with(restoring(restoreNeeded)), stepRestore, 0, ""},
		{"the snapshot is restored", fresh().with(restoring(restoreRunning)), stepWait, 0, "restoring the snapshot"},
		{"the snapshot could not be restored", fresh().with(restoring(restoreFailed)), stepActionRequired, 0, "restoring the snapshot failed: no such key"},
		{"the snapshot was restored", fresh().with(restoring(restoreDone)), stepRestored, 0, ""},
		{"a snapshot would be restored over data", fresh(empty).with(restoring(restoreTaken)), stepActionRequired, 0, "volumes of an earlier cluster"},
		{"a cluster that runs is never restored over", cluster(3).with(restoring(restoreNeeded)), stepNothing, 0, ""},
		{"a cluster answers that was not written down", cluster(3).with(func(o *observation) { o.initialized = false }), stepRecordIdentity, 0, ""},
		{"the first member has started", cluster(1).requested(3).with(func(o *observation) { o.pods[0].hasStart = true }), stepClearStart, 0, ""},

		{"no majority answers", cluster(3).with(noQuorum), stepWait, 0, "nothing is changed"},
		{"one volume is lost and no member answers", cluster(3).with(loseVolumes(1)).with(noQuorum), stepWait, 0, "nothing is changed"},
		{"two of three volumes are lost", cluster(3).with(loseVolumes(1, 2)).with(noQuorum), stepActionRequired, 0, "2 of 3 members have lost"},
		{"the only voter is another one than the first, and restarts", cluster(3).with(loseVolumes(0, 2)).with(noQuorum).with(func(o *observation) {
			o.recordedVoters, o.recorded = []int{1}, 2
		}), stepWait, 0, "nothing is changed"},
		{"the only volume is lost", cluster(1).with(loseVolumes(0)).with(noQuorum), stepActionRequired, 0, "restore a snapshot"},
		{"the only member restarts while a pod is added", cluster(1).with(addPod(nil)).with(noQuorum), stepWait, 0, "nothing is changed"},
		{"no majority, and spec.replicas changes", cluster(3).with(noQuorum).requested(1), stepWait, 0, "nothing is changed"},
		{"no majority, and the pods are outdated but run", cluster(3).with(noQuorum).with(outdated(0, 1, 2)), stepWait, 0, ""},
		{"no majority, and an outdated pod cannot start", cluster(3).with(noQuorum).with(outdated(0, 1, 2)).with(func(o *observation) {
			o.pods[1].unstartable = true
		}), stepRestart, 1, ""},
		{"the StatefulSet is gone", cluster(3).with(noQuorum).with(func(o *observation) { o.pods = nil }), stepScalePods, 3, ""},

		{"a survivor is named, and a majority answers", cluster(3), stepNothing, 0, ""},
		{"a survivor is named", cluster(3).with(noQuorum).with(recovering(recoverRequested)), stepRecover, 1, ""},
		{"a survivor is named, and the cluster is paused", cluster(3).with(noQuorum).with(recovering(recoverRequested)).with(func(o *observation) {
			o.paused = true
		}), stepActionRequired, 0, "next step would be Recover"},
		{"the survivor has lost its volume", cluster(3).with(loseVolumes(0, 1)).with(noQuorum).with(recovering(recoverRequested)), stepActionRequired, 0, "lost its volume, too"},
		{"another survivor knows more", cluster(3).with(noQuorum).with(recovering(recoverRequested)).with(func(o *observation) {
			o.revisions[2] = 11
		}), stepActionRequired, 0, "member 2 has a higher revision"},
		{"the survivor is silent", cluster(3).with(noQuorum).with(recovering(recoverRequested)).with(func(o *observation) {
			delete(o.revisions, 1)
		}), stepRecover, 1, ""},
		{"a stranger is named", cluster(3).with(noQuorum).with(recovering(recoverUnknown)), stepActionRequired, 0, "does not match this cluster"},
		{"a survivor was named too early", cluster(3).with(noQuorum).with(recovering(recoverRefused)), stepActionRequired, 0, "stays refused"},
		{"the survivor's pods run", cluster(3).with(noQuorum).with(recovering(recoverStopping)), stepStop, 1, ""},
		{"the survivor's pod ends", cluster(3).with(noQuorum).with(recovering(recoverStopped)), stepWait, 0, "pod of member 1 to end"},
		{"all pods have ended", cluster(3).with(noQuorum).with(recovering(recoverNeeded)), stepCopy, 1, ""},
		{"the survivor's data are copied", cluster(3).with(noQuorum).with(recovering(recoverRunning)), stepWait, 0, "copying the data"},
		{"the survivor's data could not be copied", cluster(3).with(noQuorum).with(recovering(recoverFailed)), stepActionRequired, 0, "no space"},
		{"the survivor's data were copied", cluster(3).with(noQuorum).with(recovering(recoverCopied)), stepRecovered, 1, ""},
		{"the survivor starts", cluster(3).with(loseVolumes(0, 2)).with(noQuorum).with(recovering(recoverStarting)), stepWait, 0, "start the recovered cluster"},
		{"the survivor answers", cluster(1).requested(3).with(recovering(recoverStarting)).with(func(o *observation) {
			o.otherCluster = true
		}), stepRecordIdentity, 0, ""},
		{"a survivor of nothing is named", fresh(empty).with(recovering(recoverUnknown)), stepActionRequired, 0, "no volume holds data"},

		{"another cluster answers", cluster(3).with(func(o *observation) { o.otherCluster = true }), stepActionRequired, 0, "cluster ID of the members"},
		{"a user added a member", cluster(3).with(func(o *observation) {
			o.members = append(o.members, member{id: 0xbeef, ordinal: -1, name: "mine"})
		}), stepActionRequired, 0, "etcdctl member remove beef"},

		{"spec.replicas is higher", cluster(1).requested(3), stepScalePods, 2, ""},
		{"spec.replicas is higher, and one is down", cluster(3).requested(5).with(setUnhealthy(2)), stepWait, 0, "all others are healthy"},
		{"the new pod does not exist yet", cluster(1).requested(3).with(func(o *observation) { o.pods = append(o.pods, pod{}) }), stepWait, 0, "pod 1 to start"},
		{"the new pod is empty", cluster(1).requested(3).with(addPod(nil)), stepAdd, 1, ""},
		{"the new pod is empty, and another is down", cluster(3).requested(5).with(setUnhealthy(1)).with(addPod(nil)), stepWait, 0, "pod 3 is added when"},
		{"the new pod has data of a member that was removed", cluster(1).requested(3).with(func(o *observation) {
			o.pods = append(o.pods, pod{exists: true, crashing: true})
		}), stepWipe, 1, ""},
		{"the learner was added", cluster(1).requested(3).with(addPod(&member{id: 7})), stepStart, 1, ""},
		{"the learner has the start annotation", cluster(1).requested(3).with(addPod(&member{id: 7})).with(func(o *observation) {
			o.pods[1].hasStart, o.pods[1].startID = true, 7
		}), stepWait, 1, "to copy the data"},
		{"the start annotation is for a removed learner", cluster(1).requested(3).with(addPod(&member{id: 7})).with(func(o *observation) {
			o.pods[1].hasStart, o.pods[1].startID = true, 6
		}), stepStart, 1, ""},
		{"the learner takes over data", cluster(1).requested(3).with(addPod(&member{id: 7, started: true})), stepWait, 0, "to copy the data"},
		{"the learner answers", cluster(1).requested(3).with(addPod(&member{id: 7, started: true, healthy: true})), stepPromote, 1, ""},
		{"the learner loses its volume", cluster(1).requested(3).with(addPod(&member{id: 7, started: true})).with(func(o *observation) {
			o.pods[1].empty = true
		}), stepRemove, 1, ""},
		{"the learner is no longer requested", cluster(1).with(addPod(&member{id: 7, started: true})), stepRemove, 1, ""},

		{"spec.replicas is lower", cluster(5).requested(3), stepRemove, 4, ""},
		{"spec.replicas is lower, and the last leads", cluster(5).requested(3).with(setLeader(4)), stepMoveLeader, 4, ""},
		{"spec.replicas is lower, and the last is down", cluster(3).requested(1).with(setUnhealthy(2)), stepRemove, 2, ""},
		{"spec.replicas is lower, and another is down", cluster(5).requested(3).with(setUnhealthy(1)), stepWait, 0, "every other member is healthy"},
		{"the last was removed", cluster(3).requested(2).with(func(o *observation) { o.members = o.members[:2] }), stepScalePods, 2, ""},

		{"a volume is lost", cluster(3).with(loseVolumes(1)), stepRemove, 1, "volume was lost"},
		{"the leader's volume was lost", cluster(3).with(loseVolumes(0)).with(setLeader(1)), stepRemove, 0, "volume was lost"},
		{"two of five volumes are lost", cluster(5).with(loseVolumes(1, 3)), stepRemove, 1, ""},
		{"a volume is lost, and another member is down", cluster(3).with(loseVolumes(1)).with(setUnhealthy(2)), stepActionRequired, 0, "without it the others have no majority"},
		{"a member is down", cluster(3).with(setUnhealthy(1)), stepWait, 0, "others have quorum"},
		{"a member crashes repeatedly", cluster(3).with(setUnhealthy(1)).with(func(o *observation) { o.pods[1].crashing = true }), stepRemove, 1, "crashes repeatedly"},
		{"an outdated member crashes repeatedly", cluster(3).with(setUnhealthy(1)).with(outdated(0, 1, 2)).with(func(o *observation) {
			o.pods[1].crashing = true
		}), stepRestart, 1, ""},
		{"a member is corrupt", cluster(3).with(func(o *observation) { o.members[1].corrupt = true }), stepRemove, 1, "differs from the other members"},
		{"a member was replaced recently, and has lost its volume again", cluster(3).with(loseVolumes(1)).with(recentlyReplaced(1)), stepWait, 0, "not replaced again before 2031-05-06T03:00:00Z"},
		{"a member was replaced recently, and another has lost its volume", cluster(5).with(loseVolumes(1, 3)).with(recentlyReplaced(1)), stepRemove, 3, ""},
		{"the leader was replaced recently, and is corrupt", cluster(3).with(recentlyReplaced(0)).with(func(o *observation) { o.members[0].corrupt = true }),
			stepWait, 0, "although its data differs from the other members"},
		{"a learner was added recently, and loses its volume", cluster(1).requested(3).with(addPod(&member{id: 7, started: true})).with(recentlyReplaced(1)).with(func(o *observation) {
			o.pods[1].empty = true
		}), stepWait, 0, "lost its volume before it could vote"},
		{"the leader is corrupt", cluster(3).with(func(o *observation) { o.members[0].corrupt = true }), stepMoveLeader, 0, ""},
		{"an alarm is about a member that is gone", cluster(3).with(func(o *observation) { o.removedMemberAlarm = true }), stepDisarm, 0, ""},
		{"a removed member's pod is empty", cluster(3).with(loseVolumes(1)).with(func(o *observation) {
			o.members = []member{o.members[0], o.members[2]}
		}), stepAdd, 1, ""},

		{"the pod template has changed", cluster(3).with(func(o *observation) { o.changing = true }), stepApply, 0, ""},
		{"the pod template has changed, and the cluster is paused", cluster(3).with(func(o *observation) { o.changing, o.paused = true, true }),
			stepActionRequired, 0, "next step would be Apply"},
		{"pods are outdated", cluster(3).with(outdated(0, 1, 2)), stepRestart, 2, ""},
		{"the last leads and is outdated", cluster(3).with(setLeader(2)).with(outdated(0, 1, 2)), stepRestart, 1, ""},
		{"pods are outdated, and the component rolls out", cluster(3).with(outdated(0, 1, 2)).with(componentRollsOut), stepWait, 0, "2 of 3 pods"},
		{"the only member is outdated, and the component rolls out", cluster(1).with(outdated(0)).with(componentRollsOut), stepWait, 0, "2 of 3 pods"},
		{"the leader is outdated, and the component rolls out", cluster(3).with(outdated(0)).with(componentRollsOut), stepWait, 0, "2 of 3 pods"},
		{"an outdated member is down, and the component rolls out", cluster(3).with(outdated(0, 1, 2)).with(setUnhealthy(1)).with(componentRollsOut),
			stepRestart, 1, ""},
		{"a volume is lost, and the component rolls out", cluster(3).with(loseVolumes(2)).with(componentRollsOut), stepRemove, 2, ""},
		{"only the leader is outdated", cluster(3).with(outdated(0)), stepMoveLeader, 0, ""},
		{"the only member is outdated", cluster(1).with(outdated(0)), stepRestart, 0, ""},
		{"pods are outdated, and a member is down", cluster(3).with(outdated(0, 1)).with(setUnhealthy(2)), stepWait, 0, "every other member"},
		{"pods are outdated, and one of them is down", cluster(3).with(outdated(0, 1, 2)).with(setUnhealthy(1)), stepRestart, 1, ""},
		{"pods are outdated, and a member is behind", cluster(3).with(outdated(0, 1)).with(func(o *observation) {
			o.members[2].lag = lagLimit + 1
		}), stepWait, 0, "catch up"},
		{"pods are outdated, and there is a learner", cluster(1).requested(3).with(outdated(0)).with(addPod(&member{id: 7, started: true})), stepWait, 0, "to copy the data"},
		{"an upgrade, and the quota is exceeded", cluster(3).with(outdated(0, 1, 2)).with(full).with(func(o *observation) { o.upgrading = true }),
			stepDisarm, 0, ""},
		{"a larger quota", cluster(3).with(outdated(0, 1, 2)).with(full), stepRestart, 2, ""},

		{"the quota is exceeded by free space", cluster(3).with(full).with(fragment(2<<30, 1<<30, 0, 1, 2)), stepDefragment, 2, ""},
		{"the followers' free space was given back", cluster(3).with(full).with(fragment(2<<30, 1<<30, 0)), stepDefragment, 0, ""},
		{"the free space was given back", cluster(3).with(full).with(fragment(1<<30, 1<<30, 0, 1, 2)), stepDisarm, 0, ""},
		{"the quota is exceeded", cluster(3).with(full).with(fragment(2<<30, 2<<30, 0, 1, 2)), stepActionRequired, 0, "quotaBackendBytes"},
		{"the quota is exceeded, and a member is down", cluster(3).with(full).with(setUnhealthy(1)), stepWait, 0, "every member is healthy"},

		{"members have free space", cluster(3).with(fragment(1<<30, 1<<28, 0, 1, 2)), stepDefragment, 2, ""},
		{"only the leader has free space", cluster(3).with(fragment(1<<30, 1<<28, 0)), stepMoveLeader, 0, ""},
		{"the only member has free space", cluster(1).with(fragment(1<<30, 1<<28, 0)), stepNothing, 0, ""},
		{"the only member has free space, and may pause", cluster(1).with(fragment(1<<30, 1<<28, 0)).with(func(o *observation) {
			o.defrag.allowUnavailable = true
		}), stepDefragment, 0, ""},
		{"members have free space, and it is not the time", cluster(3).with(fragment(1<<30, 1<<28, 0, 1, 2)).with(func(o *observation) {
			o.defrag.due = false
		}), stepNothing, 0, ""},
		{"members have free space, and one is down", cluster(3).with(fragment(1<<30, 1<<28, 0, 1, 2)).with(setUnhealthy(1)), stepWait, 0, "others have quorum"},
		{"volumes must be expanded", cluster(3).with(grows), stepGrowVolumes, 0, "spec.storage.size"},
		{"volumes must be expanded, and a member is down", cluster(3).with(grows).with(setUnhealthy(1)), stepWait, 0, "others have quorum"},
		{"volumes must be expanded, and the cluster is paused", cluster(3).with(grows).with(func(o *observation) { o.paused = true }), stepActionRequired, 0, "GrowVolumes"},
		{"volumes must be expanded, and there is a larger one", cluster(3).requested(5).with(grows), stepScalePods, 4, ""},
		{"small members have free space", cluster(3).with(fragment(1<<20, 1, 0, 1, 2)), stepNothing, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := decide(c.o)
			about := d.ordinal
			if d.step == stepScalePods {
				about = d.pods
			}
			if d.step != c.step || (acts(d.step) && about != c.ordinal) || !strings.Contains(d.why, c.says) {
				t.Errorf("decided %+v, want %s of %d, with %q", d, c.step, c.ordinal, c.says)
			}
			if d.reason == "" || d.why == "" {
				t.Errorf("%+v does not say why", d)
			}
		})
	}
}

func acts(s step) bool { return s != stepNothing && s != stepWait && s != stepActionRequired }

func TestLeadershipMovesToAMemberThatIsKept(t *testing.T) {
	if d := decide(cluster(5).requested(3).with(setLeader(4))); d.to != 100 {
		t.Errorf("scaling down: %+v", d)
	}
	if d := decide(cluster(3).with(outdated(0))); d.to != 101 {
		t.Errorf("the leader is the last to be upgraded: %+v", d)
	}
	if d := decide(cluster(5).requested(3).with(setLeader(4)).with(outdated(0))); d.to != 101 {
		t.Errorf("scaling down while pods are outdated: %+v", d)
	}
}

// What is said of quorum agrees with the number of members that are ready.
func TestUnhealthyMembersAreNamed(t *testing.T) {
	for _, test := range []struct {
		o    observation
		want string
	}{
		{cluster(3).with(setUnhealthy(1)), "member 1 does not answer; the others have quorum"},
		{cluster(5).with(setUnhealthy(3, 4)), "members 3 and 4 do not answer; the others have quorum"},
		{cluster(3).with(setUnhealthy(1, 2)), "members 1 and 2 do not answer the operator, though a majority answers another member"},
	} {
		if d := decide(test.o); d.reason != reasonDegraded || !strings.Contains(d.why, test.want) {
			t.Errorf("got %+v, want %q", d, test.want)
		}
	}
}
