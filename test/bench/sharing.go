package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	// apis is the number of APIs. Every consumer binds the first one, some bind all.
	apis = 10
	// bindAllIn is the maximum number of consumers that bind all of them.
	bindAllIn = 1000
	// sampled is the number of bindings that are timed sequentially.
	sampled = 50
)

// consumer returns the name of a logical cluster that binds the export, or of a namespace of the vanilla server.
func consumer(i int) string { return fmt.Sprintf("consumer-%d", i) }

// api returns the name of an export and of its resource.
func api(i int) string {
	if i == 0 {
		return widgets.Resource
	}
	return fmt.Sprintf("widget%ds", i)
}

// sharing measures an API that n logical clusters bind.
type sharing struct {
	n            int
	kcp, vanilla *process
	profiles     string
	rows         []row
}

// runSharing measures the cost of sharing an API with n logical clusters and of watching their objects, beside a vanilla server with as
// many namespaces.
func runSharing(ctx context.Context, n int, profiles string) error {
	bin, dir, err := prepare()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s := &sharing{n: n, profiles: profiles}
	if s.kcp, err = startKCP(ctx, bin, filepath.Join(dir, "kcp")); err != nil {
		return err
	}
	defer s.kcp.stop()
	if s.vanilla, err = startVanilla(ctx, bin, filepath.Join(dir, "vanilla")); err != nil {
		return err
	}
	defer s.vanilla.stop()
	defer func() { printTable(os.Stdout, s.rows) }() // the available rows, if the rest fails
	for _, measure := range []func(context.Context) error{s.bindOne, s.bindMore, s.follow} {
		if err := measure(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *sharing) add(rows ...row) { s.rows = append(s.rows, report(rows)...) }

// send sends a request that must succeed. Existing objects are not an error.
func (p *process) send(ctx context.Context, connection int, method, path string, body any) ([]byte, error) {
	var content []byte
	if body != nil {
		var err error
		if content, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	status, answer, err := p.do(ctx, connection, method, path, string(content))
	if err == nil && status >= 300 && status != http.StatusConflict {
		err = fmt.Errorf("%s %s: %d %s", method, path, status, answer)
	}
	return answer, err
}

// export creates the provider, and its exports.
func (p *process) export(ctx context.Context) error {
	if err := p.logicalCluster(ctx, "provider", 0); ignoreExists(err) != nil {
		return err
	}
	base := "/clusters/provider/apis/apis.kcp.io/"
	for i := range apis {
		crd := definition(api(i)).Object["spec"].(map[string]any)
		version := crd["versions"].([]any)[0].(map[string]any)
		version["schema"] = version["schema"].(map[string]any)["openAPIV3Schema"]
		name := "v1." + api(i) + "." + widgets.Group
		_, err := p.send(ctx, 0, http.MethodPost, base+"v1alpha1/apiresourceschemas", map[string]any{
			"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIResourceSchema", "metadata": map[string]any{"name": name}, "spec": crd,
		})
		if err != nil {
			return err
		}
		_, err = p.send(ctx, 0, http.MethodPost, base+"v1alpha2/apiexports", map[string]any{
			"apiVersion": "apis.kcp.io/v1alpha2",
			"kind":       "APIExport",
			"metadata":   map[string]any{"name": api(i)},
			"spec": map[string]any{
				"resources": []any{
					map[string]any{"group": widgets.Group, "name": api(i), "schema": name, "storage": map[string]any{"crd": map[string]any{}}},
				},
			},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// bind binds an export in a consumer.
func (p *process) bind(ctx context.Context, connection int, name, export string) error {
	_, err := p.send(ctx, connection, http.MethodPost, "/clusters/"+name+"/apis/apis.kcp.io/v1alpha2/apibindings", map[string]any{
		"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": map[string]any{"name": export},
		"spec": map[string]any{"reference": map[string]any{"export": map[string]any{"path": "provider", "name": export}}},
	})
	return err
}

// waitForBound returns when the binding of a consumer is bound.
func (p *process) waitForBound(ctx context.Context, connection int, name, export string) error {
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		answer, err := p.send(ctx, connection, http.MethodGet, "/clusters/"+name+"/apis/apis.kcp.io/v1alpha2/apibindings/"+export, nil)
		if err != nil || strings.Contains(string(answer), `"phase":"Bound"`) {
			return err
		}
	}
	return fmt.Errorf("waiting for %s: has not bound %s after five minutes", name, export)
}

// bindIn binds an export in n consumers concurrently, starting with first, and waits until all are bound.
func (s *sharing) bindIn(ctx context.Context, first, n int, export string) (load, error) {
	return measured(s.kcp, func() (load, error) {
		begin := time.Now()
		_, err := count(ctx, makers, n, func(ctx context.Context, c, i int) error { return s.kcp.bind(ctx, c, consumer(first+i), export) })
		if err == nil {
			_, err = count(ctx, makers, n, func(ctx context.Context, c, i int) error {
				return s.kcp.waitForBound(ctx, c, consumer(first+i), export)
			})
		}
		return load{perSecond: float64(n) / time.Since(begin).Seconds()}, err
	})
}

// bindOne binds the first export in all consumers, and measures a single binding with an increasing number of them.
func (s *sharing) bindOne(ctx context.Context) error {
	if err := s.kcp.export(ctx); err != nil {
		return err
	}
	marks := slices.Compact([]int{0, s.n / 10, s.n / 5, s.n / 2, s.n})
	progress("creating %d logical clusters", s.n)
	_, err := count(ctx, makers, s.n+sampled*len(marks), func(ctx context.Context, c, i int) error {
		return s.kcp.tenant(ctx, consumer(i), c)
	})
	if err != nil {
		return err
	}
	before, err := s.kcp.memory(ctx)
	if err == nil {
		err = s.kcp.heapProfile(ctx, s.profiles, "unbound")
	}
	if err != nil {
		return err
	}
	spare, took := s.n, time.Duration(0)
	for i, bound := range marks {
		if i > 0 {
			progress("binding in %d", bound)
			begin := time.Now()
			if _, err := s.bindIn(ctx, marks[i-1], bound-marks[i-1], api(0)); err != nil {
				return err
			}
			took += time.Since(begin)
		}
		l, err := measured(s.kcp, func() (load, error) {
			return count(ctx, 1, sampled, func(ctx context.Context, c, i int) error {
				if err := s.kcp.bind(ctx, c, consumer(spare+i), api(0)); err != nil {
					return err
				}
				return s.kcp.waitForBound(ctx, c, consumer(spare+i), api(0))
			})
		})
		if err != nil {
			return err
		}
		spare += sampled
		s.add(
			row{
				What:     fmt.Sprintf("bind an API until it is Bound, 1 client, when %d have bound it", bound),
				Unit:     "1/s",
				Ours:     l.perSecond,
				OursLoad: latencyOf(l),
			},
		)
	}
	s.add(
		row{
			What: fmt.Sprintf("bind an API in %d logical clusters until all are Bound, %d clients", s.n, makers),
			Unit: "s",
			Ours: took.Seconds(),
		},
	)
	return s.addMemory(ctx, before, spare, fmt.Sprintf("of each of the %d bindings", spare), "bound")
}

// bindMore binds the other exports.
func (s *sharing) bindMore(ctx context.Context) error {
	n := min(s.n, bindAllIn)
	before, err := s.kcp.memory(ctx)
	if err != nil {
		return err
	}
	progress("binding %d APIs more in %d", apis-1, n)
	for i := 1; i < apis; i++ {
		l, err := s.bindIn(ctx, 0, n, api(i))
		if err != nil {
			return err
		}
		if i == apis-1 {
			s.add(
				row{
					What:     fmt.Sprintf("bind a tenth API in %d logical clusters, %d clients", n, makers),
					Unit:     "1/s",
					Ours:     l.perSecond,
					OursLoad: latencyOf(l),
				},
			)
		}
	}
	return s.addMemory(
		ctx,
		before,
		n*(apis-1),
		fmt.Sprintf("of each of %d further bindings, the second to tenth API of %d logical clusters", n*(apis-1), n),
		"tenth",
	)
}

// addMemory adds rows with the increase of memory, for each of n.
func (s *sharing) addMemory(ctx context.Context, before memory, n int, of, profile string) error {
	now, err := s.kcp.memory(ctx)
	if err != nil {
		return err
	}
	heap, resident := (now.heap-before.heap)/float64(n)/1024, (now.resident-before.resident)/float64(n)/1024
	s.add(row{What: "heap " + of + ", server and etcd", Unit: "KiB", Ours: heap, Budget: "≤ 20 KiB", Met: heap <= 20},
		row{What: "resident memory " + of + ", server and etcd", Unit: "KiB", Ours: resident})
	return s.kcp.heapProfile(ctx, s.profiles, profile)
}
