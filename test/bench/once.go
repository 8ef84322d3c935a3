package main

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"time"
)

// measureOnce measures figures that do not depend on the number of workspaces.
func (r *workspacesRun) measureOnce(ctx context.Context, n int) error {
	few := min(n, 10_000)
	if err := r.kcp.quiet(ctx); err != nil {
		return err
	}
	part := fmt.Sprintf("-%d", time.Now().Unix()) // makes names unique after an interruption
	namespaces, err := r.namespaces(ctx, few)
	if err != nil {
		return err
	}
	flat, deleted, err := r.createAndDelete(ctx, few, "doomed"+part)
	if err != nil {
		return err
	}
	deep, err := r.createDeep(ctx, few/10, part)
	if err != nil {
		return err
	}
	paced := "paced" + part
	if err := r.create(ctx, 0, "root", paced); err != nil {
		return err
	}
	steady, err := r.pace(ctx, "root:"+paced, 5*pacedRate)
	if err != nil {
		return err
	}
	entered, each, err := r.enter(ctx, min(n, mostEntered))
	if err != nil {
		return err
	}
	what := fmt.Sprintf("create %d workspaces in one, %d clients (second column: vanilla's namespaces)", few, creators)
	rate := func(what string, c load) row {
		return row{What: what, Unit: "1/s", Ours: c.perSecond, OursLoad: latencyOf(c)}
	}
	atRate := rate(fmt.Sprintf("create workspaces, %d a second", pacedRate), steady)
	atRate.Budget, atRate.Met = "p99 ≤ 20 ms", steady.p99 <= 20*time.Millisecond
	r.Rows = []row{
		throughputRow(what, "1/s", flat, namespaces, 1),
		rate(fmt.Sprintf("create %d workspaces at depth %d, %d clients", few/10, depth, creators), deep),
		atRate,
		{What: fmt.Sprintf("delete a workspace with %d below it", few), Unit: "s", Ours: deleted, Budget: "≤ 30 s", Met: deleted <= 30},
		rate(fmt.Sprintf("enter %d workspaces for the first time, %d clients", min(n, mostEntered), creators), entered),
		{What: "resident memory that each of these adds, server and etcd", Unit: "KiB", Ours: each, Budget: "≤ 41 KiB", Met: each <= 41},
	}
	return nil
}

// namespaces creates n namespaces of a vanilla server.
func (r *workspacesRun) namespaces(ctx context.Context, n int) (load, error) {
	vanilla, err := startVanilla(ctx, r.bin, filepath.Join(r.directory, "vanilla"))
	if err != nil {
		return load{}, err
	}
	defer vanilla.stop()
	progress("creating %d namespaces of a vanilla server", n)
	return count(ctx, creators, n, func(ctx context.Context, c, i int) error {
		body := fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"w%d"}}`, i)
		status, answer, err := vanilla.do(ctx, c, http.MethodPost, "/api/v1/namespaces", body)
		if err == nil && status != http.StatusCreated && status != http.StatusConflict {
			err = fmt.Errorf("namespace: %d %s", status, answer)
		}
		return err
	})
}

// createAndDelete creates n workspaces in one, and deletes that one, which takes the seconds that it returns.
func (r *workspacesRun) createAndDelete(ctx context.Context, n int, name string) (created load, deleted float64, err error) {
	if err := r.create(ctx, 0, "root", name); err != nil {
		return created, 0, err
	}
	progress("creating %d workspaces in one", n)
	created, err = count(ctx, creators, n, func(ctx context.Context, c, i int) error {
		return r.create(ctx, c, "root:"+name, fmt.Sprintf("w%d", i))
	})
	if err != nil {
		return created, 0, err
	}
	progress("deleting them")
	begin := time.Now()
	err = r.remove(ctx, "root", name)
	return created, time.Since(begin).Seconds(), err
}

// createDeep creates n workspaces at the end of a chain of workspaces.
func (r *workspacesRun) createDeep(ctx context.Context, n int, part string) (load, error) {
	path := "root"
	for i := range depth {
		name := fmt.Sprintf("deep%d%s", i, part)
		if err := r.create(ctx, 0, path, name); err != nil {
			return load{}, err
		}
		path += ":" + name
	}
	progress("creating workspaces at depth %d, and at the rate of %d a second", depth, pacedRate)
	return count(ctx, creators, n, func(ctx context.Context, c, i int) error { return r.create(ctx, c, path, fmt.Sprintf("w%d", i)) })
}
