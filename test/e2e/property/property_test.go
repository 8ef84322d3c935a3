package property

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// The amount of work by default: less than a minute on two cores.
const (
	defaultClusters   = 50
	defaultOperations = 20000
	clients           = 16
	enough            = 10 // failures after which the test ends
)

func TestRandomOperationsDoNotCrossClusterBoundaries(t *testing.T) {
	s := seed(t)
	f := newFleet(t, int(number(t, "KCP_CLUSTERS", defaultClusters)), clients, s, server.URL)
	began := time.Now()
	if err := f.work(t.Context(), int(number(t, "KCP_OPERATIONS", defaultOperations))); err != nil {
		t.Fatalf("KCP_SEED=%d: %v", s, err)
	}
	if err := f.finish(t.Context()); err != nil {
		t.Fatalf("KCP_SEED=%d: %v", s, err)
	}
	changes, told := 0, 0
	for _, w := range f.watches {
		w.mu.Lock()
		told += len(w.events)
		w.mu.Unlock()
	}
	for _, n := range f.tenants {
		for _, a := range n.actors {
			changes += len(a.model.history)
		}
	}
	t.Logf("%d clusters, %d changes, %d events of %d long watches in %s", len(f.tenants), changes, told, len(f.watches), time.Since(began).Round(time.Second))
}

// failures collects errors up to a limit.
type failures struct {
	mu   sync.Mutex
	errs []error
	stop context.CancelFunc
}

func (f *failures) add(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.errs) < enough {
		f.errs = append(f.errs, err)
	}
	if len(f.errs) == enough {
		f.stop()
	}
}

