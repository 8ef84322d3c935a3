package migration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/internal/storage/etcd"
	"github.com/kcplane/kcp/server/internal/tenancy/placement"
	"github.com/kcplane/kcp/server/logicalcluster"
)

var servers = map[string]*etcd.Server{}

func TestMain(m *testing.M) {
	os.Exit(func() int {
		directory, err := os.MkdirTemp("", "migration-test-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(directory)
		for _, shard := range []string{"west", "east", "north"} {
			server, err := etcd.Start(context.Background(), etcd.Config{Directory: filepath.Join(directory, shard), WALSizeBytes: 1 << 20})
			if err != nil {
				panic(err)
			}
			defer server.Stop()
			servers[shard] = server
		}
		return m.Run()
	}())
}

// model is an installation of two shards, with one cluster that moves between them, and its client.
type model struct {
	shards map[string]*shard
	parent *parent

	attempted, acknowledged [objects]atomic.Int64
	done, values            atomic.Int64
	held                    sync.Map // the names of shards that held the cluster
}

const (
	moving  = logicalcluster.Name("moving")
	objects = 12
)

// client writes its own objects, and reads them at any shard that ever held the cluster. A read never returns an older value than one
// that was acknowledged before the read began.
func (m *model) client(ctx context.Context, t *testing.T, first, number int, random *rand.Rand) {
	for ctx.Err() == nil {
		n := int(m.values.Add(1))
		object := first + random.IntN(number)
		name := fmt.Sprint("object-", object)
		holder := m.parent.current().Shard
		m.held.Store(holder, true)
		m.attempted[object].Store(int64(n))
		switch err := m.shards[holder].write(moving, name, n); {
		case err == nil:
			m.acknowledged[object].Store(int64(n))
			m.done.Add(1)
		case apierrors.IsServiceUnavailable(err):
		default:
			t.Errorf("writing at %s: %v", holder, err)
		}
		for _, s := range m.shards {
			if _, held := m.held.Load(s.name); !held {
				continue
			}
			before := m.acknowledged[object].Load()
			switch got, err := s.read(moving, name); {
			case err == nil && int64(got) < before:
				t.Errorf("shard %s returns value %d of %s, after %d was acknowledged", s.name, got, name, before)
			case apierrors.IsNotFound(err) && before > 0:
				t.Errorf("shard %s has no %s, after %d was acknowledged", s.name, name, before)
			case err != nil && !apierrors.IsNotFound(err) && !apierrors.IsServiceUnavailable(err):
				t.Errorf("reading at %s: %v", s.name, err)
			}
		}
	}
}

// want returns the objects that informers have when nothing is written.
func (m *model) want(t *testing.T) map[string]int {
	t.Helper()
	want := map[string]int{}
	holder := m.shards[m.parent.current().Shard]
	for object := range objects {
		name := fmt.Sprint("object-", object)
		got, err := holder.read(moving, name)
		if apierrors.IsNotFound(err) && m.acknowledged[object].Load() == 0 {
			continue
		}
		if err != nil || int64(got) < m.acknowledged[object].Load() || int64(got) > m.attempted[object].Load() {
			t.Errorf("%s has value %d, acknowledged is %d, attempted %d: %v", name, got, m.acknowledged[object].Load(), m.attempted[object].Load(), err)
		}
		want[string(moving)+"/"+name] = got
	}
	return want
}

// cancelAt are the steps before which some migrations are canceled, by number.
var cancelAt = map[int]Step{2: StepCopy, 4: StepLeave, 6: StepFinish, 8: StepCommit}

// migrate moves the cluster to the other shard. The destination crashes at random.
func (m *model) migrate(t *testing.T, number int, fault func() bool) (last Step) {
	t.Helper()
	before := m.parent.current()
	destination := map[string]string{"west": "east", "east": "west"}[before.Shard]
	migration := Migration{UID: types.UID(fmt.Sprint("uid-", number)), Cluster: moving, Origin: before.Shard, Destination: destination, Epoch: before.Epoch + 1}
	from, to := m.shards[before.Shard], m.shards[destination]
	canceled := false
	origin := &Origin{Shard: from.name, Store: from.store, Copies: from.copies, Records: m.parent, Accepts: func(context.Context, Migration) error {
		if canceled {
			return apierrors.NewConflict(migrationResource, "uid", errors.New("canceled"))
		}
		return nil
	}}
	remote := direct{origin: origin, caller: peers.Identity{Kind: peers.Shard, Name: destination}, fault: fault}
	mover := func() *Mover {
		return &Mover{Migration: migration, Store: to.store, Copies: to.copies, Origin: remote, Records: m.parent, Clock: clock.RealClock{},
			Canceled: func() bool { return canceled },
			Arrive: func(annotations map[string]string) {
				annotations["arrived"] = annotations[tenancyv1alpha1.EpochAnnotation]
			}}
	}
	v := mover()
	for range 2000 {
		if fault() {
			v = mover() // a crash
		}
		step, observed, err := v.Next(t.Context())
		if err != nil {
			continue
		}
		if step == cancelAt[number] && !canceled {
			canceled = true
			continue
		}
		if step == StepDone || step == StepCanceled || step == StepRefused {
			return step
		}
		if err := v.Do(t.Context(), step, observed); err == nil && fault() {
			v = mover()
		}
	}
	t.Fatalf("the migration does not end: the record is %+v", m.parent.current())
	return ""
}

// The model moves a cluster back and forth while clients and informers use it, and everything that can fail fails at random.
func TestAClusterMovesWithoutLosingAWrite(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	faults := sync.Mutex{}
	fault := func() bool {
		faults.Lock()
		defer faults.Unlock()
		return random.IntN(25) == 0
	}
	m := &model{shards: map[string]*shard{"west": newShard(t, "west"), "east": newShard(t, "east")}}
	m.parent = &parent{fault: fault, record: placement.Record{Shard: "west", Epoch: 1, Cluster: moving}}
	lc := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.LogicalClusterName}}
	lc.SetGroupVersionKind(corev1alpha1.SchemeGroupVersion.WithKind("LogicalCluster"))
	if err := m.shards["west"].cluster.Create(in(moving), lc.Name, lc); err != nil {
		t.Fatal(err)
	}
	for _, s := range m.shards {
		if err := s.write("resident-"+logicalcluster.Name(s.name), "resident", 1); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	var running, writing sync.WaitGroup
	informers := map[string]*informer{}
	for name, s := range m.shards {
		informers[name] = &informer{shard: s}
		running.Go(func() { informers[name].run(ctx) })
	}
	defer running.Wait()
	defer stop()

	ends := map[Step]int{}
	for number := range 10 {
		clients, end := context.WithCancel(ctx)
		for worker := range 3 {
			seed := rand.New(rand.NewPCG(uint64(number), uint64(worker)))
			writing.Go(func() { m.client(clients, t, worker*objects/3, objects/3, seed) })
		}
		for written := m.done.Load(); m.done.Load() < written+100 && !t.Failed(); {
			time.Sleep(time.Millisecond)
		}
		before := m.parent.current()
		step := m.migrate(t, number, fault)
		ends[step]++
		after := m.parent.current()
		for written := m.done.Load(); m.done.Load() < written+100 && !t.Failed(); {
			time.Sleep(time.Millisecond)
		}
		end()
		writing.Wait()
		if t.Failed() {
			t.FailNow()
		}
		m.verify(t, step, before, after, informers)
	}
	if ends[StepDone] != 6 || ends[StepCanceled] != len(cancelAt) {
		t.Errorf("migrations ended with %v", ends)
	}
}

