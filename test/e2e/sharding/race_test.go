package sharding

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/test/e2e/kcptest"
	"github.com/kcplane/kcp/test/sharded"
)

const (
	// racers is the number of clients, and contested the number of paths on which they work.
	racers, contested = 4, 3
	// sign is the ConfigMap that says in which logical cluster it is.
	sign = "sign"
)

// raceTime is how long a race lasts, unless a variable has another value, such as 10m.
func raceTime(t *testing.T, variable string, usual time.Duration) time.Duration {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return usual
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return d
}

// race is a path at which workspaces come and go.
type race struct {
	name string
	// change is held by the client that creates, moves or deletes the workspace.
	change sync.Mutex

	mu sync.Mutex
	// turn rises before and after each change. It is odd while an acknowledged workspace exists and no change is in progress.
	turn int
	// cluster is the logical cluster of the workspace in this turn, signed its sign. They stay after a deletion.
	cluster string
	signed  map[string]int // turn at which each sign was acknowledged
}

// state returns the turn, and the logical cluster if an acknowledged workspace exists.
func (r *race) state() (turn int, cluster string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.turn, r.cluster
}

func (r *race) exists() bool {
	turn, _ := r.state()
	return turn%2 == 1
}

// next begins another turn.
func (r *race) next(cluster string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn++
	if cluster != "" {
		r.cluster = cluster
		r.signed[cluster] = r.turn
	}
}

// racing is what the clients share.
type racing struct {
	t *testing.T
	i *sharded.Installation
	// failures are the phases in which a migration may end besides Completed.
	failures []string
	// disturbances is the number of times that a process was stopped or started. Connections may fail while it changes or is odd.
	disturbances atomic.Int64
	// parent is the path of the parent of the workspaces.
	parent string
	races  []*race
	// counts of what succeeded
	created, deleted, moved, used, unavailable atomic.Int64
}

// Workspaces are created, used, moved and deleted under the same paths by four clients through two front proxies. No request gets into another
// logical cluster than the one that was at its path, and no acknowledged workspace is answered with 403 or 404.
func TestNoRequestOfARaceGetsIntoAWrongLogicalCluster(t *testing.T) {
	organization, direct := workspaceOn(t, shard(t, "shard-1"))
	direct.Grant(t, kcptest.Alice, "cluster-admin")
	g := newRacing(t, installation, "root:"+organization)
	ctx, cancel := context.WithTimeout(t.Context(), raceTime(t, "KCP_RACE", time.Minute))
	defer cancel()
	var group sync.WaitGroup
	for n := range racers {
		group.Go(func() {
			for random := rand.New(rand.NewPCG(uint64(n), 1)); g.continues(ctx) && !t.Failed(); {
				g.step(random, g.races[random.IntN(contested)], random.IntN(len(g.i.Proxies)))
			}
		})
	}
	group.Wait()
	g.report()
}

func newRacing(t *testing.T, i *sharded.Installation, parent string) *racing {
	g := &racing{t: t, i: i, parent: parent}
	for range contested {
		g.races = append(g.races, &race{name: "race-" + kcptest.Suffix(), signed: map[string]int{}})
	}
	return g
}

// complete reports whether each action has succeeded at least once.
func (g *racing) complete() bool {
	return g.created.Load() > 0 && g.deleted.Load() > 0 && g.moved.Load() > 0 && g.used.Load() > 0
}

// continues reports whether the clients go on: until ctx ends, and for some minutes more if not every action has succeeded on a busy machine.
func (g *racing) continues(ctx context.Context) bool {
	end, _ := ctx.Deadline()
	return ctx.Err() == nil || (!g.complete() && time.Since(end) < 5*time.Minute)
}

// report logs what was done, and fails the test if an action never succeeded.
func (g *racing) report() {
	g.t.Helper()
	g.t.Logf("%d workspaces created, %d moved, %d deleted; %d requests served, %d got 503 or 429", g.created.Load(), g.moved.Load(),
		g.deleted.Load(), g.used.Load(), g.unavailable.Load())
	if !g.complete() {
		g.t.Error("not every action succeeded at least once")
	}
}

// at returns a cluster at a front proxy.
func (g *racing) at(proxy int, path string) *kcptest.Cluster {
	return g.i.Proxies[proxy].Server().Named(path)
}

// step does one thing at a path.
func (g *racing) step(random *rand.Rand, r *race, proxy int) {
	if random.IntN(10) > 0 || !r.change.TryLock() {
		g.use(r, proxy)
		return
	}
	defer r.change.Unlock()
	switch {
	case !r.exists():
		g.create(r, proxy)
	case random.IntN(3) == 0:
		g.move(r, proxy, random)
	default:
		g.remove(r, proxy)
	}
}