// work makes the actors perform a number of operations in total, with all clients concurrently.
func (f *fleet) work(ctx context.Context, operations int) error {
	if err := f.followAll(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := &failures{stop: cancel}
	var actors []*actor
	for _, t := range f.tenants {
		actors = append(actors, t.actors...)
	}
	each := (operations + len(actors) - 1) / len(actors)
	free := make(chan *actor, len(actors)) // one client at a time uses an actor, each time another one
	var left, workers sync.WaitGroup
	for _, a := range actors {
		left.Add(1)
		free <- a
	}
	done := make(map[*actor]int, len(actors))
	var mu sync.Mutex
	for _, c := range f.clients {
		workers.Go(func() {
			for a := range free {
				err := a.act(ctx, c)
				mu.Lock()
				done[a]++
				number := done[a]
				mu.Unlock()
				switch {
				case ctx.Err() != nil:
					left.Done()
				case err != nil: // its model may be wrong from now on
					failed.add(fmt.Errorf("operation %d: %w", number, err))
					left.Done()
				case number == each:
					left.Done()
				default:
					free <- a
				}
			}
		})
	}
	left.Wait()
	close(free)
	workers.Wait()
	return errors.Join(failed.errs...)
}

// followAll starts the long watches.
func (f *fleet) followAll(ctx context.Context) error {
	for i, t := range f.tenants {
		for _, kinds := range [][]*kind{namespacedKinds, clusterKinds} {
			for _, k := range kinds {
				if !t.serves(k) {
					continue
				}
				w, err := follow(ctx, f.clients[i%len(f.clients)], t, k)
				if err != nil {
					return fmt.Errorf("tenant %d (%s): watch of %s: %w", i, t.name, k.plural, err)
				}
				f.watches = append(f.watches, w)
			}
		}
	}
	return nil
}

// finish checks the final state when no actor works any more.
func (f *fleet) finish(ctx context.Context) error {
	var group errgroup.Group
	group.SetLimit(len(f.clients))
	for _, w := range f.watches {
		group.Go(func() error {
			t := w.stream.tenant
			t.quiet.Lock() // only one actor of a tenant works at a time
			defer t.quiet.Unlock()
			defer w.stream.close()
			if err := w.check(ctx, f.clients[t.index%len(f.clients)]); err != nil {
				return fmt.Errorf("tenant %d (%s): watch of %s: %w", t.index, t.name, w.stream.kind.plural, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i, t := range f.tenants {
		group.Go(func() error {
			if err := t.checkFinally(ctx, f.clients[i%len(f.clients)]); err != nil {
				return fmt.Errorf("tenant %d (%s), finally: %w", t.index, t.name, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return f.checkWildcard(ctx)
}

// checkFinally compares all lists, and the counts of the quota, with the model.
func (t *tenant) checkFinally(ctx context.Context, c *client) error {
	a := t.actors[0]
	a.client = c
	for _, kinds := range [][]*kind{namespacedKinds, clusterKinds} {
		for _, k := range kinds {
			if !t.serves(k) {
				continue
			}
			if err := a.compareAll(ctx, k); err != nil {
				return err
			}
		}
	}
	// A refused object that was already charged is counted until a counted object is deleted.
	a = t.actors[len(t.actors)-1]
	a.client = c
	last, _, err := a.sentinel(ctx, configMaps, selector{})
	if err != nil {
		return err
	}
	if _, err := a.ask(ctx, request{method: http.MethodDelete, path: a.path(configMaps) + "/" + last.name, as: masters}, http.StatusOK); err != nil {
		return err
	}
	a.model.remove(last)
	want := map[string]int{"count/configmaps": standing}
	for i := range a.model.objects {
		switch i.kind {
		case configMaps, secretKind:
			want["count/"+i.kind.plural]++
		case widgets:
			want["count/"+widgets.plural+"."+customGroup]++
		}
	}
	return t.checkQuota(ctx, c, want)
}

// checkQuota waits until the quota has the right counts, because deletions are counted with a delay.
func (t *tenant) checkQuota(ctx context.Context, c *client, want map[string]int) error {
	ctx, cancel := context.WithTimeout(ctx, kcptest.Timeout)
	defer cancel()
	for {
		got, err := c.want(ctx, t, request{method: http.MethodGet, path: resourceQuotas.path(counted) + "/" + quotaName, as: masters}, http.StatusOK)
		if err != nil {
			return err
		}
		status, _ := got.object["status"].(map[string]any)
		used, _ := status["used"].(map[string]any)
		wrong := ""
		for limit := range quotaHard {
			if strings.HasPrefix(limit, "count/widgets") && t.schema == "" {
				continue
			}
			if counts := text(used, limit); counts != fmt.Sprint(want[limit]) {
				wrong = fmt.Sprintf("the quota counts %q %s, want %d", counts, limit, want[limit])
			}
		}
		if wrong == "" {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return errors.New(wrong)
		}
	}
}

// checkWildcard compares the lists of all clusters of each shard, for its administrators, with all models.
func (f *fleet) checkWildcard(ctx context.Context) error {
	for _, k := range []*kind{configMaps, secretKind, clusterRoles} {
		of := map[string][]any{}
		for _, c := range f.shards {
			r := request{method: http.MethodGet, path: k.path(""), query: url.Values{"labelSelector": {colorLabel}}, as: masters}
			response, err := c.open(ctx, &tenant{name: "*"}, r) // contains data of all tenants
			if err != nil {
				return err
			}
			got := answer{code: response.StatusCode}
			err = json.NewDecoder(response.Body).Decode(&got.object)
			_ = response.Body.Close()
			if err != nil || got.code != http.StatusOK {
				return fmt.Errorf("wildcard list of %s: %d, %w", k.plural, got.code, err)
			}
			for _, item := range got.items() {
				cluster := text(item, "metadata", "annotations", clusterAnnotation)
				of[cluster] = append(of[cluster], item)
			}
		}
		for _, t := range f.tenants {
			want, found := map[id]state{}, map[id]state{}
			for _, a := range t.actors {
				for i, s := range a.model.selected(k, selector{}) {
					want[i] = s
				}
			}
			items := answer{object: map[string]any{"items": of[t.name]}}
			if err := t.actors[0].read(k, items, found); err != nil {
				return fmt.Errorf("wildcard list: %w", err)
			}
			if err := compareObjects(want, found); err != nil {
				return fmt.Errorf("wildcard list, tenant %d (%s): %w", t.index, t.name, err)
			}
		}
	}
	return nil
}
