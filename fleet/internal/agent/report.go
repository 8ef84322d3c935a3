package agent

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	resourcehelpers "k8s.io/component-helpers/resource"
	"k8s.io/klog/v2"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
)

const (
	// reportPeriod is the time between two reports of what the cluster has and what its pods request.
	reportPeriod = time.Minute
	// podsOfPage is the number of pods that the agent holds in memory while it adds up requests.
	podsOfPage = 500
	// onNodes selects the pods that use something of a node.
	onNodes = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
)

// report writes version, capacity and requests of the cluster into the status of the Cluster.
func (a *Agent) report(ctx context.Context, fleet dynamic.Interface) error {
	version, err := a.local.Discovery().ServerVersion()
	if err != nil {
		return err
	}
	capacity, nodes, err := a.capacity(ctx)
	if err != nil {
		return err
	}
	requested, err := a.requested(ctx, nodes)
	if err != nil {
		return err
	}
	_, err = a.updateCluster(ctx, fleet, func(s *v1alpha1.ClusterStatus) {
		s.Version, s.Capacity, s.Requested = version.GitVersion, capacity, requested
	})
	return err
}

// keepReporting reports again and again until ctx ends.
func (a *Agent) keepReporting(ctx context.Context, fleet dynamic.Interface) {
	for ; ctx.Err() == nil; sleep(ctx, reportPeriod) {
		if err := a.report(ctx, fleet); err != nil && ctx.Err() == nil {
			klog.Background().Info("Capacity not reported, trying again", "error", err.Error())
		}
	}
}

// capacity returns what the nodes that accept pods can allocate to them, and the names of these nodes. Without the permission to list
// nodes, it returns nothing.
func (a *Agent) capacity(ctx context.Context) (corev1.ResourceList, map[string]bool, error) {
	sum, names := corev1.ResourceList{}, map[string]bool{}
	nodes, err := a.local.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if apierrors.IsForbidden(err) {
		return sum, names, nil
	}
	if err != nil {
		return nil, nil, err
	}
	for i := range nodes.Items {
		if !nodes.Items[i].Spec.Unschedulable {
			addTo(sum, nodes.Items[i].Status.Allocatable)
			names[nodes.Items[i].Name] = true
		}
	}
	return sum, names, nil
}

// requested returns what the pods on some nodes request together. The capacity must be that of the same nodes: the difference is what is
// free. Without the permission to list pods, it returns nothing.
func (a *Agent) requested(ctx context.Context, nodes map[string]bool) (corev1.ResourceList, error) {
	sum := corev1.ResourceList{}
	options := metav1.ListOptions{FieldSelector: onNodes, Limit: podsOfPage}
	for {
		pods, err := a.local.CoreV1().Pods(metav1.NamespaceAll).List(ctx, options)
		if apierrors.IsForbidden(err) {
			return corev1.ResourceList{}, nil
		}
		if err != nil {
			return nil, err
		}
		for i := range pods.Items {
			if nodes[pods.Items[i].Spec.NodeName] {
				addTo(sum, resourcehelpers.PodRequests(&pods.Items[i], resourcehelpers.PodResourcesOptions{}))
				addTo(sum, corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(1, resource.DecimalSI)})
			}
		}
		if options.Continue = pods.Continue; options.Continue == "" {
			return sum, nil
		}
	}
}

// addTo adds to a sum. Resources of which there is nothing are left out.
func addTo(sum, list corev1.ResourceList) {
	for name, quantity := range list {
		if total := sum[name]; !quantity.IsZero() {
			total.Add(quantity)
			sum[name] = total
		}
	}
}
