package sharding

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/test/e2e/kcptest"
	"github.com/kcplane/kcp/test/sharded"
)

// model is a race in an installation whose processes are killed, cut off and restored from snapshots at random.
type model struct {
	*racing
	random *rand.Rand
	// steps is held for reading during each step of a client, and for writing while a shard is restored, because the clients do not know what
	// is lost.
	steps sync.RWMutex
	// restorable is a shard that does not hold the parent of the workspaces, which holder holds.
	restorable, holder    *sharded.Process
	kills, cuts, restored int
	// lost and movedAway count workspaces that were lost with a restoration, and those that had moved away before it. returned counts
	// deleted workspaces that came back with the shard that held them and their parent.
	lost, movedAway, returned int
}

// Workspaces are created, used, moved, deleted and created again at random, while every process of the installation is killed or cut off from
// the others at random, and a shard is restored from a snapshot: one that does not hold the parent of the workspaces, or the one that does. What
// the race checks holds on every step. After a restoration, what is lost is unavailable and never empty, what was deleted does not come back
// from one shard alone, and what has moved away is served where it is.
func TestAnInstallationStaysConsistentWhileEverythingFails(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("the seed is %d", seed)
	m := newModel(t, seed)
	ctx, cancel := context.WithTimeout(t.Context(), raceTime(t, "KCP_MODEL", 20*time.Second))
	defer cancel()
	var clients sync.WaitGroup
	for n := range racers {
		clients.Go(func() {
			for random := rand.New(rand.NewPCG(seed, uint64(n))); m.continues(ctx) && !t.Failed(); {
				m.steps.RLock()
				m.step(random, m.races[random.IntN(contested)], random.IntN(len(m.i.Proxies)))
				m.steps.RUnlock()
			}
		})
	}
	for round := 0; (ctx.Err() == nil || round < 4) && !t.Failed(); round++ {
		switch round % 6 {
		case 1:
			m.restore(ctx, m.restorable, m.compare)
		case 3:
			m.restore(ctx, m.holder, m.compareParent)
		default:
			m.disturb()
		}
	}
	clients.Wait()
	t.Logf("%d processes killed, %d cut off, %d shards restored: %d workspaces lost, %d had moved away, %d deleted ones returned", m.kills, m.cuts,
		m.restored, m.lost, m.movedAway, m.returned)
	m.report()
	m.settle()
}

func newModel(t *testing.T, seed uint64) *model {
	o := options()
	o.Relays = true
	i := started(t, o)
	m := &model{random: rand.New(rand.NewPCG(seed, racers)), restorable: i.Shards[2], holder: i.Shards[1]}
	name, _ := withAlice(t, i, m.holder, "cluster-admin")
	m.racing = newRacing(t, i, "root:"+name)
	m.failures = []string{"Failed"} // a migration may give up while a process is away
	return m
}

// disturb kills a process and starts it again, or cuts it off for a while.
func (m *model) disturb() {
	all := m.i.Processes()
	p, away := all[m.random.IntN(len(all))], time.Duration(m.random.IntN(2000))*time.Millisecond
	m.disturbances.Add(1)
	defer m.pause()
	defer m.disturbances.Add(1)
	if m.random.IntN(2) == 0 {
		p.Relay.Cut()
		<-time.After(away)
		p.Relay.Mend()
		m.cuts++
		return
	}
	p.Kill()
	<-time.After(away)
	if err := p.Start(); err != nil {
		m.t.Error(err)
	}
	m.kills++
}

// pause gives the clients time without a disturbance.
func (m *model) pause() { <-time.After(time.Duration(500+m.random.IntN(1500)) * time.Millisecond) }

// restore takes a snapshot of a shard, lets the clients go on, and restores the snapshot. judge gets the Workspaces of the snapshot, and those
// of the moment before the restoration.
func (m *model) restore(ctx context.Context, s *sharded.Process, judge func(then, now map[string]tenancyv1alpha1.Workspace)) {
	t, backup := m.t, filepath.Join(m.t.TempDir(), "backup")
	var then map[string]tenancyv1alpha1.Workspace
	m.alone(func() {
		m.stopped(s, func() { copyDirectory(t, s.Directory, backup) })
		then = m.held()
	})
	select {
	case <-ctx.Done():
	case <-time.After(5 * time.Second):
	}
	m.alone(func() {
		now := m.held()
		m.disturbances.Add(1)
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(s.Directory); err != nil {
			t.Error(err)
		}
		copyDirectory(t, backup, s.Directory)
		if err := s.StartWith("--adopt-shard"); err != nil {
			t.Error(err)
			return
		}
		m.disturbances.Add(1)
		m.restored++
		judge(then, now)
		kcptest.WaitForCondition(t, m.i.Root().Server().Named("root").Objects(t, shards), s.Name, "Trusted", "True", "")
	})
}