// create creates the workspace on any shard, and signs its logical cluster.
func (g *racing) create(r *race, proxy int) {
	shard := g.i.Shards[rand.IntN(len(g.i.Shards))]
	workspaces := g.at(proxy, g.parent).Dynamic(g.t, kcptest.Alice).Resource(kcptest.Workspaces)
	ws := kcptest.On(shard.Name, kcptest.Workspace(r.name, "", ""))
	var cluster string
	g.until("create "+r.name, func(ctx context.Context) error {
		got, err := workspaces.Create(ctx, ws, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) { // it is the former one, which is being deleted, or an attempt without a response
			got, err = workspaces.Get(ctx, r.name, metav1.GetOptions{})
		}
		if err != nil {
			return err
		}
		phase, _, _ := unstructured.NestedString(got.Object, "status", "phase")
		cluster, _, _ = unstructured.NestedString(got.Object, "spec", "cluster")
		if phase != "Ready" || got.GetDeletionTimestamp() != nil {
			return fmt.Errorf("the phase is %q", phase)
		}
		return nil
	})
	objects := g.at(proxy, g.parent+":"+r.name).Kube(g.t, kcptest.Alice).CoreV1().ConfigMaps("default")
	g.until("sign "+r.name, func(ctx context.Context) error {
		_, err := objects.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: sign}, Data: map[string]string{"cluster": cluster}},
			metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
	r.next(cluster)
	g.created.Add(1)
}

// remove deletes the workspace.
func (g *racing) remove(r *race, proxy int) {
	r.next("")
	workspaces := g.at(proxy, g.parent).Dynamic(g.t, kcptest.Alice).Resource(kcptest.Workspaces)
	g.until("delete "+r.name, func(ctx context.Context) error {
		err := workspaces.Delete(ctx, r.name, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
	g.deleted.Add(1)
}

// move moves the logical cluster to another shard. The workspace exists all the time.
func (g *racing) move(r *race, proxy int, random *rand.Rand) {
	_, cluster := r.state()
	var ws *tenancyv1alpha1.Workspace
	g.until("read "+r.name, func(ctx context.Context) (err error) {
		ws, err = g.workspace(ctx, proxy, r)
		return err
	})
	to := g.i.Shards[random.IntN(len(g.i.Shards))].Name
	if g.t.Failed() || to == ws.Annotations[tenancyv1alpha1.ShardAnnotation] {
		return
	}
	migrations := g.i.Root().Server().Named("root").Objects(g.t, migrations)
	migration := migrationOf(g.t, cluster, to)
	g.until("create a migration of "+r.name, func(ctx context.Context) error {
		_, err := migrations.Create(ctx, migration, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
	var phase string
	g.until("end the migration of "+r.name, func(ctx context.Context) error {
		obj, err := migrations.Get(ctx, migration.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		if phase, _, _ = unstructured.NestedString(obj.Object, "status", "phase"); phase != "Completed" && phase != "Failed" {
			return fmt.Errorf("its status is %v", obj.Object["status"])
		}
		if phase != "Completed" && !slices.Contains(g.failures, phase) {
			g.t.Errorf("the migration of %s to %s: %v", r.name, to, obj.Object["status"])
		}
		return nil
	})
	if phase == "Completed" {
		g.moved.Add(1)
	}
}

func (g *racing) workspace(ctx context.Context, proxy int, r *race) (*tenancyv1alpha1.Workspace, error) {
	obj, err := g.at(proxy, g.parent).Dynamic(g.t, kcptest.Alice).Resource(kcptest.Workspaces).Get(ctx, r.name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	ws := &tenancyv1alpha1.Workspace{}
	return ws, runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, ws)
}

// until tries again while what it needs is unavailable or not there yet, and fails the test after a while.
func (g *racing) until(what string, do func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for last := error(nil); ; {
		attempt, end := context.WithTimeout(ctx, 20*time.Second)
		err := do(attempt)
		end()
		if err == nil {
			return
		}
		if ctx.Err() != nil && last != nil {
			err = fmt.Errorf("%w; before: %w", err, last)
		}
		last = err
		select {
		case <-ctx.Done():
			g.t.Errorf("%s: %v", what, err)
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// use reads the sign at a path, and checks that it is that of the workspace.
func (g *racing) use(r *race, proxy int) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	disturbances := g.disturbances.Load()
	turn, cluster := r.state()
	got, err := g.client(proxy, r).CoreV1().ConfigMaps("default").Get(ctx, sign, metav1.GetOptions{})
	after, _ := r.state()
	settled := turn%2 == 1 && turn == after // the workspace existed all the time
	var status apierrors.APIStatus
	switch {
	case err == nil:
		g.used.Add(1)
		g.check(r, got.Data["cluster"], cluster, settled, turn)
	case errors.As(err, &status) && (status.Status().Code == http.StatusServiceUnavailable || status.Status().Code == http.StatusTooManyRequests):
		g.unavailable.Add(1)
	case status == nil && (disturbances%2 == 1 || disturbances != g.disturbances.Load()): // no connection to the front proxy
		g.unavailable.Add(1)
	case settled:
		g.t.Errorf("%s exists with the logical cluster %s, and a request through %s fails: %v", r.name, cluster, g.i.Proxies[proxy].Name, err)
	}
}

func (g *racing) client(proxy int, r *race) kubernetes.Interface {
	return g.at(proxy, g.parent+":"+r.name).Kube(g.t, kcptest.Alice)
}

// check fails the test if a sign is not that of the workspace, or that of a workspace that was deleted before the request.
func (g *racing) check(r *race, got, want string, settled bool, turn int) {
	r.mu.Lock()
	acknowledged, known := r.signed[got]
	r.mu.Unlock()
	switch {
	case settled && got != want:
		g.t.Errorf("%s is the logical cluster %s, and a request got into %s", r.name, want, got)
	case known && acknowledged < turn-1:
		g.t.Errorf("a request for %s got into the logical cluster %s, whose deletion was acknowledged before", r.name, got)
	}
}
