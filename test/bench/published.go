package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// changes measures how long after a change of an export its new version is served on another shard.
func (r *shardedRun) changes(ctx context.Context) error {
	consumer := kcptest.On(r.installation.Shards[2].Name, kcptest.Workspace("consumer", "", ""))
	if _, err := r.createUntilReady(ctx, r.first, busy, 0, consumer); err != nil {
		return err
	}
	if err := r.first.publish(ctx, 1); err != nil {
		return err
	}
	if err := r.first.bindPublished(ctx); err != nil {
		return err
	}
	var all []time.Duration
	for version := 2; version < 2+4*r.scale.rounds; version++ {
		if err := r.first.publish(ctx, version); err != nil {
			return err
		}
		d, err := took(func() error { return r.first.waitForVersion(ctx, version) })
		if err != nil {
			return err
		}
		all = append(all, d)
	}
	l := summarize(all, time.Second)
	r.add(limit("change of an export until served on another shard: p99", l.p99, 500*time.Millisecond))
	return nil
}

var exportResource = schema.GroupVersionResource{Group: "apis.kcp.io", Version: "v1alpha2", Resource: "apiexports"}

const (
	publishedGroup = "published.example.com"
	consumerPath   = "root:" + organization + ":consumer"
)

// publish creates a schema with a further version, and lets the export refer to it.
func (p *process) publish(ctx context.Context, version int) error {
	base := path(busy) + "/apis/apis.kcp.io/"
	name := fmt.Sprintf("change-%d.parts.%s", version, publishedGroup)
	served := []any{partVersion("v1", true)}
	if version > 1 {
		served = append(served, partVersion(fmt.Sprintf("v%d", version), false))
	}
	spec := map[string]any{"group": publishedGroup, "scope": "Namespaced", "versions": served, "names": partNames}
	if version > 1 {
		spec["conversion"] = map[string]any{"strategy": "None"}
	}
	_, err := p.send(ctx, 0, http.MethodPost, base+"v1alpha1/apiresourceschemas", map[string]any{
		"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIResourceSchema", "metadata": map[string]any{"name": name}, "spec": spec,
	})
	if err != nil {
		return err
	}
	export := exportOf("parts", publishedGroup, name)
	client, err := p.dynamic(busy, 0)
	if err != nil {
		return err
	}
	exports := client.Resource(exportResource)
	if version == 1 {
		_, err = exports.Create(ctx, &unstructured.Unstructured{Object: export}, metav1.CreateOptions{})
		return err
	}
	_, err = exports.Apply(ctx, "parts", &unstructured.Unstructured{Object: export}, metav1.ApplyOptions{FieldManager: "bench", Force: true})
	return err
}

var partNames = map[string]any{"plural": "parts", "singular": "part", "kind": "Part", "listKind": "PartList"}

// exportOf returns an export of parts.
func exportOf(name, group, schema string) map[string]any {
	return map[string]any{
		"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"resources": []any{map[string]any{
			"group": group, "name": "parts", "schema": schema, "storage": map[string]any{"crd": map[string]any{}},
		}}},
	}
}

// bindingOf returns a binding to an export.
func bindingOf(name, provider, export string) map[string]any {
	return map[string]any{
		"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"reference": map[string]any{"export": map[string]any{"path": provider, "name": export}}},
	}
}

func partVersion(name string, storage bool) map[string]any {
	return map[string]any{"name": name, "served": true, "storage": storage, "schema": map[string]any{"type": "object"}}
}

// bindPublished binds the export in the consumer.
func (p *process) bindPublished(ctx context.Context) error {
	_, err := p.send(ctx, 0, http.MethodPost, path(consumerPath)+"/apis/apis.kcp.io/v1alpha2/apibindings",
		bindingOf("parts", "root:"+organization, "parts"))
	if err != nil {
		return err
	}
	return p.waitForVersion(ctx, 1)
}

// waitForVersion returns when the consumer serves a version of the published API.
func (p *process) waitForVersion(ctx context.Context, version int) error {
	url := fmt.Sprintf("%s/apis/%s/v%d/namespaces/default/parts", path(consumerPath), publishedGroup, version)
	return wait.PollUntilContextTimeout(ctx, time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		code, _, err := p.do(ctx, 0, http.MethodGet, url, "")
		return code == http.StatusOK, err
	})
}
