package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"
)

const (
	// makers is the number of clients that create tenants concurrently.
	makers = 16
	// definitionsEach is the number of definitions that a cluster installs.
	definitionsEach = 10
)

// many measures the cost of many tenants, on new servers. few is the server with few clusters, for comparison with a cluster among many.
func many(ctx context.Context, bin, dir string, few *process, s scale) ([]row, error) {
	crowded, err := startKCP(ctx, bin, filepath.Join(dir, "kcp"))
	if err != nil {
		return nil, err
	}
	defer crowded.stop()
	vanilla, err := s.baseline(ctx, bin, filepath.Join(dir, "vanilla"))
	if err != nil {
		return nil, err
	}
	defer vanilla.stop()
	rows, err := tenants(ctx, crowded, vanilla, s)
	if err != nil {
		return nil, err
	}
	more, err := definitions(ctx, crowded, vanilla, s)
	if err != nil {
		return nil, err
	}
	rows = append(rows, more...)
	vanilla.stop()
	more, err = crowd(ctx, few, crowded, s)
	return append(rows, more...), err
}

// growth creates n tenants or definitions, and returns the rate, and the resident memory for each in KiB.
func growth(ctx context.Context, p *process, n int, one func(ctx context.Context, client, i int) error) (load, float64, error) {
	before, err := p.settled(ctx)
	if err != nil {
		return load{}, 0, err
	}
	l, err := measured(p, func() (load, error) { return count(ctx, makers, n, one) })
	if err != nil {
		return load{}, 0, fmt.Errorf("%s: %w", p.name, err)
	}
	after, err := p.settled(ctx)
	return l, (after - before) / float64(n) / 1024, err
}

// tenants measures the rate of creation of tenants, and the memory of each.
func tenants(ctx context.Context, kcp, vanilla *process, s scale) ([]row, error) {
	var made [2]load
	var memory [2]float64
	for i, p := range []*process{kcp, vanilla} {
		warm := func(ctx context.Context, c, i int) error { return p.tenant(ctx, fmt.Sprintf("warm-%d", i), c) }
		if _, err := count(ctx, makers, 50, warm); err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		var err error
		made[i], memory[i], err = growth(
			ctx,
			p,
			s.tenants,
			func(ctx context.Context, c, i int) error { return p.tenant(ctx, fmt.Sprintf("tenant-%d", i), c) },
		)
		if err != nil {
			return nil, err
		}
	}
	var bare [2]load
	var bareMemory [2]float64
	for i, p := range []*process{kcp, vanilla} {
		if p.cluster("any") == "" { // a vanilla server has nothing alike
			continue
		}
		var err error
		bare[i], bareMemory[i], err = growth(ctx, p, s.tenants, func(ctx context.Context, c, i int) error {
			return p.logicalCluster(ctx, fmt.Sprintf("unentered-%d", i), c)
		})
		if err != nil {
			return nil, err
		}
	}
	return report([]row{
		throughputRow("create a logical cluster and enter it (vanilla: create a namespace with its default objects)", "1/s", made[0], made[1], 0),
		{What: fmt.Sprintf("resident memory of each of %d of them, server and etcd", s.tenants), Unit: "KiB", Ours: memory[0], Vanilla: memory[1],
			Budget: "≤ 41 KiB", Met: memory[0] <= 41},
		throughputRow("create a logical cluster without entering it", "1/s", bare[0], bare[1], 0),
		{
			What:    fmt.Sprintf("resident memory of each of %d of them, server and etcd", s.tenants),
			Unit:    "KiB",
			Ours:    bareMemory[0],
			Vanilla: bareMemory[1],
			Budget:  "≤ 4 KiB",
			Met:     bareMemory[0] <= 4,
		},
	}), nil
}

