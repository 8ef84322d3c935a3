package main

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

// kube returns a client like those of Kubernetes' components: protobuf for built-in types. connection selects one of the connections,
// which other clients share.
func (p *process) kube(cluster string, connection int) (*kubernetes.Clientset, error) {
	config := p.in(cluster)
	config.ContentType = runtime.ContentTypeProtobuf
	return kubernetes.NewForConfigAndClient(config, p.connections[connection%connections])
}

func (p *process) dynamic(cluster string, connection int) (*dynamic.DynamicClient, error) {
	return dynamic.NewForConfigAndClient(p.in(cluster), p.connections[connection%connections])
}

// definition returns a definition with a schema of typical size.
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
			"group": "bench.example.com",
			"scope": "Namespaced",
			"names": map[string]any{
				"plural":   plural,
				"singular": plural[:len(plural)-1],
				"kind":     "K" + plural[:len(plural)-1],
				"listKind": "K" + plural[:len(plural)-1] + "List",
			},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{
					"spec": map[string]any{"type": "object", "properties": properties},
				}}},
			}},
		},
	}}
}
