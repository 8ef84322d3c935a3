package main

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

var (
	logicalClusters = schema.GroupVersionResource{Group: "core.kcp.io", Version: "v1alpha1", Resource: "logicalclusters"}
	crds            = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	widgets         = schema.GroupVersionResource{Group: "bench.example.com", Version: "v1", Resource: "widgets"}
)

// in returns the configuration of clients for one cluster.
func (p *process) in(cluster string) *rest.Config {
	config := rest.CopyConfig(p.config)
	config.Host += p.cluster(cluster)
	return config
}

// kube returns a client as Kubernetes' own components use it: protobuf for built-in types.
func (p *process) kube(cluster string) (*kubernetes.Clientset, error) {
	config := p.in(cluster)
	config.ContentType = runtime.ContentTypeProtobuf
	return kubernetes.NewForConfig(config)
}

func (p *process) dynamic(cluster string) (*dynamic.DynamicClient, error) {
	return dynamic.NewForConfig(p.in(cluster))
}

// tenant makes what one tenant gets: a logical cluster that was entered, or a namespace with what a controller manager
// puts into it.
func (p *process) tenant(ctx context.Context, name string) error {
	if p.cluster(name) == "" {
		return p.namespace(ctx, name)
	}
	if err := p.logicalCluster(ctx, name); err != nil {
		return err
	}
	// The first request that enters makes the namespaces, and is answered once they are there.
	kube, err := p.kube(name)
	if err != nil {
		return err
	}
	_, err = kube.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
	return err
}

// logicalCluster makes one that nobody has entered.
func (p *process) logicalCluster(ctx context.Context, name string) error {
	client, err := p.dynamic(name)
	if err != nil {
		return err
	}
	lc := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "core.kcp.io/v1alpha1", "kind": "LogicalCluster", "metadata": map[string]any{"name": "cluster"},
	}}
	_, err = client.Resource(logicalClusters).Create(ctx, lc, metav1.CreateOptions{})
	return err
}

// define installs a definition and waits until its resource is served.
func (p *process) define(ctx context.Context, cluster, plural string) error {
	client, err := p.dynamic(cluster)
	if err != nil {
		return err
	}
	if _, err := client.Resource(crds).Create(ctx, definition(plural), metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	resource := widgets.GroupVersion().WithResource(plural)
	return wait.PollUntilContextTimeout(ctx, 2*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, err := client.Resource(resource).Namespace("default").List(ctx, metav1.ListOptions{Limit: 1})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
}

// definition returns one with a schema of ordinary size.
func definition(plural string) *unstructured.Unstructured {
	properties := map[string]any{}
	for i := range 40 {
		properties[fmt.Sprintf("field%d", i)] = map[string]any{
			"type": "string", "description": fmt.Sprintf("Field number %d of the specification, described at the length that descriptions have.", i),
		}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": plural + ".bench.example.com"},
		"spec": map[string]any{
			"group": "bench.example.com", "scope": "Namespaced",
			"names": map[string]any{"plural": plural, "singular": plural[:len(plural)-1], "kind": "K" + plural[:len(plural)-1], "listKind": "K" + plural[:len(plural)-1] + "List"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{
					"spec": map[string]any{"type": "object", "properties": properties},
				}}},
			}},
		},
	}}
}
