package etcdcluster

import "time"

// observation is the input of a decision: the desired and the observed state of a cluster.
type observation struct {
	want           int    // desired number of members
	paused         bool   // spec.maintenance.paused
	initialized    bool   // a cluster was started, and its ID is in the status
	recorded       int    // number of pods for the voters in the status
	recordedVoters []int  // ordinals of the voters in the status
	volumes        int    // number of pods for the volumes that exist
	upgrading      bool   // spec.version differs from the version that runs
	growing        bool   // volumes must be expanded, or the StatefulSet must be created again after that
	former         string // name of a pod of a deleted StatefulSet that is going away
	changing       bool   // the pod template is being updated, so it is unknown which pods are outdated

	// component is why healthy members are not restarted yet: the component that uses the cluster replaces its pods. Empty: it does not.
	component string

	restore        restorationState
	restoreMessage string

	recovery        recoveryState
	recoveryMessage string
	survivor        int           // ordinal of the survivor's pod
	revisions       map[int]int64 // of members that answer, by ordinal

	unhealthyForLong bool // QuorumLost or Degraded for longer than stabilizationTime
	allStable        bool // all processes have run for longer than stabilizationTime

	pods         []pod
	quorum       bool     // a majority of the voters answers
	otherCluster bool     // its cluster ID differs from the one in the status
	members      []member // the member list that a majority agrees on
	noSpace      bool     // NOSPACE alarm: the quota is exceeded, and members reject writes
	quota        int64
	// removedMemberAlarm is set if an alarm belongs to a member that was removed.
	removedMemberAlarm bool

	defrag defragmentation
}

// defragmentation is the desired defragmentation.
type defragmentation struct {
	due              bool
	threshold        float64
	allowUnavailable bool
}

// pod is the observed state of a pod of the StatefulSet.
type pod struct {
	exists        bool
	empty         bool   // its process runs without data, and waits for the start annotation
	hasStart      bool   // it has the start annotation
	startID       uint64 // member ID in the start annotation; zero if it starts a cluster
	crashing      bool   // its process crashes repeatedly
	unstartable   bool   // its process cannot be started, or it cannot be scheduled
	outdated      bool   // its template differs from the one in the StatefulSet
	outdatedTrust bool   // it started with other trusted authorities
	// notBefore is when its member may be replaced again. Zero means now.
	notBefore time.Time
}

// member is a member in the list of etcd.
type member struct {
	id      uint64
	ordinal int // of its pod; negative if the operator did not add the member
	name    string
	learner bool
	started bool // it has joined the cluster
	healthy bool // it answers, and knows a leader
	leader  bool
	corrupt bool // CORRUPT alarm: its data differs from the other members
	version string
	size    int64
	inUse   int64
	lag     int64
}

func (o observation) pod(ordinal int) pod {
	if ordinal < 0 || ordinal >= len(o.pods) {
		return pod{}
	}
	return o.pods[ordinal]
}

// at returns the member of a pod, if the pod is a member.
func (o observation) at(ordinal int) (member, bool) {
	for _, m := range o.members {
		if m.ordinal == ordinal {
			return m, true
		}
	}
	return member{}, false
}

// highestRevision returns the ordinal with the highest revision of the members that answer.
func (o observation) highestRevision() int {
	best := 0
	for ordinal, revision := range o.revisions {
		if revision > o.revisions[best] || revision == o.revisions[best] && ordinal < best {
			best = ordinal
		}
	}
	return best
}

func (o observation) voters() []member {
	var voters []member
	for _, m := range o.members {
		if !m.learner {
			voters = append(voters, m)
		}
	}
	return voters
}

// quorumWithout reports whether the other voters have a healthy majority without a member.
func (o observation) quorumWithout(without member) bool {
	voters, healthy := 0, 0
	for _, m := range o.voters() {
		if m.id == without.id {
			continue
		}
		voters++
		if m.healthy && !m.corrupt {
			healthy++
		}
	}
	return voters > 0 && healthy > voters/2
}

// healthyMajority reports whether a majority of the voters is healthy.
func (o observation) healthyMajority() bool { return o.quorumWithout(member{}) }

// healthyExcept reports whether every voter is healthy, except for a given one.
func (o observation) healthyExcept(id uint64) bool {
	for _, m := range o.voters() {
		if m.id != id && (!m.healthy || m.corrupt) {
			return false
		}
	}
	return true
}

func (o observation) healthy() bool { return o.healthyExcept(0) }

// nextLeader returns the member that should replace a leader: preferably one whose pod is kept and up to date.
func (o observation) nextLeader(of member) (member, bool) {
	var best member
	found := false
	for _, m := range o.voters() {
		if m.id == of.id || !m.healthy || m.corrupt {
			continue
		}
		if !found || o.isPreferred(m, best) {
			best, found = m, true
		}
	}
	return best, found
}

func (o observation) isPreferred(a, b member) bool {
	if stays, other := a.ordinal < o.want, b.ordinal < o.want; stays != other {
		return stays
	}
	if old, other := o.pod(a.ordinal).outdated, o.pod(b.ordinal).outdated; old != other {
		return other
	}
	return a.ordinal < b.ordinal
}

// leaderLast returns the members in the order in which they are restarted: the highest ordinal first, and the leader last.
func (o observation) leaderLast() []member {
	var order []member
	var leaders []member
	for ordinal := len(o.pods) - 1; ordinal >= 0; ordinal-- {
		if m, ok := o.at(ordinal); ok && m.leader {
			leaders = append(leaders, m)
		} else if ok {
			order = append(order, m)
		}
	}
	return append(order, leaders...)
}
