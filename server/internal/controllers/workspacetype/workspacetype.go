// Package workspacetype writes into the status of every WorkspaceType the URLs at which its initializer and terminator find their
// workspaces.
package workspacetype

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/apis/conditions"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/views/lifecycle"
	"github.com/kcplane/kcp/server/logicalcluster"
)

var resource = tenancyv1alpha1.SchemeGroupVersion.WithResource("workspacetypes")

// Inputs of the controller. The client reaches the cluster in each call's context.
type Inputs struct {
	Set     *informers.Set
	Dynamic dynamic.Interface
}

type reconciler struct{ Inputs }

// New returns the controller. Its keys are WorkspaceTypes.
func New(in Inputs) *runner.Controller {
	r := &reconciler{in}
	c := runner.New("workspacetype", 2, r.reconcile)
	c.Watch(in.Set.WorkspaceTypes.Informer)
	c.WatchMappedForAll(in.Set.Shards.Informer, runner.AllOf(in.Set.WorkspaceTypes.Informer))
	return c
}

func (r *reconciler) reconcile(ctx context.Context, key informers.Key) error {
	wt, err := r.Set.WorkspaceTypes.Get(key.Cluster, "", key.Name)
	if err != nil {
		return runner.IgnoreNotFound(err)
	}
	shards, err := r.Set.Shards.List(logicalcluster.Root)
	if err != nil {
		return err
	}
	wanted := wt.DeepCopy()
	wanted.Status.VirtualWorkspaces = virtualWorkspaces(shards, key)
	for _, condition := range []string{tenancyv1alpha1.VirtualWorkspaceURLsReady, tenancyv1alpha1.Ready} {
		conditions.Set(&wanted.Status.Conditions, corev1alpha1.Condition{Type: condition, Status: metav1.ConditionTrue})
	}
	if reflect.DeepEqual(wt.Status, wanted.Status) {
		return nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(wanted)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(tenancyv1alpha1.SchemeGroupVersion.WithKind("WorkspaceType"))
	_, err = r.Dynamic.Resource(resource).UpdateStatus(ctx, u, metav1.UpdateOptions{})
	return runner.IgnoreNotFound(err)
}

// virtualWorkspaces returns the initializing and the terminating entry of every shard, sorted by the names of the shards.
func virtualWorkspaces(shards []*corev1alpha1.Shard, key informers.Key) []tenancyv1alpha1.VirtualWorkspace {
	shards = slices.Clone(shards)
	slices.SortFunc(shards, func(a, b *corev1alpha1.Shard) int { return cmp.Compare(a.Name, b.Name) })
	id := string(key.Cluster) + ":" + key.Name
	var all []tenancyv1alpha1.VirtualWorkspace
	for _, shard := range shards {
		if shard.Spec.VirtualWorkspaceURL == "" {
			continue
		}
		url := func(name string) string {
			return fmt.Sprintf("%s/services/%s/%s", shard.Spec.VirtualWorkspaceURL, name, id)
		}
		all = append(all,
			tenancyv1alpha1.VirtualWorkspace{URL: url(lifecycle.Initializing), Type: tenancyv1alpha1.VirtualWorkspaceTypeInitializing},
			tenancyv1alpha1.VirtualWorkspace{URL: url(lifecycle.Terminating), Type: tenancyv1alpha1.VirtualWorkspaceTypeTerminating})
	}
	return all
}
