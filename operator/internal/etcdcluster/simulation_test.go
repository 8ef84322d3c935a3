package etcdcluster

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// world is a cluster as it could be, in which decisions have the effects that they would have, and anything can go wrong
// between two of them.
type simulation struct {
	random     *rand.Rand
	want       int
	known      bool
	recorded   int
	make       int // of the requested pods
	pods       []*simulatedPod
	members    []simulatedMember
	leader     uint64
	lastID     uint64
	bootstraps int // how often a cluster was started
}

type simulatedPod struct {
	data         uint64 // the member whose data is in its volume; zero if it is empty
	hasStart     bool
	startID      uint64
	bootstrapper bool
	down         int // rounds for which it does not run
	make         int
}

type simulatedMember struct {
	id      uint64
	ordinal int
	learner bool
	started bool
}

func (w *simulation) isRunning(m simulatedMember) bool {
	return m.ordinal < len(w.pods) && w.pods[m.ordinal].down == 0 && w.pods[m.ordinal].data == m.id
}

func (w *simulation) quorum() bool {
	voters, up := 0, 0
	for _, m := range w.members {
		if !m.learner {
			voters++
			if w.isRunning(m) {
				up++
			}
		}
	}
	return up > voters/2
}

// advance simulates time: pods start as instructed, and a leader is elected.
func (w *simulation) advance() {
	for ordinal, p := range w.pods {
		if p.down > 0 {
			p.down--
			continue
		}
		if p.data != 0 || !p.hasStart {
			continue
		}
		if p.bootstrapper {
			w.bootstraps++
			w.lastID++
			p.data = w.lastID
			w.members = append(w.members, simulatedMember{id: p.data, ordinal: ordinal, started: true})
		} else if w.quorum() {
			for i := range w.members {
				if m := &w.members[i]; m.ordinal == ordinal && m.id == p.startID && !m.started {
					m.started, p.data = true, m.id
				}
			}
		}
	}
	for _, m := range w.members {
		if m.id == w.leader && w.isRunning(m) && w.quorum() {
			return
		}
	}
	w.leader = 0
	if !w.quorum() {
		return
	}
	for _, at := range w.random.Perm(len(w.members)) {
		if m := w.members[at]; w.isRunning(m) && !m.learner {
			w.leader = m.id
			return
		}
	}
}

func (w *simulation) observe() observation {
	o := observation{want: w.want, initialized: w.known, recorded: w.recorded, volumes: len(w.pods), quorum: w.quorum(), quota: 2 << 30}
	for ordinal, p := range w.pods {
		observed := pod{exists: true, empty: p.down == 0 && p.data == 0, hasStart: p.hasStart, startID: p.startID, outdated: p.make != w.make}
		belongs := p.data == 0
		for _, m := range w.members {
			belongs = belongs || (m.ordinal == ordinal && m.id == p.data)
		}
		observed.crashing = p.down == 0 && !belongs && o.quorum
		o.pods = append(o.pods, observed)
	}
	if !o.quorum {
		return o
	}
	for _, m := range w.members {
		o.members = append(o.members, member{id: m.id, ordinal: m.ordinal, learner: m.learner, started: m.started, healthy: w.isRunning(m), leader: m.id == w.leader})
	}
	return o
}

