package main

import (
	"context"
	"fmt"
	"time"
)

// operation is a kind of request, with the number of the client and of the repetition.
type operation struct {
	name string
	do   func(ctx context.Context, client, i int) error
}

const (
	// within is the minimum ratio to vanilla for requests within one cluster.
	within = 0.9
	// busy is the cluster of the request loads.
	busy = "busy"
	// compared is the cluster whose latency is compared between few and many clusters.
	compared = "compared"
	// listed is a namespace with a hundred objects for lists. They do not change.
	listed      = "listed"
	listedCount = 100
)

// throughput measures requests within one cluster.
func throughput(ctx context.Context, kcp, vanilla *process, s scale) ([]row, error) {
	servers := []*process{kcp, vanilla}
	operations := map[*process][]operation{}
	for _, p := range servers {
		var err error
		if operations[p], err = p.operations(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
	}
	var rows []row
	for i, o := range operations[kcp] {
		if s.only != nil && !s.only.MatchString(o.name) {
			continue
		}
		for _, clients := range []int{1, 32} {
			what := o.name + ", 1 client"
			if clients > 1 {
				what = fmt.Sprintf("%s, %d clients", o.name, clients)
			}
			got, err := alternate(ctx, servers, clients, s, what, func(p *process) operation { return operations[p][i] })
			if err != nil {
				return nil, err
			}
			rows = append(rows, report([]row{throughputRow(what, "1/s", got[0], got[1], within)})...)
		}
	}
	return rows, nil
}

// alternate runs a load on each of the servers in turn, after a warm-up, and returns the medians.
func alternate(ctx context.Context, servers []*process, clients int, s scale, what string, of func(*process) operation) ([]load, error) {
	loads := make([][]load, len(servers))
	for round := -1; round < s.rounds; round++ {
		for i, p := range servers {
			o, duration := of(p), s.slice
			if round < 0 {
				duration /= 2
			}
			l, err := measured(p, func() (load, error) { return drive(ctx, clients, duration, o.do) })
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", p.name, o.name, err)
			}
			if round >= 0 {
				loads[i] = append(loads[i], l)
			}
		}
	}
	var medians []load
	for i, p := range servers {
		medians = append(medians, median(loads[i]))
		if s.profiles == "" {
			continue
		}
		const duration = 5 * time.Second
		err := p.profile(ctx, s.profiles, what, duration, func() error {
			_, err := drive(ctx, clients, duration, of(p).do)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return medians, nil
}

// operations creates the cluster and returns the loads in the order in which they are measured.
func (p *process) operations(ctx context.Context) ([]operation, error) {
	if err := p.tenant(ctx, busy, 0); err != nil {
		return nil, err
	}
	return p.loads(ctx)
}

// loads prepares objects in the cluster, and returns the loads.
func (p *process) loads(ctx context.Context) ([]operation, error) {
	if err := p.define(ctx, busy, widgets.Resource, 0); err != nil {
		return nil, err
	}
	var all []operation
	for _, prepare := range []func(context.Context, string) (objects, error){p.configMaps, p.customResources} {
		o, err := prepare(ctx, busy)
		if err != nil {
			return nil, err
		}
		all = append(all, o.operations()...)
	}
	return all, nil
}
