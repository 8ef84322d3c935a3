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
)

const (
	// turns is how often both servers have their turn.
	turns = 5
	// first are there before what others add is counted: what exists once then exists.
	first = 1000
	// profiled is how long creations are looked at.
	profiled = 5 * time.Second
	// counted is how many workspaces may add one goroutine or one series: those of connections and of rare answers come and go.
	counted = 100
)

// holder is a server with workspaces or namespaces, each of which holds what a cluster is asked for.
type holder struct {
	*process
	create func(ctx context.Context, client, i int) error
	// configMaps is the path of those in one of them.
	configMaps func(i int) string
	restart    func() (*process, error)
	// memory in bytes, goroutines and series when there were the first.
	memory             float64
	goroutines, series int
}

// compareWorkspaces creates n workspaces and, in turn, as many namespaces of a vanilla server. It prints what both take, and fails
// if what is idle adds something that runs. If profiles names a directory, profiles of creating are written to it.
func compareWorkspaces(ctx context.Context, n int, profiles string) error {
	bin, dir, err := prepare()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	kcp, err := holdWorkspaces(ctx, bin, filepath.Join(dir, "kcp"))
	if err != nil {
		return err
	}
	defer func() { kcp.stop() }()
	vanilla, err := holdNamespaces(ctx, bin, filepath.Join(dir, "vanilla"))
	if err != nil {
		return err
	}
	defer func() { vanilla.stop() }()
	c := &comparison{holders: []*holder{kcp, vanilla}, n: n, profiles: profiles}
	for _, measure := range []func(context.Context) ([]row, error){c.creations, c.idle, c.requests, c.restarts, c.deletion} {
		more, err := measure(ctx)
		if err != nil {
			return err
		}
		c.rows = append(c.rows, report(more)...)
	}
	printTable(os.Stdout, c.rows)
	return c.failed
}

// holdWorkspaces starts kcp with one workspace, in which the others will be.
func holdWorkspaces(ctx context.Context, bin, dir string) (*holder, error) {
	port, err := freePort()
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

// post creates an object, unless there is one.
func (p *process) post(ctx context.Context, connection int, path, body string) error {
	status, answer, err := p.do(ctx, connection, http.MethodPost, path, body)
	if err == nil && status != http.StatusCreated && status != http.StatusConflict {
		err = fmt.Errorf("%s: %d %s", path, status, answer)
	}
	return err
}

// comparison of what holds n workspaces with what holds n namespaces.
type comparison struct {
	holders []*holder
	n       int
	// profiles is the directory of profiles; empty: none.
	profiles string
	rows     []row
	// failed is set by what must hold on any machine.
	failed error
}

// creations creates all, and remembers how things were with the first.
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

// idle compares what there is with all of them and with the first.
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
	// Connections and the work of controllers end a moment after the requests did.
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

// requests of one client in random ones of the hundredth that is active.
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

// restarts tells how long both take to be ready again.
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

// deletion deletes the workspace with all others in it.
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