// alone calls f while no client works.
func (m *model) alone(f func()) {
	m.steps.Lock()
	defer m.steps.Unlock()
	if !m.t.Failed() {
		f()
	}
}

// stopped calls f while a process is stopped.
func (m *model) stopped(p *sharded.Process, f func()) {
	m.disturbances.Add(1)
	defer m.disturbances.Add(1)
	if err := p.Stop(); err != nil {
		m.t.Error(err)
	}
	f()
	if err := p.Start(); err != nil {
		m.t.Error(err)
	}
}

// held returns the Workspaces that exist, by name.
func (m *model) held() map[string]tenancyv1alpha1.Workspace {
	all := map[string]tenancyv1alpha1.Workspace{}
	for _, r := range m.races {
		if !r.exists() {
			continue
		}
		m.until("read "+r.name, func(ctx context.Context) error {
			ws, err := m.workspace(ctx, 0, r)
			if err == nil {
				all[r.name] = *ws
			}
			return err
		})
	}
	return all
}

// placed returns where the logical cluster of a workspace is, and since which epoch.
func placed(ws tenancyv1alpha1.Workspace) string {
	return strings.Join([]string{ws.Spec.Cluster, ws.Annotations[tenancyv1alpha1.ShardAnnotation], ws.Annotations[tenancyv1alpha1.EpochAnnotation]}, " ")
}

// compare checks what users see of the workspaces after a shard was restored to the state of then.
func (m *model) compare(then, now map[string]tenancyv1alpha1.Workspace) {
	for _, r := range m.races {
		ws, exists := now[r.name]
		elsewhere := exists && ws.Annotations[tenancyv1alpha1.ShardAnnotation] != m.restorable.Name
		same := exists && placed(ws) == placed(then[r.name])
		m.until("find out about "+r.name, func(ctx context.Context) error {
			got, err := m.client(0, r).CoreV1().ConfigMaps("default").Get(ctx, sign, metav1.GetOptions{})
			switch {
			case err == nil && (elsewhere || same) && got.Data["cluster"] == ws.Spec.Cluster:
				return nil
			case err == nil && exists && got.Data["cluster"] == ws.Spec.Cluster: // its copy has an earlier epoch, and is not served for good
				return fmt.Errorf("the former copy of %s is served", r.name)
			case err == nil:
				m.t.Errorf("%s is %q, and a request got into %s", r.name, placed(ws), got.Data["cluster"])
				return nil
			case !exists && apierrors.IsForbidden(err), exists && !elsewhere && !same && apierrors.IsServiceUnavailable(err):
				return nil
			}
			return fmt.Errorf("%s, which was %q and is %q, gets %w", r.name, placed(then[r.name]), placed(ws), err)
		})
		if exists && !elsewhere && !same {
			m.lost++
			m.give(r)
		}
		if before := then[r.name]; elsewhere && before.Spec.Cluster == ws.Spec.Cluster && strings.Contains(placed(before), " "+m.restorable.Name+" ") {
			m.movedAway++
		}
	}
	m.handleFindings(now)
}

// give deletes a workspace whose logical cluster is lost, as an administrator decides.
func (m *model) give(r *race) {
	r.next("")
	m.until("delete "+r.name, func(ctx context.Context) error {
		err := m.at(0, m.parent).Dynamic(m.t, kcptest.Alice).Resource(kcptest.Workspaces).Delete(ctx, r.name, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// settle checks that every workspace is served when nothing fails any more, and that the shards agree.
func (m *model) settle() {
	for _, r := range m.races {
		_, cluster := r.state()
		for proxy := range m.i.Proxies {
			m.until("use "+r.name, func(ctx context.Context) error {
				got, err := m.client(proxy, r).CoreV1().ConfigMaps("default").Get(ctx, sign, metav1.GetOptions{})
				switch {
				case err == nil && r.exists() && got.Data["cluster"] == cluster, !r.exists() && apierrors.IsForbidden(err):
					return nil
				case err == nil:
					return fmt.Errorf("got into %s", got.Data["cluster"])
				}
				return err
			})
		}
	}
	m.until("find nothing", func(context.Context) error {
		if found := check(m.t, m.i); len(found) > 0 {
			return fmt.Errorf("found %+v", found)
		}
		return nil
	})
}
