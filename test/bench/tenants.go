package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func ignoreExists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// namespace makes a namespace with the service account and the certificates that a controller manager puts into it.
func (p *process) namespace(ctx context.Context, name string) error {
	kube, err := p.kube("")
	if err != nil {
		return err
	}
	meta := metav1.ObjectMeta{Name: name}
	if _, err := kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: meta}, metav1.CreateOptions{}); err != nil {
		return err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := kube.CoreV1().ServiceAccounts(name).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return err
	}
	ca := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kube-root-ca.crt"}, Data: map[string]string{"ca.crt": payload}}
	_, err = kube.CoreV1().ConfigMaps(name).Create(ctx, ca, metav1.CreateOptions{})
	return err
}

// tenants measures how fast tenants are made, and what each costs in memory.
func tenants(ctx context.Context, kcp, vanilla *process, s scale) ([]row, error) {
	made, memory := map[*process]load{}, map[*process]float64{}
	for _, p := range []*process{kcp, vanilla} {
		if _, err := count(ctx, 16, 50, func(ctx context.Context, i int) error { return p.tenant(ctx, fmt.Sprintf("warm-%d", i)) }); err != nil {
			return nil, fmt.Errorf("%s: tenants: %w", p.name, err)
		}
		before := p.resident()
		l, err := count(ctx, 16, s.tenants, func(ctx context.Context, i int) error { return p.tenant(ctx, fmt.Sprintf("tenant-%d", i)) })
		if err != nil {
			return nil, fmt.Errorf("%s: tenants: %w", p.name, err)
		}
		made[p] = l
		time.Sleep(2 * time.Second)
		memory[p] = (p.resident() - before) / float64(s.tenants) / 1024
	}
	return []row{
		{What: "make a logical cluster and enter it; a namespace with its default objects", Unit: "1/s", Ours: made[kcp].perSecond, Vanilla: made[vanilla].perSecond},
		{What: fmt.Sprintf("resident memory of each of %d, server and etcd", s.tenants), Unit: "KiB", Ours: memory[kcp], Vanilla: memory[vanilla],
			Budget: "≤ 41 KiB", Met: memory[kcp] <= 41},
	}, nil
}

// crowd measures the latency in one cluster among few and among many.
func crowd(ctx context.Context, kcp, vanilla *process, s scale) ([]row, error) {
	kube, err := kcp.kube("throughput")
	if err != nil {
		return nil, err
	}
	operations := configMapOperations(kube)[:3]
	measure := func() ([]load, error) {
		var loads []load
		for _, o := range operations {
			var rounds []load
			for range s.rounds {
				l, err := drive(ctx, 1, time.Duration(s.seconds)*time.Second, o.do)
				if err != nil {
					return nil, err
				}
				rounds = append(rounds, l)
			}
			loads = append(loads, median(rounds))
		}
		return loads, nil
	}
	few, err := measure()
	if err != nil {
		return nil, err
	}
	if _, err := count(ctx, 16, s.crowd, func(ctx context.Context, i int) error { return kcp.logicalCluster(ctx, fmt.Sprintf("crowd-%d", i)) }); err != nil {
		return nil, err
	}
	time.Sleep(10 * time.Second) // until the controllers have seen them all
	many, err := measure()
	if err != nil {
		return nil, err
	}
	var rows []row
	for i, o := range operations {
		rows = append(rows, row{
			What: fmt.Sprintf("%s among %d logical clusters more (vanilla column: before), p50", o.name, s.crowd), Unit: "ms",
			Ours: milliseconds(many[i].p50), Vanilla: milliseconds(few[i].p50), Budget: "≤ 1.1 ×", Met: float64(many[i].p50) <= 1.1*float64(few[i].p50),
		})
	}
	return rows, nil
}

// definitions measures what the same ten definitions cost in many clusters, and how soon they are served.
func definitions(ctx context.Context, kcp, vanilla *process, s scale) ([]row, error) {
	const each = 10
	clusters := func(i int) string { return fmt.Sprintf("defined-%d", i) }
	if _, err := count(ctx, 16, s.definitionClusters, func(ctx context.Context, i int) error { return kcp.tenant(ctx, clusters(i)) }); err != nil {
		return nil, err
	}
	plurals := func(i int) string { return fmt.Sprintf("gadget%ds", i) }
	for i := range each { // compiles each once
		for _, p := range []*process{kcp, vanilla} {
			if err := p.define(ctx, "throughput", plurals(i)); err != nil {
				return nil, err
			}
		}
	}
	before := kcp.resident()
	soon, err := count(ctx, 8, s.definitionClusters*each, func(ctx context.Context, i int) error {
		return kcp.define(ctx, clusters(i/each), plurals(i%each))
	})
	if err != nil {
		return nil, err
	}
	time.Sleep(2 * time.Second)
	memory := (kcp.resident() - before) / float64(s.definitionClusters*each) / 1024
	calm, err := count(ctx, 1, 20, func(ctx context.Context, i int) error {
		return kcp.define(ctx, clusters(i%s.definitionClusters), fmt.Sprintf("calm%ds", i))
	})
	if err != nil {
		return nil, err
	}
	theirs, err := count(ctx, 1, 20, func(ctx context.Context, i int) error { return vanilla.define(ctx, "", fmt.Sprintf("calm%ds", i)) })
	if err != nil {
		return nil, err
	}
	return []row{
		{What: "a new definition until its resource is served, p50", Unit: "ms", Ours: milliseconds(calm.p50), Vanilla: milliseconds(theirs.p50), Budget: "≤ 200 ms", Met: calm.p50 <= 200*time.Millisecond},
		{What: fmt.Sprintf("the same 10 definitions in %d logical clusters", s.definitionClusters), Unit: "1/s", Ours: soon.perSecond},
		{What: "resident memory of each of them, server and etcd", Unit: "KiB", Ours: memory, Budget: "≤ 20 KiB", Met: memory <= 20},
	}, nil
}
