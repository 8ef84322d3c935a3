// Package workspacetype tells in the status of every WorkspaceType where its initializer and terminator find their
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

// New returns the controller. Its keys are WorkspaceTypes; client reaches the cluster in each call's context.
func New(set *informers.Set, client dynamic.Interface) *runner.Controller {
	c := runner.New("workspacetype", 2, func(ctx context.Context, key informers.Key) error {
		wt, err := set.WorkspaceTypes.Get(key.Cluster, "", key.Name)
		if err != nil {
			return runner.IgnoreNotFound(err)
		}
		shards, err := set.Shards.List(logicalcluster.Root)
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
		_, err = client.Resource(resource).UpdateStatus(ctx, u, metav1.UpdateOptions{})
		return runner.IgnoreNotFound(err)
	})
	c.Watch(set.WorkspaceTypes.Informer)
	c.WatchMapped(set.Shards.Informer, runner.Every(set.WorkspaceTypes.Informer))
	return c
}

// virtualWorkspaces returns both entries of every shard, in the order of the names of shards.
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
