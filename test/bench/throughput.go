package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
)

// operation is one kind of request, for a client and its i-th repetition.
type operation struct {
	name string
	do   func(ctx context.Context, client, i int) error
}

// payload makes an object one KiB large.
var payload = strings.Repeat("x", 1024)

// within is the least ratio to vanilla that requests within one cluster must have.
const within = 0.9

// throughput measures requests within one cluster.
func throughput(ctx context.Context, kcp, vanilla *process, s scale) ([]row, error) {
	const cluster = "throughput"
	if err := kcp.tenant(ctx, cluster); err != nil {
		return nil, err
	}
	pairs := map[*process][]operation{}
	for _, p := range []*process{kcp, vanilla} {
		if err := p.define(ctx, cluster, "widgets"); err != nil {
			return nil, err
		}
		kube, err := p.kube(cluster)
		if err != nil {
			return nil, err
		}
		custom, err := p.dynamic(cluster)
		if err != nil {
			return nil, err
		}
		pairs[p] = append(configMapOperations(kube), customOperations(custom)...)
	}
	var rows []row
	for i := range pairs[kcp] {
		for _, clients := range []int{1, 32} {
			loads := map[*process][]load{}
			for range s.rounds {
				for _, p := range []*process{kcp, vanilla} {
					l, err := drive(ctx, clients, time.Duration(s.seconds)*time.Second, pairs[p][i].do)
					if err != nil {
						return nil, fmt.Errorf("%s: %s: %w", p.name, pairs[p][i].name, err)
					}
					loads[p] = append(loads[p], l)
				}
			}
			ours, theirs := median(loads[kcp]), median(loads[vanilla])
			what := fmt.Sprintf("%s, %d clients", pairs[kcp][i].name, clients)
			rows = append(rows,
				row{What: what, Unit: "1/s", Ours: ours.perSecond, Vanilla: theirs.perSecond, Budget: "≥ 0.9 ×", Met: ours.perSecond >= within*theirs.perSecond},
				row{What: what + ", p50", Unit: "ms", Ours: milliseconds(ours.p50), Vanilla: milliseconds(theirs.p50)},
				row{What: what + ", p99", Unit: "ms", Ours: milliseconds(ours.p99), Vanilla: milliseconds(theirs.p99)})
		}
	}
	return rows, nil
}

// start makes names short.
var start = time.Now().UnixNano()

func name(kind string, client, i int) string { return fmt.Sprintf("%s-%d-%d", kind, client, i) }

func unique(client, i int) string {
	return fmt.Sprintf("c%d-%d-%d", time.Now().UnixNano()-start, client, i)
}

func configMapOperations(kube kubernetes.Interface) []operation {
	client := kube.CoreV1().ConfigMaps("default")
	object := func(name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"payload": payload}}
	}
	first := func(ctx context.Context, c int) error {
		_, err := client.Create(ctx, object(name("fixed", c, 0)), metav1.CreateOptions{})
		return ignoreExists(err)
	}
	return []operation{
		{"create a ConfigMap of 1 KiB", func(ctx context.Context, c, i int) error {
			_, err := client.Create(ctx, object(unique(c, i)), metav1.CreateOptions{})
			return err
		}},
		{"get a ConfigMap", func(ctx context.Context, c, i int) error {
			if i == 0 {
				if err := first(ctx, c); err != nil {
					return err
				}
			}
			_, err := client.Get(ctx, name("fixed", c, 0), metav1.GetOptions{})
			return err
		}},
		{"update a ConfigMap", func(ctx context.Context, c, i int) error {
			if i == 0 {
				if err := first(ctx, c); err != nil {
					return err
				}
			}
			changed := object(name("fixed", c, 0))
			changed.Data["i"] = unique(c, i)
			_, err := client.Update(ctx, changed, metav1.UpdateOptions{})
			return err
		}},
		{"list 100 ConfigMaps", func(ctx context.Context, _, _ int) error {
			_, err := client.List(ctx, metav1.ListOptions{Limit: 100})
			return err
		}},
	}
}

func customOperations(custom dynamic.Interface) []operation {
	client := custom.Resource(widgets).Namespace("default")
	object := func(name string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "bench.example.com/v1", "kind": "Kwidget", "metadata": map[string]any{"name": name}, "spec": map[string]any{"field1": payload},
		}}
	}
	first := func(ctx context.Context, c int) error {
		_, err := client.Create(ctx, object(name("fixed", c, 0)), metav1.CreateOptions{})
		return ignoreExists(err)
	}
	return []operation{
		{"create a custom resource of 1 KiB", func(ctx context.Context, c, i int) error {
			_, err := client.Create(ctx, object(unique(c, i)), metav1.CreateOptions{})
			return err
		}},
		{"get a custom resource", func(ctx context.Context, c, i int) error {
			if i == 0 {
				if err := first(ctx, c); err != nil {
					return err
				}
			}
			_, err := client.Get(ctx, name("fixed", c, 0), metav1.GetOptions{})
			return err
		}},
		{"list 100 custom resources", func(ctx context.Context, _, _ int) error {
			_, err := client.List(ctx, metav1.ListOptions{Limit: 100})
			return err
		}},
	}
}
