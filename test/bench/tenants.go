package main

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
)

func ignoreExists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// tenant creates a tenant: a logical cluster with its default objects, or a namespace with those that a controller manager creates.
func (p *process) tenant(ctx context.Context, name string, connection int) error {
	if p.cluster(name) == "" {
		return p.namespace(ctx, name, connection)
	}
	if err := p.logicalCluster(ctx, name, connection); err != nil {
		return err
	}
	// The first request creates the namespaces, and gets a response when they exist.
	kube, err := p.kube(name, connection)
	if err != nil {
		return err
	}
	_, err = kube.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
	return err
}

// logicalCluster creates a logical cluster without default objects.
func (p *process) logicalCluster(ctx context.Context, name string, connection int) error {
	client, err := p.dynamic(name, connection)
	if err != nil {
		return err
	}
	lc := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "core.kcp.io/v1alpha1", "kind": "LogicalCluster", "metadata": map[string]any{"name": "cluster"},
	}}
	_, err = client.Resource(logicalClusters).Create(ctx, lc, metav1.CreateOptions{})
	return err
}

// namespace creates a namespace, with the service account and the CA certificates that a controller manager would create.
func (p *process) namespace(ctx context.Context, name string, connection int) error {
	kube, err := p.kube("", connection)
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

// define installs a definition and waits until its resource is served.
func (p *process) define(ctx context.Context, cluster, plural string, connection int) error {
	client, err := p.dynamic(cluster, connection)
	if err != nil {
		return err
	}
	if _, err := client.Resource(crds).Create(ctx, definition(plural), metav1.CreateOptions{}); ignoreExists(err) != nil {
		return err
	}
	resource := client.Resource(widgets.GroupVersion().WithResource(plural)).Namespace("default")
	return wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, err := resource.List(ctx, metav1.ListOptions{Limit: 1})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
}
