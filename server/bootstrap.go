package server

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/logicalcluster"
	"github.com/kcplane/kcp/server/options"
)

var (
	rootCluster            = logicalcluster.Cluster{Name: logicalcluster.Root}
	logicalClusterResource = corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters")
)

// bootstrap makes the logical clusters that every installation has.
func (c *config) bootstrap(ctx context.Context) error {
	root := &corev1alpha1.LogicalCluster{
		TypeMeta: metav1.TypeMeta{APIVersion: corev1alpha1.SchemeGroupVersion.String(), Kind: "LogicalCluster"},
		ObjectMeta: metav1.ObjectMeta{
			Name:        corev1alpha1.LogicalClusterName,
			Annotations: map[string]string{corev1alpha1.PathAnnotation: string(logicalcluster.Root)},
		},
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(root)
	if err != nil {
		return err
	}
	_, err = c.dynamic.Resource(logicalClusterResource).
		Create(logicalcluster.WithName(ctx, logicalcluster.Root), &unstructured.Unstructured{Object: content}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("logical cluster %s: %w", logicalcluster.Root, err)
	}
	if c.opts.Batteries.Has(options.BatteryMetricsViewer) {
		return c.bootstrapMetricsViewer(logicalcluster.WithName(ctx, logicalcluster.Root))
	}
	return nil
}
