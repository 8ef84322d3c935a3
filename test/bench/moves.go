package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

const (
	// writesPerSecond is the rate of writes in a logical cluster that moves.
	writesPerSecond = 50
	// moving is the workspace that moves.
	moving = "moving"
)

// moves measures the move of a logical cluster with many objects while a client writes in it.
func (r *shardedRun) moves(ctx context.Context) error {
	if _, err := r.createUntilReady(ctx, r.first, busy, 0, kcptest.Workspace(moving, "", "")); err != nil {
		return err
	}
	at := path("root:"+organization+":"+moving) + "/api/v1/namespaces/default/configmaps"
	_, err := count(ctx, makers, r.scale.moved, func(ctx context.Context, c, i int) error {
		return r.first.post(ctx, c, at, configMap(fmt.Sprintf("settled-%d", i)))
	})
	if err != nil {
		return err
	}
	w := &writer{server: r.first, path: at}
	writing, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.run(writing) }()
	d, err := took(func() error { return r.move(ctx, r.installation.Shards[2].Name) })
	if err == nil {
		err = w.proceed(ctx)
	}
	stop()
	if failed := <-ended; err == nil {
		err = failed
	}
	if err != nil {
		return err
	}
	lost, err := w.lost(ctx)
	r.add(
		limit(
			fmt.Sprintf("move of a cluster with %d objects under %d writes a second: longest time without service", r.scale.moved, writesPerSecond),
			w.gap(),
			time.Second,
		),
		row{
			What:   fmt.Sprintf("acknowledged writes that are lost, of %d", w.acknowledged.Load()),
			Ours:   float64(lost),
			Budget: "0",
			Met:    lost == 0,
		},
		row{What: "the whole move", Unit: "s", Ours: d.Seconds()},
	)
	return err
}

// move moves the logical cluster to a shard, and returns when it is there.
func (r *shardedRun) move(ctx context.Context, shard string) error {
	cluster, err := r.clusterOf(ctx, "root:"+organization, moving)
	if err != nil {
		return err
	}
	migrations := path("root") + "/apis/migration.kcp.io/v1alpha1/logicalclustermigrations"
	_, err = r.admin.send(ctx, 0, http.MethodPost, migrations, map[string]any{
		"apiVersion": "migration.kcp.io/v1alpha1", "kind": "LogicalClusterMigration", "metadata": map[string]any{"name": moving},
		"spec": map[string]any{"logicalCluster": cluster, "destinationShard": shard},
	})
	if err != nil {
		return err
	}
	var answer []byte
	err = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 5*time.Minute, true, func(ctx context.Context) (bool, error) {
		answer, err = r.admin.send(ctx, 0, http.MethodGet, migrations+"/"+moving, nil)
		if strings.Contains(string(answer), `"phase":"Failed"`) {
			return false, fmt.Errorf("the migration has failed: %s", answer)
		}
		return strings.Contains(string(answer), `"phase":"Completed"`), err
	})
	if err != nil {
		err = fmt.Errorf("moving the workspace: %w: %s", err, answer)
	}
	return err
}

func configMap(name string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"payload":%q}}`, name, payload)
}

// writer creates objects at a rate. While the server refuses them as unavailable, it repeats at the same rate.
type writer struct {
	server *process
	path   string
	// acknowledged is the number of objects that were created, in order.
	acknowledged atomic.Int64
	longest      atomic.Int64
}

func (w *writer) run(ctx context.Context) error {
	ticker := time.NewTicker(time.Second / writesPerSecond)
	defer ticker.Stop()
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		code, answer, err := w.server.do(context.WithoutCancel(ctx), 0, http.MethodPost, w.path, configMap(w.name(w.acknowledged.Load())))
		switch {
		case err != nil:
			return err
		case code == http.StatusServiceUnavailable || code == http.StatusTooManyRequests:
			continue
		case code != http.StatusCreated:
			return fmt.Errorf("writing while the cluster moves: %d %s", code, answer)
		}
		w.acknowledged.Add(1)
		w.longest.Store(max(w.longest.Load(), int64(time.Since(last))))
		last = time.Now()
	}
}

func (w *writer) name(i int64) string { return fmt.Sprintf("written-%d", i) }

func (w *writer) gap() time.Duration { return time.Duration(w.longest.Load()) }

// proceed returns after another acknowledged write.
func (w *writer) proceed(ctx context.Context) error {
	before := w.acknowledged.Load()
	return wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return w.acknowledged.Load() > before, nil
	})
}

// lost returns the number of acknowledged objects that do not exist.
func (w *writer) lost(ctx context.Context) (lost int, err error) {
	for i := range w.acknowledged.Load() {
		code, answer, err := w.server.do(ctx, 0, http.MethodGet, w.path+"/"+w.name(i), "")
		switch {
		case err != nil:
			return lost, err
		case code == http.StatusNotFound:
			lost++
		case code != http.StatusOK:
			return lost, fmt.Errorf("reading %s: %d %s", w.name(i), code, answer)
		}
	}
	return lost, nil
}
