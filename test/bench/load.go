package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// load is the result of concurrent clients.
type load struct {
	// n is the number of operations.
	n         int
	perSecond float64
	p50, p99  time.Duration
	// cpu is the processor time of the server and its etcd for one request, in user and kernel mode.
	cpu time.Duration
	// hop is the processor time of what forwards one request to the server.
	hop time.Duration
}

// drive calls operation from concurrent clients for a duration. The first error stops it.
func drive(
	ctx context.Context,
	clients int,
	duration time.Duration,
	operation func(ctx context.Context, client, i int) error,
) (load, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var group sync.WaitGroup
	var once sync.Once
	var failed error
	took := make([][]time.Duration, clients)
	begin := time.Now()
	for client := range clients {
		group.Go(func() {
			for i := 0; time.Since(begin) < duration && ctx.Err() == nil; i++ {
				one := time.Now()
				if err := operation(ctx, client, i); err != nil {
					once.Do(func() { failed = err })
					cancel()
					return
				}
				took[client] = append(took[client], time.Since(one))
			}
		})
	}
	group.Wait()
	return summarize(slices.Concat(took...), time.Since(begin)), failed
}

// count calls operation n times from concurrent clients. The first error stops it.
func count(ctx context.Context, clients, n int, operation func(ctx context.Context, client, i int) error) (load, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var next atomic.Int64
	var group sync.WaitGroup
	var once sync.Once
	var failed error
	took := make([][]time.Duration, clients)
	begin := time.Now()
	for client := range clients {
		group.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				one := time.Now()
				if err := operation(ctx, client, i); err != nil {
					once.Do(func() { failed = fmt.Errorf("request %d: %w", i, err) })
					cancel()
					return
				}
				took[client] = append(took[client], time.Since(one))
			}
		})
	}
	group.Wait()
	return summarize(slices.Concat(took...), time.Since(begin)), failed
}

func summarize(all []time.Duration, elapsed time.Duration) load {
	if len(all) == 0 {
		return load{}
	}
	slices.Sort(all)
	return load{n: len(all), perSecond: float64(len(all)) / elapsed.Seconds(), p50: all[len(all)/2], p99: all[len(all)*99/100]}
}

// measured adds the processor time of the server for each of the requests.
func measured(p *process, do func() (load, error)) (load, error) {
	before, hop, begin := p.cpu(), cpuOf(p.hops), time.Now()
	l, err := do()
	if requests := l.perSecond * time.Since(begin).Seconds(); requests > 0 {
		l.cpu = time.Duration(float64(p.cpu()-before) / requests)
		l.hop = time.Duration(float64(cpuOf(p.hops)-hop) / requests)
	}
	return l, err
}

// median returns the median of each figure of some loads.
func median(loads []load) load {
	figure := func(get func(load) float64) float64 {
		var values []float64
		for _, l := range loads {
			values = append(values, get(l))
		}
		return middle(values)
	}
	return load{
		perSecond: figure(func(l load) float64 { return l.perSecond }),
		p50:       time.Duration(figure(func(l load) float64 { return float64(l.p50) })),
		p99:       time.Duration(figure(func(l load) float64 { return float64(l.p99) })),
		cpu:       time.Duration(figure(func(l load) float64 { return float64(l.cpu) })),
		hop:       time.Duration(figure(func(l load) float64 { return float64(l.hop) })),
	}
}

func middle(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
