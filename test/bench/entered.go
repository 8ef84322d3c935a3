package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	// entrants is the number of clients that enter workspaces concurrently.
	entrants = 16
	// enteredFirst is the number of workspaces that are entered before the others are counted, to create everything that exists only once.
	enteredFirst = 200
)

// visited is a server with workspaces, of which more and more are entered.
type visited struct {
	*holder
	before, after memory
	entries       []load
	// updates are those of one client before and right after the entries.
	updates, updatesAfter load
}

// runEntered enters n workspaces that no request has entered before, and prints what that takes. With another kcp, each server enters a
// part of them in turn.
func runEntered(ctx context.Context, n int, s scale) error {
	bin, dir, err := prepareWith("kcp")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	all := make([]*visited, 0, 2)
	for i, from := range []string{bin, s.against} {
		if from == "" {
			continue
		}
		h, err := holdWorkspaces(ctx, from, filepath.Join(dir, fmt.Sprint(i)))
		if err != nil {
			return err
		}
		defer func() { h.stop() }()
		if i > 0 {
			h.name = "other"
		}
		v := &visited{holder: h}
		if err := v.prepare(ctx, n, s); err != nil {
			return fmt.Errorf("%s: %w", h.name, err)
		}
		all = append(all, v)
	}
	for turn := range turns {
		for _, v := range all {
			if err := v.enterPart(ctx, n, turn, s.profiles); err != nil {
				return fmt.Errorf("%s: %w", v.name, err)
			}
		}
	}
	for _, v := range all {
		if v.after, err = v.process.memory(ctx); err != nil {
			return err
		}
		if err := v.heapProfile(ctx, s.profiles, "entered"); err != nil {
			return err
		}
	}
	printTable(os.Stdout, s.named(enteredRows(n, all)))
	return nil
}

// prepare creates the workspaces, enters the first ones, and measures the server before the others are entered.
func (v *visited) prepare(ctx context.Context, n int, s scale) error {
	if _, err := count(ctx, creators, n+enteredFirst, v.create); err != nil {
		return err
	}
	if _, err := count(ctx, entrants, enteredFirst, v.enter); err != nil {
		return err
	}
	body := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"measured"},"data":{"payload":"` + payload + `"}}`
	if err := v.post(ctx, 0, v.configMaps(0), body); err != nil {
		return err
	}
	var err error
	if v.before, err = v.process.memory(ctx); err != nil {
		return err
	}
	if err := v.heapProfile(ctx, s.profiles, "unentered"); err != nil {
		return err
	}
	v.updates, err = v.update(ctx)
	return err
}

// enter sends the first request to a workspace.
func (v *visited) enter(ctx context.Context, client, i int) error {
	path := strings.TrimSuffix(v.configMaps(i), "/configmaps")
	status, answer, err := v.do(ctx, client, http.MethodGet, path, "")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("entering workspace %d: %d %s", i, status, answer)
	}
	return err
}

// enterPart enters one part of the workspaces, and measures updates after the last part.
func (v *visited) enterPart(ctx context.Context, n, turn int, profiles string) error {
	from, to := enteredFirst+turn*n/turns, enteredFirst+(turn+1)*n/turns
	enter := func() error {
		l, err := measured(v.process, func() (load, error) {
			return count(ctx, entrants, to-from, func(ctx context.Context, c, i int) error { return v.enter(ctx, c, from+i) })
		})
		v.entries = append(v.entries, l)
		progress("%s: entered %d workspaces, %.0f a second, %s of processor time each", v.name, to-enteredFirst, l.perSecond, l.cpu)
		return err
	}
	if turn < turns-1 {
		return enter()
	}
	err := error(nil)
	if profiles == "" {
		err = enter()
	} else {
		err = v.profile(ctx, profiles, "enter", profiled, enter)
	}
	if err != nil {
		return err
	}
	v.updatesAfter, err = v.update(ctx)
	return err
}

// update measures updates of one client in one workspace.
func (v *visited) update(ctx context.Context) (load, error) {
	return measured(v.process, func() (load, error) {
		return drive(ctx, 1, 3*time.Second, func(ctx context.Context, _, i int) error {
			body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"measured"},"data":{"payload":"%s %d"}}`, payload, i)
			status, answer, err := v.do(ctx, 0, http.MethodPut, v.configMaps(0)+"/measured", body)
			if err == nil && status != http.StatusOK {
				err = fmt.Errorf("update: %d %s", status, answer)
			}
			return err
		})
	})
}

// enteredRows returns the figures of n entered workspaces.
func enteredRows(n int, all []*visited) []row {
	other := &visited{}
	if len(all) > 1 {
		other = all[1]
	}
	each := func(of func(memory) float64) func(*visited) float64 {
		return func(v *visited) float64 { return (of(v.after) - of(v.before)) / float64(n) / 1024 }
	}
	memoryRow := func(what string, figure func(*visited) float64) row {
		return row{What: what, Unit: "KiB", Ours: figure(all[0]), Vanilla: figure(other)}
	}
	resident := memoryRow("resident memory that each of these adds, server and etcd", each(func(m memory) float64 { return m.resident }))
	resident.Budget, resident.Met = "≤ 15 KiB", resident.Ours <= 15
	entries := func(v *visited) load {
		if len(v.entries) == 0 {
			return load{}
		}
		return median(v.entries)
	}
	return []row{
		throughputRow(fmt.Sprintf("enter %d workspaces for the first time, %d clients", n, entrants), "1/s", entries(all[0]), entries(other), 0),
		resident,
		memoryRow("live heap that each of these adds", each(func(m memory) float64 { return m.heap })),
		throughputRow("update a ConfigMap, 1 client, before these were entered", "1/s", all[0].updates, other.updates, 0),
		throughputRow("update a ConfigMap, 1 client, right after", "1/s", all[0].updatesAfter, other.updatesAfter, 0),
	}
}
