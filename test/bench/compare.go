package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

const (
	// turns is how often each server is measured.
	turns = 5
	// first is the number of workspaces that exist before the additional ones are counted, to create everything that exists only once.
	first = 1000
	// profiled is the duration of profiles of creations.
	profiled = 5 * time.Second
	// counted is the number of workspaces that may add one goroutine or one series, because those of connections and of rare responses
	// vary.
	counted = 100
)

// holder is a server with workspaces, or with namespaces, each of which gets the same requests.
type holder struct {
	*process
	create func(ctx context.Context, client, i int) error
	// configMaps returns the path of the ConfigMaps in one of them.
	configMaps func(i int) string
	restart    func() (*process, error)
	// memory in bytes, goroutines and series with only the first workspaces.
	memory             float64
	goroutines, series int
}

// compareWorkspaces creates n workspaces and, in turn, as many namespaces of a vanilla server. It prints the cost of both, and fails if
// idle workspaces add goroutines or series. With another kcp, that one gets workspaces too.
func compareWorkspaces(ctx context.Context, n int, s scale) error {
	bin, dir, err := prepareWith(s.programs()...)
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	kcp, err := holdWorkspaces(ctx, bin, filepath.Join(dir, "kcp"))
	if err != nil {
		return err
	}
	defer func() { kcp.stop() }()
	baseline, from := holdNamespaces, bin
	if s.against != "" {
		baseline, from = holdWorkspaces, s.against
	}
	vanilla, err := baseline(ctx, from, filepath.Join(dir, "vanilla"))
	if err != nil {
		return err
	}
	defer func() { vanilla.stop() }()
	c := &comparison{holders: []*holder{kcp, vanilla}, n: n, profiles: s.profiles}
	for _, measure := range []func(context.Context) ([]row, error){c.creations, c.idle, c.requests, c.restarts, c.deletion} {
		more, err := measure(ctx)
		if err != nil {
			return err
		}
		c.rows = append(c.rows, report(more)...)
	}
	printTable(os.Stdout, s.named(c.rows))
	return c.failed
}

// holdWorkspaces starts kcp with a workspace for all others.
func holdWorkspaces(ctx context.Context, bin, dir string) (*holder, error) {
	port, err := kcptest.FreePort()
	if err != nil {
		return nil, err
	}
	h := &holder{restart: func() (*process, error) { return startKCPAt(ctx, bin, dir, port) }}
	if h.process, err = h.restart(); err != nil {
		return nil, err
	}
	h.create = func(ctx context.Context, client, i int) error {
		return (&workspacesRun{kcp: h.process}).create(ctx, client, "root:many", fmt.Sprintf("w%d", i))
	}
	h.configMaps = func(i int) string {
		return fmt.Sprintf("/clusters/root:many:w%d/api/v1/namespaces/default/configmaps", i)
	}
	if err := (&workspacesRun{kcp: h.process}).create(ctx, 0, "root", "many"); err != nil {
		h.stop()
		return nil, err
	}
	return h, nil
}

