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
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// payload makes the size of an object one KiB.
var payload = strings.Repeat("x", 1024)

// objects are requests for objects of one type, by the number of the client.
type objects struct {
	kind string
	// server is part of the names of the objects that are read and updated: another server may share the cluster.
	server string
	create func(ctx context.Context, client int, namespace, name, payload string) error
	update func(ctx context.Context, client int, namespace, name, payload string) error
	get    func(ctx context.Context, client int, namespace, name string, options metav1.GetOptions) error
	list   func(ctx context.Context, client int, namespace string, options metav1.ListOptions) error
}

// prepare creates the objects that are read and updated.
func (o objects) prepare(ctx context.Context) (objects, error) {
	for i := range listedCount {
		if err := o.create(ctx, 0, listed, fmt.Sprintf("one-%d", i), payload); ignoreExists(err) != nil {
			return o, err
		}
	}
	for client := range connections {
		if err := o.create(ctx, 0, "default", o.fixed(client), payload); ignoreExists(err) != nil {
			return o, err
		}
	}
	return o, nil
}

func fixed(client int) string { return fmt.Sprintf("fixed-%d", client) }

func (o objects) fixed(client int) string { return o.server + "-" + fixed(client) }

var began = time.Now()

// fresh returns a unique name or content.
func fresh(client, i int) string { return fmt.Sprintf("c%d-%d-%d", time.Since(began), client, i) }

// operations are the loads. Reads are consistent, unless their names contain "any version".
func (o objects) operations() []operation {
	anyVersion := "0"
	return []operation{
		{"create a " + o.kind, func(ctx context.Context, c, i int) error { return o.create(ctx, c, "default", fresh(c, i), payload) }},
		{"update a " + o.kind, func(ctx context.Context, c, i int) error {
			return o.update(ctx, c, "default", o.fixed(c), fresh(c, i)+payload)
		}},
		{"get a " + o.kind, func(ctx context.Context, c, _ int) error {
			return o.get(ctx, c, "default", o.fixed(c), metav1.GetOptions{})
		}},
		{"get a " + o.kind + " of any version", func(ctx context.Context, c, _ int) error {
			return o.get(ctx, c, "default", o.fixed(c), metav1.GetOptions{ResourceVersion: anyVersion})
		}},
		{fmt.Sprintf("list %d %ss", listedCount, o.kind), func(ctx context.Context, c, _ int) error {
			return o.list(ctx, c, listed, metav1.ListOptions{})
		}},
		{fmt.Sprintf("list %d %ss of any version", listedCount, o.kind), func(ctx context.Context, c, _ int) error {
			return o.list(ctx, c, listed, metav1.ListOptions{ResourceVersion: anyVersion})
		}},
	}
}

// configMaps are sent as protobuf, as by Kubernetes' components.
func (p *process) configMaps(ctx context.Context, cluster string) (objects, error) {
	var clients []corev1client.CoreV1Interface
	for i := range connections {
		kube, err := p.kube(cluster, i)
		if err != nil {
			return objects{}, err
		}
		clients = append(clients, kube.CoreV1())
	}
	for _, namespace := range []string{listed, "default"} {
		_, err := clients[0].Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
		if ignoreExists(err) != nil {
			return objects{}, err
		}
	}
	object := func(name, payload string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"payload": payload}}
	}
	return objects{
		kind: "ConfigMap", server: p.name,
		create: func(ctx context.Context, c int, namespace, name, payload string) error {
			_, err := clients[c].ConfigMaps(namespace).Create(ctx, object(name, payload), metav1.CreateOptions{})
			return err
		},
		update: func(ctx context.Context, c int, namespace, name, payload string) error {
			_, err := clients[c].ConfigMaps(namespace).Update(ctx, object(name, payload), metav1.UpdateOptions{})
			return err
		},
		get: func(ctx context.Context, c int, namespace, name string, options metav1.GetOptions) error {
			_, err := clients[c].ConfigMaps(namespace).Get(ctx, name, options)
			return err
		},
		list: func(ctx context.Context, c int, namespace string, options metav1.ListOptions) error {
			list, err := clients[c].ConfigMaps(namespace).List(ctx, options)
			if err != nil {
				return err
			}
			return wantListed(len(list.Items))
		},
	}.prepare(ctx)
}

// customResources are sent as JSON. Their updates must contain the resource version.
func (p *process) customResources(ctx context.Context, cluster string) (objects, error) {
	var clients []dynamic.NamespaceableResourceInterface
	for i := range connections {
		client, err := p.dynamic(cluster, i)
		if err != nil {
			return objects{}, err
		}
		clients = append(clients, client.Resource(widgets))
	}
	object := func(name, payload string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": widgets.GroupVersion().String(), "kind": "Kwidget", "metadata": map[string]any{"name": name},
			"spec": map[string]any{"field1": payload},
		}}
	}
	versions := make([]string, connections) // of the object of each client
	return objects{
		kind: "custom resource", server: p.name,
		create: func(ctx context.Context, c int, namespace, name, payload string) error {
			_, err := clients[c].Namespace(namespace).Create(ctx, object(name, payload), metav1.CreateOptions{})
			return err
		},
		update: func(ctx context.Context, c int, namespace, name, payload string) error {
			if versions[c] == "" {
				current, err := clients[c].Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				versions[c] = current.GetResourceVersion()
			}
			changed := object(name, payload)
			changed.SetResourceVersion(versions[c])
			updated, err := clients[c].Namespace(namespace).Update(ctx, changed, metav1.UpdateOptions{})
			if err != nil {
				return err
			}
			versions[c] = updated.GetResourceVersion()
			return nil
		},
		get: func(ctx context.Context, c int, namespace, name string, options metav1.GetOptions) error {
			_, err := clients[c].Namespace(namespace).Get(ctx, name, options)
			return err
		},
		list: func(ctx context.Context, c int, namespace string, options metav1.ListOptions) error {
			list, err := clients[c].Namespace(namespace).List(ctx, options)
			if err != nil {
				return err
			}
			return wantListed(len(list.Items))
		},
	}.prepare(ctx)
}

// wantListed returns an error for an incomplete list. Namespaces also contain a ConfigMap with CA certificates.
func wantListed(n int) error {
	if n < listedCount || n > listedCount+1 {
		return fmt.Errorf("a list has %d objects, want %d", n, listedCount)
	}
	return nil
}
