package etcdcluster

import "time"

// observation is all that a decision is made from: a cluster as it was asked for, and as it was found.
type observation struct {
	want      int   // members asked for
	paused    bool  // somebody wants no hands on it
	known     bool  // a cluster was started once, and its identity written down
	recorded  int   // pods that the voters which were last seen need
	voted     []int // these voters, by their pods
	volumes   int   // pods that the volumes which exist belong to
	upgrading bool  // pods are outdated because another version was asked for
	growing   bool  // volumes are to be larger, or the StatefulSet is to be made anew for those that are
	changing  bool  // nobody knows yet which pods are outdated, since something else was asked for

	restore        restoration
	restoreMessage string

	recovery        recovery
	recoveryMessage string
	survivor        int           // the pod that the recovery is about
	revisions       map[int]int64 // of those that answer, by their pods

	ailing bool // for a while there has been no majority, or a member has been missing
	steady bool // all processes have run for a while

	pods    []pod
	quorum  bool     // a majority of the voters answers
	another bool     // and says that it is not the cluster that was written down
	members []member // what the majority agrees on
	noSpace bool     // the members take no writes, for the quota is used up
	quota   int64
	// An alarm is about a member that is not in the list any more.
	goneAlarm bool

	defrag defragmentation
}

// defragmentation is what was asked for about free space.
type defragmentation struct {
	due              bool
	threshold        float64
	allowUnavailable bool
}

// pod is one of those that the StatefulSet makes, by its ordinal.
type pod struct {
	exists    bool
	empty     bool   // its process runs, finds nothing in its volume, and waits to be told what to do
	told      bool   // it was told what to do
	toldID    uint64 // as which member; zero if it was to start a cluster
	broken    bool   // its process ends again and again
	stuck     bool   // its process cannot be started
	outdated  bool   // it is made as something else was asked for
	distrusts bool   // it started before other authorities were to be trusted
	// notBefore is when its member may be replaced again. Zero: now.
	notBefore time.Time
}

// member is one of those that etcd lists.
type member struct {
	id      uint64
	ordinal int // of its pod; negative if it is none of ours
	name    string
	learner bool
	started bool // it has joined once
	healthy bool // it answers
	leader  bool
	corrupt bool // etcd found that its data differs from the other members
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

// at returns the member of a pod, if it is one.
func (o observation) at(ordinal int) (member, bool) {
	for _, m := range o.members {
		if m.ordinal == ordinal {
			return m, true
		}
	}
	return member{}, false
}

// latest returns the pod with the highest revision of those that answer.
func (o observation) latest() int {
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

// dispensable reports whether those who remain can decide without a member.
func (o observation) dispensable(without member) bool {
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

// majority reports whether most voters are healthy.
func (o observation) majority() bool { return o.dispensable(member{}) }

// healthyBut reports whether every voter is healthy, a given one apart.
func (o observation) healthyBut(id uint64) bool {
	for _, m := range o.voters() {
		if m.id != id && (!m.healthy || m.corrupt) {
			return false
		}
	}
	return true
}

func (o observation) healthy() bool { return o.healthyBut(0) }

// successor returns who should lead in place of a member: somebody whose pod stays, of the latest make if possible.
func (o observation) successor(of member) (member, bool) {
	var best member
	found := false
	for _, m := range o.voters() {
		if m.id == of.id || !m.healthy || m.corrupt {
			continue
		}
		if !found || o.prefers(m, best) {
			best, found = m, true
		}
	}
	return best, found
}

func (o observation) prefers(a, b member) bool {
	if stays, other := a.ordinal < o.want, b.ordinal < o.want; stays != other {
		return stays
	}
	if old, other := o.pod(a.ordinal).outdated, o.pod(b.ordinal).outdated; old != other {
		return other
	}
	return a.ordinal < b.ordinal
}

// followersFirst returns the members whose turn comes one after the other: the highest pod first, the leader at last.
func (o observation) followersFirst() []member {
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
