package feed

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	cachev1alpha1 "github.com/kcplane/kcp/api/cache/v1alpha1"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/apis/conditions"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// maxDescribed is how many conditions of a logical cluster are written within describeInterval: a tenant who creates very many objects does
// not make this shard write as many.
const (
	maxDescribed     = 20
	describeInterval = time.Second
)

// conditionsOf returns the conditions of an object, and nil for a kind without conditions.
func conditionsOf(obj any) *[]corev1alpha1.Condition {
	switch obj := obj.(type) {
	case *apisv1alpha2.APIExport:
		return &obj.Status.Conditions
	case *apisv1alpha1.APIExportEndpointSlice:
		return &obj.Status.Conditions
	case *cachev1alpha1.ClusterCachedResource:
		return &obj.Status.Conditions
	case *cachev1alpha1.ClusterCachedResourceEndpointSlice:
		return &obj.Status.Conditions
	}
	return nil
}

// isExcess reports whether the condition of an object says that it is over the limits.
func isExcess(obj any) bool {
	all := conditionsOf(obj)
	return all != nil && slices.ContainsFunc(*all, func(c corev1alpha1.Condition) bool {
		return c.Type == corev1alpha1.AvailableToOtherShards && c.Status == metav1.ConditionFalse
	})
}

// describe writes into the status of objects whether they are over the limits. An object that never was has no condition.
func (o *Offer) describe(ctx context.Context, cluster logicalcluster.Name, d desired) error {
	left := maxDescribed
	change := func(i id, obj object, excess bool) error {
		if conditionsOf(obj) == nil || isExcess(obj) == excess {
			return nil
		}
		if left--; left < 0 {
			return nil
		}
		return o.setExcess(ctx, i, obj, excess)
	}
	for _, it := range d.excess {
		if err := change(it.id, it.object, true); err != nil {
			return err
		}
	}
	for _, it := range d.items {
		if err := change(it.id, it.object, false); err != nil {
			return err
		}
	}
	if left < 0 {
		o.controller.EnqueueAfter(informers.Key{Cluster: cluster}, describeInterval)
	}
	return nil
}

func (o *Offer) setExcess(ctx context.Context, i id, obj object, excess bool) error {
	empty, ok := obj.DeepCopyObject().(object)
	if !ok {
		return nil
	}
	err := o.in.Stored[i.kind.resource.Resource].Update(ctx, i.name, empty, func(live runtime.Object) error {
		all := conditionsOf(live)
		if m, ok := live.(object); !ok || m.GetUID() != obj.GetUID() {
			return nil // another object has the name
		}
		if !excess {
			*all = slices.DeleteFunc(*all, func(c corev1alpha1.Condition) bool { return c.Type == corev1alpha1.AvailableToOtherShards })
			return nil
		}
		conditions.Set(all, corev1alpha1.Condition{
			Type: corev1alpha1.AvailableToOtherShards, Status: metav1.ConditionFalse, Severity: "Error",
			Reason: corev1alpha1.ReasonLimitExceeded, Message: fmt.Sprintf("Workspaces on other shards cannot use it: this workspace has more than "+
				"%d objects, or %d MiB of them, that other shards read. Delete those that are not needed.", o.in.Limits.Objects, o.in.Limits.Bytes>>20),
		})
		return nil
	})
	if err = runner.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("describing %s %s: %w", i.kind.name, i.name, err)
	}
	return nil
}
