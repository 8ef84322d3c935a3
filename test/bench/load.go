package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// load is what a number of clients did for a time.
type load struct {
	perSecond float64
	p50, p99  time.Duration
}

// drive calls operation from as many clients for so long. The first error ends it.
func drive(ctx context.Context, clients int, duration time.Duration, operation func(ctx context.Context, client, i int) error) (load, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	took := make([][]time.Duration, clients)
	begin := time.Now()
	for client := range clients {
		group.Go(func() {
			for i := 0; time.Since(begin) < duration && ctx.Err() == nil; i++ {
				one := time.Now()
				if err := operation(ctx, client, i); err != nil {
					cancel(err)
					return
				}
				took[client] = append(took[client], time.Since(one))
			}
		})
	}
	group.Wait()
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return load{}, err
	}
	return summarize(slices.Concat(took...), time.Since(begin)), nil
}

// count calls operation n times from as many clients.
func count(ctx context.Context, clients, n int, operation func(ctx context.Context, i int) error) (load, error) {
	var next atomic.Int64
	var mu sync.Mutex
	var all []time.Duration
	var failed error
	var group sync.WaitGroup
	begin := time.Now()
	for range clients {
		group.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				one := time.Now()
				err := operation(ctx, i)
				mu.Lock()
				all = append(all, time.Since(one))
				if err != nil && failed == nil {
					failed = fmt.Errorf("number %d: %w", i, err)
				}
				stop := failed != nil
				mu.Unlock()
				if stop {
					return
				}
			}
		})
	}
	group.Wait()
	return summarize(all, time.Since(begin)), failed
}

func summarize(all []time.Duration, elapsed time.Duration) load {
	if len(all) == 0 {
		return load{}
	}
	slices.Sort(all)
	return load{perSecond: float64(len(all)) / elapsed.Seconds(), p50: all[len(all)/2], p99: all[len(all)*99/100]}
}

// median of some loads, each figure on its own.
func median(loads []load) load {
	var out load
	for _, figure := range []struct {
		get func(load) float64
		set func(float64)
	}{
		{func(l load) float64 { return l.perSecond }, func(f float64) { out.perSecond = f }},
		{func(l load) float64 { return float64(l.p50) }, func(f float64) { out.p50 = time.Duration(f) }},
		{func(l load) float64 { return float64(l.p99) }, func(f float64) { out.p99 = time.Duration(f) }},
	} {
		var values []float64
		for _, l := range loads {
			values = append(values, figure.get(l))
		}
		slices.Sort(values)
		figure.set(values[len(values)/2])
	}
	return out
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
