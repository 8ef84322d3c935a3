package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// events measures how soon watchers hear of a change.
func events(ctx context.Context, kcp, vanilla *process, s scale) ([]row, error) {
	const watchers = 100
	got := map[*process]load{}
	for _, p := range []*process{kcp, vanilla} {
		l, err := deliver(ctx, p, watchers, 20*s.seconds)
		if err != nil {
			return nil, fmt.Errorf("%s: watch: %w", p.name, err)
		}
		got[p] = l
	}
	return []row{
		{What: fmt.Sprintf("an event to each of %d watchers, one write after the other", watchers), Unit: "1/s", Ours: got[kcp].perSecond, Vanilla: got[vanilla].perSecond},
		{What: "from the write to the event, p50", Unit: "ms", Ours: milliseconds(got[kcp].p50), Vanilla: milliseconds(got[vanilla].p50)},
		{What: "from the write to the event, p99", Unit: "ms", Ours: milliseconds(got[kcp].p99), Vanilla: milliseconds(got[vanilla].p99)},
	}, nil
}

// deliver writes, and waits until every watcher has the event, so many times.
func deliver(ctx context.Context, p *process, watchers, writes int) (load, error) {
	kube, err := p.kube("throughput")
	if err != nil {
		return load{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client := kube.CoreV1().Secrets("default")
	made, err := client.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "watched"}}, metav1.CreateOptions{})
	if err != nil {
		return load{}, err
	}
	var mu sync.Mutex
	var took []time.Duration
	var written time.Time
	var round sync.WaitGroup
	for range watchers {
		w, err := client.Watch(ctx, metav1.ListOptions{ResourceVersion: made.ResourceVersion, FieldSelector: "metadata.name=watched"})
		if err != nil {
			return load{}, err
		}
		go func() {
			for event := range w.ResultChan() {
				if event.Type != watch.Modified {
					continue
				}
				mu.Lock()
				took = append(took, time.Since(written))
				mu.Unlock()
				round.Done()
			}
		}()
	}
	begin := time.Now()
	for i := range writes {
		round.Add(watchers)
		made.StringData = map[string]string{"i": fmt.Sprint(i)}
		mu.Lock()
		written = time.Now()
		mu.Unlock()
		if made, err = client.Update(ctx, made, metav1.UpdateOptions{}); err != nil {
			return load{}, err
		}
		round.Wait()
	}
	elapsed := time.Since(begin)
	mu.Lock()
	defer mu.Unlock()
	return summarize(took, elapsed), nil
}
