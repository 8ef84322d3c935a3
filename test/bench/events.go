package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

const watchers = 100

// audience is the watchers of a namespace.
type audience struct {
	server *process
	kube   *kubernetes.Clientset
	// namespace is not that of another audience, with which it may share a cluster.
	namespace string
	// written objects, by the number of the writer
	objects []*corev1.ConfigMap

	mu      sync.Mutex
	written time.Time // of the last write, while writes are sequential
	took    []time.Duration
	heard   atomic.Int64
	broken  atomic.Bool
}

// writers is the number of concurrent writers when the rate is measured.
const writers = 4

// watchNamespace starts all watches.
func watchNamespace(ctx context.Context, p *process) (*audience, error) {
	a := &audience{server: p, namespace: "watched-" + p.name}
	var err error
	if a.kube, err = p.kube(busy, 0); err != nil {
		return nil, err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: a.namespace}}
	_, err = a.kube.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	if ignoreExists(err) != nil {
		return nil, err
	}
	for i := range writers {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fixed(i)}, Data: map[string]string{"payload": payload}}
		made, err := a.kube.CoreV1().ConfigMaps(a.namespace).Create(ctx, object, metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		a.objects = append(a.objects, made)
	}
	for i := range watchers {
		client, err := p.kube(busy, i)
		if err != nil {
			return nil, err
		}
		w, err := client.CoreV1().ConfigMaps(a.namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: a.objects[writers-1].ResourceVersion})
		if err != nil {
			return nil, err
		}
		go a.listen(ctx, w)
	}
	return a, nil
}

func (a *audience) listen(ctx context.Context, w watch.Interface) {
	defer w.Stop()
	for event := range w.ResultChan() {
		if event.Type != watch.Modified {
			continue // the CA certificates in a new namespace
		}
		a.mu.Lock()
		a.took = append(a.took, time.Since(a.written))
		a.mu.Unlock()
		a.heard.Add(1)
	}
	if ctx.Err() == nil {
		a.broken.Store(true)
	}
}

// write updates the object of a writer.
func (a *audience) write(ctx context.Context, writer, i int) error {
	changed := a.objects[writer].DeepCopy()
	changed.ResourceVersion, changed.Data["i"] = "", fresh(writer, i)
	_, err := a.kube.CoreV1().ConfigMaps(a.namespace).Update(ctx, changed, metav1.UpdateOptions{})
	return err
}

// wait returns when every watcher has received that many events.
func (a *audience) wait(ctx context.Context, writes int64) error {
	for deadline := time.Now().Add(time.Minute); a.heard.Load() < writes*watchers; time.Sleep(100 * time.Microsecond) {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case a.broken.Load():
			return fmt.Errorf("a watch has ended")
		case time.Now().After(deadline):
			return fmt.Errorf("after a minute the watchers have %d events, want %d", a.heard.Load(), writes*watchers)
		}
	}
	return nil
}

// latency writes sequentially for a duration. Each write starts when every watcher has received the one before.
func (a *audience) latency(ctx context.Context, duration time.Duration) (load, error) {
	a.heard.Store(0)
	a.took = nil
	begin, writes := time.Now(), int64(0)
	for ; time.Since(begin) < duration; writes++ {
		a.mu.Lock()
		a.written = time.Now()
		a.mu.Unlock()
		if err := a.write(ctx, 0, int(writes)); err != nil {
			return load{}, err
		}
		if err := a.wait(ctx, writes+1); err != nil {
			return load{}, err
		}
	}
	return summarize(slices.Clone(a.took), time.Since(begin)), nil
}

// rate lets all writers write as fast as possible for a duration, and waits until every watcher has received all events.
func (a *audience) rate(ctx context.Context, duration time.Duration) (load, error) {
	a.heard.Store(0)
	var writes atomic.Int64
	begin := time.Now()
	_, err := drive(ctx, writers, duration, func(ctx context.Context, writer, i int) error {
		writes.Add(1)
		return a.write(ctx, writer, i)
	})
	if err == nil {
		err = a.wait(ctx, writes.Load())
	}
	return load{perSecond: float64(writes.Load()*watchers) / time.Since(begin).Seconds()}, err
}

// events measures the latency and the rate of events at watchers of servers, each beside the same baseline. Rows of further servers name
// them, and have no budget.
func events(ctx context.Context, servers []*process, baseline *process, s scale) ([]row, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var audiences []*audience
	for _, p := range append(servers, baseline) {
		a, err := watchNamespace(ctx, p)
		if err != nil {
			return nil, fmt.Errorf("%s: watch: %w", p.name, err)
		}
		audiences = append(audiences, a)
	}
	var rows []row
	for _, measure := range []struct {
		what string
		do   func(*audience, context.Context, time.Duration) (load, error)
	}{
		{fmt.Sprintf("events to %d watchers of a namespace, one write after the other", watchers), (*audience).latency},
		{fmt.Sprintf("events to %d watchers of a namespace, %d writers", watchers, writers), (*audience).rate},
	} {
		if s.only != nil && !s.only.MatchString(measure.what) {
			continue
		}
		loads := make([][]load, len(audiences))
		for range s.rounds {
			for i, a := range audiences {
				l, err := measured(a.server, func() (load, error) { return measure.do(a, ctx, s.slice) })
				if err != nil {
					return nil, fmt.Errorf("%s: %s: %w", a.server.name, measure.what, err)
				}
				loads[i] = append(loads[i], l)
			}
		}
		for i, p := range servers {
			what, budget := measure.what, within
			if i > 0 {
				what, budget = what+", at "+p.name, 0
			}
			rows = append(rows, report([]row{throughputRow(what, "1/s", median(loads[i]), median(loads[len(servers)]), budget)})...)
		}
	}
	return rows, nil
}