// holdNamespaces starts a vanilla server.
func holdNamespaces(ctx context.Context, bin, dir string) (*holder, error) {
	h := &holder{restart: func() (*process, error) { return startVanilla(ctx, bin, dir) }}
	h.create = func(ctx context.Context, client, i int) error {
		return h.post(ctx, client, "/api/v1/namespaces", fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"w%d"}}`, i))
	}
	h.configMaps = func(i int) string { return fmt.Sprintf("/api/v1/namespaces/w%d/configmaps", i) }
	var err error
	h.process, err = h.restart()
	return h, err
}

// post creates an object, unless it exists.
func (p *process) post(ctx context.Context, connection int, path, body string) error {
	status, answer, err := p.do(ctx, connection, http.MethodPost, path, body)
	if err == nil && status != http.StatusCreated && status != http.StatusConflict {
		err = fmt.Errorf("%s: %d %s", path, status, answer)
	}
	return err
}

// comparison compares a server with n workspaces to one with n namespaces.
type comparison struct {
	holders []*holder
	n       int
	// profiles is the directory for profiles, or empty for none.
	profiles string
	rows     []row
	// failed is set if a condition is violated that must hold on every machine.
	failed error
}

// creations creates all workspaces, and stores the figures with the first ones.
func (c *comparison) creations(ctx context.Context) ([]row, error) {
	many := min(first, c.n/2)
	for _, h := range c.holders {
		if _, err := count(ctx, creators, many, h.create); err != nil {
			return nil, fmt.Errorf("%s: %w", h.name, err)
		}
		var err error
		if h.memory, err = h.settled(ctx); err != nil {
			return nil, err
		}
		if h.goroutines, h.series, err = h.counts(ctx); err != nil {
			return nil, err
		}
	}
	loads := make([][]load, len(c.holders))
	for turn := range turns {
		from, to := many+turn*(c.n-many)/turns, many+(turn+1)*(c.n-many)/turns
		for i, h := range c.holders {
			var l load
			var err error
			create := func() error {
				l, err = measured(h.process, func() (load, error) {
					return count(ctx, creators, to-from, func(ctx context.Context, client, i int) error { return h.create(ctx, client, from+i) })
				})
				return err
			}
			if c.profiles == "" || turn < turns-1 {
				err = create()
			} else {
				err = h.profile(ctx, c.profiles, "create", profiled, create)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", h.name, err)
			}
			loads[i] = append(loads[i], l)
		}
	}
	what := fmt.Sprintf("create a workspace until it is Ready, %d clients (vanilla: a namespace)", creators)
	return []row{throughputRow(what, "1/s", median(loads[0]), median(loads[1]), 1)}, nil
}

// idle compares the figures with all workspaces to those with the first ones.
func (c *comparison) idle(ctx context.Context) ([]row, error) {
	added := float64(c.n - min(first, c.n/2))
	var each [2]float64
	for i, h := range c.holders {
		settled, err := h.settled(ctx)
		if err != nil {
			return nil, err
		}
		each[i] = max(0, settled-h.memory) / added / 1024
	}
	kcp := c.holders[0]
	goroutines, series, err := kcp.counts(ctx)
	// Connections and the work of controllers end shortly after the requests.
	deadline := time.Now().Add(time.Minute)
	for err == nil && float64(goroutines-kcp.goroutines) > added/counted && time.Now().Before(deadline) {
		time.Sleep(time.Second)
		goroutines, series, err = kcp.counts(ctx)
	}
	if err != nil {
		return nil, err
	}
	rows := []row{{What: "resident memory of each, server and etcd", Unit: "KiB", Ours: each[0], Vanilla: each[1]}}
	for _, fact := range []struct {
		what        string
		now, before int
	}{{"goroutines", goroutines, kcp.goroutines}, {"metric series", series, kcp.series}} {
		what := fmt.Sprintf("%s with %d idle workspaces (second column: with %d)", fact.what, c.n, c.n-int(added))
		met := float64(fact.now-fact.before) <= added/counted
		if !met {
			c.failed = fmt.Errorf("%.0f idle workspaces add %d %s", added, fact.now-fact.before, fact.what)
		}
		rows = append(
			rows,
			row{What: what, Ours: float64(fact.now), Vanilla: float64(fact.before), Budget: fmt.Sprintf("≤ 1 for %d", counted), Met: met},
		)
	}
	return rows, nil
}

// requests measures requests of one client to random workspaces, of the one percent that is active.
func (c *comparison) requests(ctx context.Context) ([]row, error) {
	active := max(1, c.n/100)
	path := func(h *holder, i int) string { return h.configMaps(i * (c.n / active)) }
	body := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"measured"},"data":{"payload":"` + payload + `"}}`
	for _, h := range c.holders {
		_, err := count(ctx, 4, active, func(ctx context.Context, client, i int) error { return h.post(ctx, client, path(h, i), body) })
		if err != nil {
			return nil, fmt.Errorf("%s: entering: %w", h.name, err)
		}
	}
	var rows []row
	for _, verb := range []string{http.MethodGet, http.MethodPut} {
		loads := make([][]load, len(c.holders))
		for range turns {
			for i, h := range c.holders {
				l, err := measured(h.process, func() (load, error) {
					return drive(ctx, 1, time.Second/2, func(ctx context.Context, _, i int) error {
						sent := ""
						if verb == http.MethodPut {
							sent = strings.Replace(body, payload, fmt.Sprintf("%s %d", payload, i), 1)
						}
						status, answer, err := h.do(ctx, 0, verb, path(h, rand.IntN(active))+"/measured", sent)
						if err == nil && status != http.StatusOK {
							err = fmt.Errorf("%s: %s: %d %s", h.name, verb, status, answer)
						}
						return err
					})
				})
				if err != nil {
					return nil, err
				}
				loads[i] = append(loads[i], l)
			}
		}
		what := fmt.Sprintf(
			"%s a ConfigMap in one of %d active ones, 1 client",
			map[string]string{http.MethodGet: "get", http.MethodPut: "update"}[verb],
			active,
		)
		rows = append(rows, throughputRow(what, "1/s", median(loads[0]), median(loads[1]), within))
	}
	return rows, nil
}

// restarts measures how long both servers take until they are ready after a restart.
func (c *comparison) restarts(context.Context) ([]row, error) {
	var took [2]float64
	for i, h := range c.holders {
		h.stop()
		begin := time.Now()
		p, err := h.restart()
		if err != nil {
			return nil, err
		}
		h.process, took[i] = p, time.Since(begin).Seconds()
	}
	return []row{{What: "ready after a restart", Unit: "s", Ours: took[0], Vanilla: took[1]}}, nil
}

// deletion deletes the workspace that contains all others.
func (c *comparison) deletion(ctx context.Context) ([]row, error) {
	begin := time.Now()
	if err := (&workspacesRun{kcp: c.holders[0].process}).remove(ctx, "root", "many"); err != nil {
		return nil, err
	}
	took := time.Since(begin).Seconds()
	return []row{
		{What: fmt.Sprintf("delete a workspace with %d below it", c.n), Unit: "s", Ours: took, Budget: "≤ 30 s", Met: took <= 30},
	}, nil
}
