package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kcplane/kcp/test/e2e/kcptest"
	"github.com/kcplane/kcp/test/sharded"
)

// usable measures how long after its acknowledgement a workspace can be used through another front proxy: of one at a time, which waits for
// no other, and then of many.
func (r *shardedRun) usable(ctx context.Context) error {
	wrong := &refused{codes: map[int]int{}}
	alone, err := pace(ctx, 5, 10*r.scale.slice, func(ctx context.Context, i int) (time.Duration, error) {
		return r.createUntilUsable(ctx, fmt.Sprintf("alone-%d", i), i, wrong)
	})
	if err != nil {
		return err
	}
	l, spent, err := r.spending(ctx, "usable", func() (load, error) {
		return pace(ctx, 200, 10*r.scale.slice, func(ctx context.Context, i int) (time.Duration, error) {
			return r.createUntilUsable(ctx, fmt.Sprintf("usable-%d", i), i, wrong)
		})
	})
	if err != nil {
		return err
	}
	const what = "created, until usable through another proxy, at %.0f of %d a second: p99"
	r.add(limit(fmt.Sprintf(what, alone.perSecond, 5), alone.p99, 50*time.Millisecond),
		row{What: "likewise: latencies", Unit: "1/s", Ours: alone.perSecond, OursLoad: latencyOf(alone)},
		limit(fmt.Sprintf(what, l.perSecond, 200), l.p99, 50*time.Millisecond),
		row{What: "likewise: latencies", Unit: "1/s", Ours: l.perSecond, OursLoad: latencyOf(l)},
		spent.row("processor time of all processes for each of these workspaces", l),
		row{
			What: "responses 403 or 404 for these workspaces", Ours: float64(wrong.codes[403] + wrong.codes[404]), Budget: "0",
			Met: wrong.codes[403]+wrong.codes[404] == 0,
		})
	return nil
}

// refused counts the responses with which requests failed.
type refused struct {
	mu    sync.Mutex
	codes map[int]int
}

func (r *refused) count(code int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.codes[code]++
}

// createUntilUsable creates a workspace through the first front proxy, and returns how long after that it can be used through the second.
func (r *shardedRun) createUntilUsable(ctx context.Context, name string, i int, wrong *refused) (time.Duration, error) {
	client, err := r.first.dynamic(busy, i)
	if err != nil {
		return 0, err
	}
	if _, err := client.Resource(kcptest.Workspaces).Create(ctx, kcptest.Workspace(name, "", ""), metav1.CreateOptions{}); err != nil {
		return 0, err
	}
	return took(func() error {
		return wait.PollUntilContextTimeout(ctx, time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
			code, _, err := r.second.do(ctx, i, http.MethodGet, path("root:"+organization+":"+name)+"/api/v1/namespaces/default", "")
			if err == nil && code != http.StatusOK {
				wrong.count(code)
			}
			return code == http.StatusOK, err
		})
	})
}

// elsewhere measures the creation of workspaces on another shard than that of their parent, beside creations on the same shard.
func (r *shardedRun) elsewhere(ctx context.Context) error {
	shards := map[string]string{"the same shard": r.installation.Shards[1].Name, "another shard": r.installation.Shards[2].Name}
	var elsewhere load
	for _, where := range []string{"the same shard", "another shard"} {
		name := strings.Fields(where)[1]
		fast, spent, err := r.spending(ctx, "on-"+name, func() (load, error) {
			return drive(ctx, 16, 10*r.scale.slice, func(ctx context.Context, client, i int) error {
				_, err := r.createUntilReady(ctx, r.first, busy, client,
					kcptest.On(shards[where], kcptest.Workspace(fmt.Sprintf("%s-%d-%d", name, client, i), "", "")))
				return err
			})
		})
		if err != nil {
			return err
		}
		what := "creation on " + where + " until Ready, 16 clients"
		created := row{What: what, Unit: "1/s", Ours: fast.perSecond, OursLoad: latencyOf(fast)}
		if where == "another shard" {
			created.Budget, created.Met = "≥ 500", fast.perSecond >= 500
			elsewhere = fast
		}
		r.add(created, spent.row(what+": processor time of all processes for each", fast))
	}
	slow, err := pace(ctx, 100, 10*r.scale.slice, func(ctx context.Context, i int) (time.Duration, error) {
		return r.createUntilReady(ctx, r.first, busy, i,
			kcptest.On(shards["another shard"], kcptest.Workspace(fmt.Sprintf("slow-%d", i), "", "")))
	})
	if err != nil {
		return err
	}
	what := fmt.Sprintf("creation on another shard until Ready, at %.0f of 100 a second: p99", slow.perSecond)
	r.add(limit(what, slow.p99, 50*time.Millisecond))
	return r.besideVanilla(ctx, elsewhere, slow)
}