// apply does what was decided, and says what is wrong with that.
func (w *simulation) apply(d decision) error {
	at := -1
	for i, m := range w.members {
		if m.id == d.id {
			at = i
		}
	}
	switch d.step {
	case stepScalePods:
		for len(w.pods) < d.pods {
			w.pods = append(w.pods, &simulatedPod{down: 1, make: w.make})
		}
		for _, m := range w.members {
			if m.ordinal >= d.pods {
				return fmt.Errorf("the pod of a member is taken away")
			}
		}
		w.pods = w.pods[:d.pods]
	case stepBootstrap:
		w.pods[d.ordinal].hasStart, w.pods[d.ordinal].bootstrapper = true, true
	case stepRecordIdentity:
		w.known = true
	case stepClearStart:
		w.pods[d.ordinal].hasStart, w.pods[d.ordinal].bootstrapper, w.pods[d.ordinal].startID = false, false, 0
	case stepAdd:
		w.lastID++
		w.members = append(w.members, simulatedMember{id: w.lastID, ordinal: d.ordinal, learner: true})
	case stepStart:
		w.pods[d.ordinal].hasStart, w.pods[d.ordinal].bootstrapper, w.pods[d.ordinal].startID = true, false, d.id
	case stepPromote:
		w.members[at].learner = false
	case stepRemove:
		m := w.members[at]
		w.members = append(w.members[:at:at], w.members[at+1:]...)
		if !w.quorum() {
			return fmt.Errorf("the removal of %+v costs the majority", m)
		}
	case stepMoveLeader:
		w.leader = d.to
	case stepWipe:
		for _, m := range w.members {
			if m.ordinal == d.ordinal && w.pods[d.ordinal].data == m.id {
				return fmt.Errorf("the data of member %+v is deleted", m)
			}
		}
		*w.pods[d.ordinal] = simulatedPod{down: 1, make: w.make}
	case stepRestart:
		before := w.quorum()
		p := w.pods[d.ordinal]
		*p = simulatedPod{data: p.data, down: 1, make: w.make}
		if before && !w.quorum() && len(w.members) > 2 {
			return fmt.Errorf("the restart of %d costs the majority", d.ordinal)
		}
	}
	w.recorded = w.recordedNow()
	return nil
}

func (w *simulation) recordedNow() int {
	recorded := 0
	if !w.quorum() {
		return w.recorded
	}
	for _, m := range w.members {
		if !m.learner {
			recorded = max(recorded, m.ordinal+1)
		}
	}
	return recorded
}

// allRun reports whether every pod runs.
func (w *simulation) allRun() bool {
	return !slices.ContainsFunc(w.pods, func(p *simulatedPod) bool { return p.down > 0 })
}

// harm lets something go wrong that the cluster can survive: one member at a time, when all others are well.
func (w *simulation) injectFault() {
	well := 0
	voters := 0
	for _, m := range w.members {
		if !m.learner {
			voters++
			if w.isRunning(m) {
				well++
			}
		}
	}
	if len(w.pods) == 0 || well != voters || voters < 3 {
		return
	}
	p := w.pods[w.random.IntN(len(w.pods))]
	switch w.random.IntN(4) {
	case 0:
		p.down = 1 + w.random.IntN(3)
	case 1: // the volume is lost, with its pod
		*p = simulatedPod{down: 1, make: w.make}
	case 2:
		w.make++
	case 3:
		w.want = []int{1, 3, 5}[w.random.IntN(3)]
	}
}

func TestASimulatedClusterReachesItsSpecDespiteFaults(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2000) {
		w := &simulation{random: rand.New(rand.NewPCG(seed, 0)), want: []int{1, 3, 5}[seed%3]}
		const rounds = 300
		var last decision
		for round := range rounds {
			w.advance()
			last = decide(w.observe())
			if err := w.apply(last); err != nil {
				t.Fatalf("seed %d, round %d: %v, when %+v is decided", seed, round, err, last)
			}
			if round < rounds/2 && w.random.IntN(8) == 0 {
				w.injectFault()
			} else if round >= rounds/2 && last.step == stepNothing && w.allRun() {
				break // nothing can change any more
			}
		}
		if last.step != stepNothing || len(w.members) != w.want || w.bootstraps != 1 {
			t.Fatalf("seed %d: %d clusters were started, %d members of %d are left, and at last %+v is decided",
				seed, w.bootstraps, len(w.members), w.want, last)
		}
		for _, p := range w.pods {
			if p.make != w.make || p.hasStart {
				t.Fatalf("seed %d: a pod is left as %+v", seed, *p)
			}
		}
	}
}