// definitions measures the cost of the same ten definitions in many clusters, and the time until they are served.
func definitions(ctx context.Context, kcp, vanilla *process, s scale) ([]row, error) {
	clusters := func(i int) string { return fmt.Sprintf("defined-%d", i) }
	if _, err := count(
		ctx,
		makers,
		s.definitionClusters,
		func(ctx context.Context, c, i int) error { return kcp.tenant(ctx, clusters(i), c) },
	); err != nil {
		return nil, err
	}
	plurals := func(i int) string { return fmt.Sprintf("gadget%ds", i) }
	for i := range definitionsEach { // compile each schema once
		if err := kcp.define(ctx, "warm-0", plurals(i), 0); err != nil {
			return nil, err
		}
	}
	n := s.definitionClusters * definitionsEach
	before, err := kcp.settled(ctx)
	if err != nil {
		return nil, err
	}
	same, err := measured(kcp, func() (load, error) {
		return count(ctx, 4, n, func(ctx context.Context, c, i int) error {
			return kcp.define(ctx, clusters(i/definitionsEach), plurals(i%definitionsEach), c)
		})
	})
	if err != nil {
		return nil, err
	}
	after, err := kcp.settled(ctx)
	if err != nil {
		return nil, err
	}
	memory := (after - before) / float64(n) / 1024
	var fresh [2]load
	for i, p := range []*process{kcp, vanilla} {
		fresh[i], err = measured(p, func() (load, error) {
			return count(ctx, 1, 100, func(ctx context.Context, _, i int) error {
				return p.define(ctx, "warm-1", fmt.Sprintf("novel%ds", i), 0)
			})
		})
		if err != nil {
			return nil, err
		}
	}
	fast := func(l load) bool { return l.p99 <= 200*time.Millisecond }
	first := throughputRow("create a definition with a new schema until it is served, one at a time", "1/s", fresh[0], fresh[1], 0)
	first.Budget, first.Met = "p99 ≤ 200 ms", fast(fresh[0])
	return report([]row{
		first,
		{
			What:     fmt.Sprintf("the same %d definitions in %d logical clusters, 4 clients", definitionsEach, s.definitionClusters),
			Unit:     "1/s",
			Ours:     same.perSecond,
			OursLoad: latencyOf(same),
			Budget:   "p99 ≤ 200 ms",
			Met:      fast(same),
		},
		{What: "resident memory of each of these, server and etcd", Unit: "KiB", Ours: memory, Budget: "≤ 20 KiB", Met: memory <= 20},
	}), nil
}

// crowd compares the latency in one cluster among few and among many, on two servers in turn.
func crowd(ctx context.Context, few, crowded *process, s scale) ([]row, error) {
	for p, n := range map[*process]int{few: s.few, crowded: s.crowd} {
		another := func(ctx context.Context, c, i int) error { return p.logicalCluster(ctx, fmt.Sprintf("crowd-%d", i), c) }
		if _, err := count(ctx, makers, n, another); err != nil {
			return nil, fmt.Errorf("%s among %d: %w", p.name, n, err)
		}
	}
	operations := map[*process][]operation{}
	for _, p := range []*process{few, crowded} {
		if err := p.logicalCluster(ctx, compared, 0); err != nil {
			return nil, err
		}
		o, err := p.configMaps(ctx, compared)
		if err != nil {
			return nil, err
		}
		operations[p] = o.operations()[:3]
	}
	var rows []row
	for i, o := range operations[few] {
		what := fmt.Sprintf("%s, 1 client, among %d logical clusters (second column: among %d)", o.name, s.crowd, s.few)
		got, err := alternate(ctx, []*process{crowded, few}, 1, s, what, func(p *process) operation { return operations[p][i] })
		if err != nil {
			return nil, err
		}
		r := throughputRow(what, "1/s", got[0], got[1], 0)
		r.Budget, r.Met = "p50 ≤ 1.1 ×", got[0].p50 <= got[1].p50*11/10
		rows = append(rows, report([]row{r})...)
	}
	return rows, nil
}