// besideVanilla measures namespaces of a vanilla server like creations on another shard. The figures of both depend on the machine: on the
// one for which the budget of 500 a second was set, a vanilla server created 2,286 namespaces a second.
func (r *shardedRun) besideVanilla(ctx context.Context, elsewhere, slow load) error {
	vanilla, err := holdNamespaces(ctx, r.bin, filepath.Join(r.directory, "vanilla"))
	if err != nil {
		return err
	}
	defer vanilla.stop()
	duration := 10 * r.scale.slice
	fast, err := measured(vanilla.process, func() (load, error) {
		return drive(ctx, creators, duration, func(ctx context.Context, client, i int) error {
			return vanilla.create(ctx, client, i*creators+client)
		})
	})
	if err != nil {
		return err
	}
	paced, err := pace(ctx, 100, duration, func(ctx context.Context, i int) (time.Duration, error) {
		return took(func() error { return vanilla.create(ctx, i, creators*(fast.n+1)+i) })
	})
	if err != nil {
		return err
	}
	const what = "creation on another shard until Ready, 16 clients (vanilla: a namespace, 32 clients)"
	created := throughputRow(what, "1/s", elsewhere, fast, 0.22)
	latencies := row{
		What: "likewise at 100 a second: p99", Unit: "ms", Ours: milliseconds(slow.p99), Vanilla: milliseconds(paced.p99),
		OursLoad: latencyOf(slow), VanillaLoad: latencyOf(paced),
	}
	created.Pair, latencies.Pair = &withVanilla, &withVanilla
	r.add(created, latencies)
	return nil
}

// spending is the processor time of each process of an installation, and of the clients.
type spending map[string]time.Duration

// spending runs a load, and returns what it costs. If profiles are requested, it writes one of each shard.
func (r *shardedRun) spending(ctx context.Context, name string, do func() (load, error)) (load, spending, error) {
	var profiles errgroup.Group
	if r.scale.profiles != "" {
		for _, p := range r.everything {
			if !slices.ContainsFunc(r.installation.Shards, func(shard *sharded.Process) bool { return shard.Name == p.name }) {
				continue
			}
			profiles.Go(func() error {
				return p.profile(ctx, r.scale.profiles, name, 10*r.scale.slice, func() error { return nil })
			})
		}
	}
	spent := spending{}
	for _, p := range r.everything {
		spent[p.name] = -p.cpu()
	}
	spent["clients"] = -ownTime()
	l, err := do()
	for _, p := range r.everything {
		spent[p.name] += p.cpu()
	}
	spent["clients"] += ownTime()
	if failed := profiles.Wait(); err == nil {
		err = failed
	}
	return l, spent, err
}

// ownTime returns the processor time of this process.
func ownTime() time.Duration {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// row returns the processor time for each operation of a load.
func (s spending) row(what string, l load) row {
	got := row{What: what, Unit: "ms"}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(s)) {
		each := milliseconds(s[name]) / float64(max(l.n, 1))
		got.Ours += each
		parts = append(parts, fmt.Sprintf("%s %.2f", name, each))
	}
	got.What += " (" + strings.Join(parts, ", ") + ")"
	return got
}