// verify checks the state after a migration.
func (m *model) verify(t *testing.T, step Step, before, after placement.Record, informers map[string]*informer) {
	t.Helper()
	if moved := before.Shard != after.Shard; moved != (step == StepDone) || moved && after.Epoch != before.Epoch+1 || after.Epoch < before.Epoch {
		t.Errorf("after %s the record is %+v, was %+v", step, after, before)
	}
	want := m.want(t)
	for name, s := range m.shards {
		fence, _, err := s.store.Fence(t.Context(), moving)
		if err != nil {
			t.Fatal(err)
		}
		expected := map[string]int{"resident-" + name + "/resident": 1}
		if holds := name == after.Shard; holds {
			maps.Copy(expected, want)
			if fence != nil {
				t.Errorf("the holder %s has the fence %+v", name, fence)
			}
		} else if keys := s.keys(t, moving); keys != 0 || fence != nil && fence.State != storage.FenceMoved {
			t.Errorf("shard %s has %d keys and the fence %+v", name, keys, fence)
		}
		for deadline := time.Now().Add(30 * time.Second); !informers[name].has(expected); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("after %s the informer of %s has %v, want %v", step, name, informers[name].objects, expected)
			}
		}
		if n := informers[name].deleted.Load(); n > 0 {
			t.Errorf("the informer of %s got %d deletions", name, n)
		}
	}
	lc := &corev1alpha1.LogicalCluster{}
	if err := m.shards[after.Shard].cluster.Get(in(moving), corev1alpha1.LogicalClusterName, lc); err != nil {
		t.Error(err)
	}
	if step == StepDone && (lc.Annotations[tenancyv1alpha1.ShardAnnotation] != after.Shard || placement.EpochOf(lc.Annotations) != after.Epoch) {
		t.Errorf("the LogicalCluster has the annotations %v, want %+v", lc.Annotations, after)
	}
	if step == StepDone && lc.Annotations["arrived"] != lc.Annotations[tenancyv1alpha1.EpochAnnotation] {
		t.Errorf("the annotations %v were not changed when the cluster arrived", lc.Annotations)
	}
}

