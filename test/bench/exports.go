package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

const (
	// exportsEach is the number of exports of a provider.
	exportsEach = 100
	// boundEach is the number of exports that a consumer binds.
	boundEach = 10
)

// elsewhereExport names an export, whose API has a group of its own so that a consumer can bind many.
func elsewhereExport(i int) (provider, name, group string) {
	return fmt.Sprintf("root:%s:provider-%d", organization, i/exportsEach), fmt.Sprintf("export-%d", i), fmt.Sprintf("g%d.example.com", i)
}

// memoryOfExports measures the memory of exports on a shard that neither has them nor binds them, and then of those that are bound there.
func (r *shardedRun) memoryOfExports(ctx context.Context) error {
	n, bound := r.scale.exports, r.scale.exports/10
	third := at(r.installation.Shards[2], kcptest.Masters, r.installation.Shards[2].ID())
	if err := third.ready(ctx); err != nil {
		return err
	}
	for i := 0; i < bound; i += boundEach {
		ws := kcptest.On(r.installation.Shards[2].Name, kcptest.Workspace(consumerOf(i), "", ""))
		if _, err := r.createUntilReady(ctx, r.first, busy, 0, ws); err != nil {
			return err
		}
		consumer := path("root:" + organization + ":" + consumerOf(i))
		if _, err := r.first.send(ctx, 0, http.MethodGet, consumer+"/api/v1/namespaces/default", nil); err != nil {
			return err
		}
	}
	before, err := third.memory(ctx)
	if err == nil {
		err = third.heapProfile(ctx, r.scale.profiles, "exports-before")
	}
	if err != nil {
		return err
	}
	began, err := third.metric(ctx, "kcp_feed_remote_objects")
	if err == nil {
		err = r.exportMany(ctx, n)
	}
	if err == nil {
		err = third.waitForMetric(ctx, "kcp_feed_remote_objects", began+float64(2*n)) // with their schemas
	}
	if err != nil {
		return err
	}
	unbound, err := third.memory(ctx)
	if err == nil {
		err = third.heapProfile(ctx, r.scale.profiles, "exports-unbound")
	}
	if err != nil {
		return err
	}
	r.addMemory(fmt.Sprintf("heap of a shard for each of %d exports elsewhere", n), (unbound.heap-before.heap)/float64(n), 2)
	return r.memoryOfBound(ctx, third, bound)
}

// consumerOf returns the name of the consumer that binds an export.
func consumerOf(i int) string { return fmt.Sprintf("consumer-%d", i/boundEach) }

// memoryOfBound binds exports, and measures the memory of those after the first consumer: what a shard prepares once is not counted.
func (r *shardedRun) memoryOfBound(ctx context.Context, third *process, bound int) error {
	bind := func(from, to int) (memory, error) {
		_, err := count(ctx, makers, to-from, func(ctx context.Context, c, i int) error {
			provider, name, _ := elsewhereExport(from + i)
			return r.first.bindElsewhere(ctx, c, path("root:"+organization+":"+consumerOf(from+i)), provider, name)
		})
		if err != nil {
			return memory{}, err
		}
		return third.memory(ctx)
	}
	prepared, err := bind(0, boundEach)
	if err != nil {
		return err
	}
	now, err := bind(boundEach, bound)
	if err == nil {
		err = third.heapProfile(ctx, r.scale.profiles, "exports-bound")
	}
	n := bound - boundEach
	r.addMemory(fmt.Sprintf("heap of a shard for each of %d exports elsewhere that it binds", n), (now.heap-prepared.heap)/float64(n), 20)
	return err
}

func (r *shardedRun) addMemory(what string, bytes, most float64) {
	each := bytes / 1024
	r.add(row{What: what, Unit: "KiB", Ours: each, Budget: fmt.Sprintf("≤ %.0f KiB", most), Met: each <= most})
}

// exportMany creates n exports on the shard of the organization.
func (r *shardedRun) exportMany(ctx context.Context, n int) error {
	for i := range (n + exportsEach - 1) / exportsEach {
		ws := kcptest.Workspace(fmt.Sprintf("provider-%d", i), "", "")
		if _, err := r.createUntilReady(ctx, r.first, busy, 0, ws); err != nil {
			return err
		}
	}
	_, err := count(ctx, makers, n, func(ctx context.Context, c, i int) error {
		provider, name, group := elsewhereExport(i)
		base, schema := path(provider)+"/apis/apis.kcp.io/", "v1.parts."+group
		err := r.first.create(ctx, c, base+"v1alpha1/apiresourceschemas", map[string]any{
			"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIResourceSchema", "metadata": map[string]any{"name": schema},
			"spec": map[string]any{
				"group": group, "scope": "Namespaced", "versions": []any{partVersion("v1", true)}, "names": partNames,
			},
		})
		if err != nil {
			return err
		}
		return r.first.create(ctx, c, base+"v1alpha2/apiexports", exportOf(name, group, schema))
	})
	return err
}

// create creates an object whose creation is not timed. It repeats requests for which the server had no time.
func (p *process) create(ctx context.Context, connection int, path string, object any) error {
	content, err := json.Marshal(object)
	if err != nil {
		return err
	}
	var last error
	err = wait.PollUntilContextTimeout(ctx, time.Second, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		status, answer, err := p.do(ctx, connection, http.MethodPost, path, string(content))
		last = fmt.Errorf("POST %s: %d %s", path, status, answer)
		switch status {
		case http.StatusCreated, http.StatusConflict: // by a former attempt whose answer came too late
			return true, err
		case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return false, err
		}
		return false, errors.Join(err, last)
	})
	if wait.Interrupted(err) {
		return last
	}
	return err
}

// bindElsewhere binds an export in a consumer, and returns when it is bound.
func (p *process) bindElsewhere(ctx context.Context, connection int, consumer, provider, name string) error {
	bindings := consumer + "/apis/apis.kcp.io/v1alpha2/apibindings"
	if err := p.create(ctx, connection, bindings, bindingOf(name, provider, name)); err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		answer, err := p.send(ctx, connection, http.MethodGet, bindings+"/"+name, nil)
		return phaseBound.Match(answer), err
	})
}

var phaseBound = regexp.MustCompile(`"phase": ?"Bound"`)

// metric returns the sum of the series of a metric.
func (p *process) metric(ctx context.Context, name string) (float64, error) {
	text, err := p.download(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for _, found := range regexp.MustCompile(`(?m)^`+name+`(?:\{.*\})? (.+)$`).FindAllSubmatch(text, -1) {
		value, err := strconv.ParseFloat(string(found[1]), 64)
		if err != nil {
			return 0, fmt.Errorf("%s: metric %s: %w", p.name, name, err)
		}
		sum += value
	}
	return sum, nil
}

// waitForMetric returns when a metric has reached a value.
func (p *process) waitForMetric(ctx context.Context, name string, least float64) error {
	last := 0.0
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 5*time.Minute, true, func(ctx context.Context) (bool, error) {
		var err error
		last, err = p.metric(ctx, name)
		return last >= least, err
	})
	if err != nil {
		err = fmt.Errorf("%s: metric %s is %.0f, want %.0f: %w", p.name, name, last, least, err)
	}
	return err
}