func TestAMigrationWaitsForEveryProcessOfBothShards(t *testing.T) {
	for _, slow := range []string{"west", "east"} {
		t.Run(slow, func(t *testing.T) {
			m := &model{shards: map[string]*shard{"west": newShard(t, "west"), "east": newShard(t, "east")}}
			m.parent = &parent{fault: func() bool { return false }, record: record("west", 1)}
			if err := m.shards["west"].write(moving, "x", 1); err != nil {
				t.Fatal(err)
			}
			client := servers[slow].Client()
			defer client.Close()
			process := "/" + t.Name() + "/kcp-store/processes/slow"
			if _, err := client.Put(t.Context(), process, "0"); err != nil {
				t.Fatal(err)
			}
			v, waits := m.mover(), map[string]Step{"west": StepFinish, "east": StepCopy}[slow]
			for waited := false; ; {
				step, observed, err := v.Next(t.Context())
				if err != nil || step == StepCommit && !waited {
					t.Fatalf("%s without waiting: %v", step, err)
				}
				if step == StepCommit {
					return
				}
				if step == waits && !waited {
					ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
					if err := v.Do(ctx, step, observed); err == nil {
						t.Fatalf("%s does not wait", step)
					}
					cancel()
					if _, err := client.Delete(t.Context(), process); err != nil {
						t.Fatal(err)
					}
					waited = true
				}
				if err := v.Do(t.Context(), step, observed); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// mover returns the mover of the example.
func (m *model) mover() *Mover {
	from, to := m.shards[example.Origin], m.shards[example.Destination]
	origin := &Origin{Shard: from.name, Store: from.store, Copies: from.copies, Records: m.parent,
		Accepts: func(context.Context, Migration) error { return nil }}
	remote := direct{origin: origin, caller: peers.Identity{Kind: peers.Shard, Name: to.name}, fault: m.parent.fault}
	return &Mover{Migration: example, Store: to.store, Copies: to.copies, Origin: remote, Records: m.parent, Clock: clock.RealClock{},
		Canceled: func() bool { return false }}
}

func TestAnOriginAnswersOnlyTheDestinationOfAnAcceptedMigration(t *testing.T) {
	m := &model{shards: map[string]*shard{"west": newShard(t, "west"), "east": newShard(t, "east")}}
	m.parent = &parent{fault: func() bool { return false }, record: record("west", 1)}
	if err := m.shards["west"].write(moving, "x", 1); err != nil {
		t.Fatal(err)
	}
	v := m.mover()
	origin := v.Origin.(direct).origin
	destination := peers.Identity{Kind: peers.Shard, Name: "east"}
	calls := func(caller peers.Identity, m Migration) map[string]error {
		failures := map[string]error{}
		_, failures["state"] = origin.State(t.Context(), caller, m)
		_, failures["leave"] = origin.Do(t.Context(), caller, Order{m, StepLeave})
		_, failures["collections"] = origin.Collections(t.Context(), caller, Read{Migration: m})
		_, failures["page"] = origin.Page(t.Context(), caller, Read{Migration: m, Collection: "/core/configmaps"})
		_, failures["changes"] = origin.Changes(t.Context(), caller, Read{Migration: m, Revision: 1})
		_, failures["digest"] = origin.Digest(t.Context(), caller, Read{Migration: m})
		return failures
	}
	for what, change := range map[string]func(*Migration, *peers.Identity){
		"another shard":      func(_ *Migration, caller *peers.Identity) { caller.Name = "north" },
		"a front proxy":      func(_ *Migration, caller *peers.Identity) { caller.Kind = peers.Proxy },
		"another origin":     func(m *Migration, _ *peers.Identity) { m.Origin = "north" },
		"root":               func(m *Migration, _ *peers.Identity) { m.Cluster = logicalcluster.Root },
		"a system cluster":   func(m *Migration, _ *peers.Identity) { m.Cluster = logicalcluster.SystemAdmin },
		"no cluster":         func(m *Migration, _ *peers.Identity) { m.Cluster = "" },
		"no UID":             func(m *Migration, _ *peers.Identity) { m.UID = "" },
		"no epoch":           func(m *Migration, _ *peers.Identity) { m.Epoch = 0 },
		"its own shard":      func(m *Migration, caller *peers.Identity) { m.Destination, caller.Name = "west", "west" },
		"path in the shard":  func(_ *Migration, caller *peers.Identity) { caller.Name = "east/x" },
		"the epoch of today": func(m *Migration, _ *peers.Identity) { m.Epoch = 1 },
	} {
		migration, caller := example, destination
		change(&migration, &caller)
		for call, err := range calls(caller, migration) {
			if !apierrors.IsForbidden(err) {
				t.Errorf("%s calls %s: %v", what, call, err)
			}
		}
	}
	denied := apierrors.NewForbidden(migrationResource, "uid", errors.New("not accepted"))
	origin.Accepts = func(context.Context, Migration) error { return denied }
	for call, err := range calls(destination, example) {
		if call != "state" && !errors.Is(err, denied) {
			t.Errorf("%s of a migration that is not accepted: %v", call, err)
		}
	}
	for _, step := range []Step{StepWithdraw, StepForward, StepClean, StepRelease, StepCommit, ""} {
		if _, err := origin.Do(t.Context(), destination, Order{example, step}); !apierrors.IsConflict(err) {
			t.Errorf("step %q of a cluster that the origin holds: %v", step, err)
		}
	}
	if got, err := m.shards["west"].read(moving, "x"); err != nil || got != 1 {
		t.Errorf("the origin has %d, %v", got, err)
	}
}
