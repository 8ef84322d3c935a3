package workspaces

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/apis/conditions"
	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/tenancy/placement"
	"github.com/kcplane/kcp/server/internal/tenancy/scheduling"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// report shows the states of logical clusters on the caller in their Workspaces on this shard.
func (c *Calls) report(ctx context.Context, caller peers.Identity, in states) (verdicts, error) {
	if len(in.Items) > PageSize {
		return verdicts{}, tooMany()
	}
	out := verdicts{Items: make([]Verdict, 0, len(in.Items))}
	for _, state := range in.Items {
		out.Items = append(out.Items, c.Show(ctx, caller.Name, state))
	}
	return out, nil
}

// Show writes the state of a logical cluster, which a shard has reported, into its Workspace.
func (c *Calls) Show(ctx context.Context, from string, state State) Verdict {
	if state.problem() != "" {
		return Refused
	}
	inside := logicalcluster.WithName(ctx, state.Owner.Cluster)
	var verdict Verdict
	err := c.Workspaces.Update(inside, state.Owner.Name, &tenancyv1alpha1.Workspace{}, func(obj runtime.Object) error {
		live := obj.(*tenancyv1alpha1.Workspace)
		if verdict = judge(live, from, state); verdict != Accepted {
			return errNotShown
		}
		spec := live.Spec.DeepCopy()
		c.mirror(live, from, state)
		if !reflect.DeepEqual(spec, &live.Spec) {
			live.Generation++
		}
		return nil
	})
	switch {
	case apierrors.IsNotFound(err):
		return c.withoutWorkspace(inside)
	case err != nil && !errors.Is(err, errNotShown):
		if left, leftErr := c.Left(ctx, state.Owner.Cluster); left && leftErr == nil {
			return NotHeld
		}
		decisionlog.ForFailure(ctx, state.Owner.Cluster).Info("Showing the state of a logical cluster on another shard failed",
			decisionlog.Cluster, state.Owner.Cluster, decisionlog.Name, state.Owner.Name, decisionlog.Reason, err)
		return Failed
	}
	return verdict
}

var errNotShown = errors.New("the state is not shown")

// withoutWorkspace returns the verdict on a Workspace that does not exist in the cluster of ctx.
func (c *Calls) withoutWorkspace(ctx context.Context) Verdict {
	switch parent, err := c.logicalCluster(ctx); {
	case err != nil && !apierrors.IsConflict(err):
		return Failed
	case parent == nil:
		return NotHeld
	}
	return Orphan
}

// judge decides whether a Workspace shows what a shard reports. Only the shard in its record counts.
func judge(ws *tenancyv1alpha1.Workspace, from string, state State) Verdict {
	recorded := placement.Of(ws)
	switch {
	case ws.UID != state.Owner.UID:
		return Orphan
	case recorded.Shard != from || recorded.Cluster != state.Cluster || recorded.Epoch != state.Epoch:
		return Refused
	case recorded.UID != "" && state.UID != "" && recorded.UID != state.UID:
		return Refused
	}
	return Accepted
}

// mirror changes a Workspace to what a state says. The finalizer stays: the controller of workspaces removes it when its own call to the
// shard is answered with Deleted.
func (c *Calls) mirror(ws *tenancyv1alpha1.Workspace, from string, state State) {
	lc := state.logicalCluster()
	switch {
	case ws.DeletionTimestamp != nil && lc != nil:
		scheduling.MirrorRemoval(ws, lc)
	case ws.DeletionTimestamp != nil && state.Existence == Deleted:
		conditions.Set(&ws.Status.Conditions, corev1alpha1.Condition{
			Type: tenancyv1alpha1.WorkspaceContentDeleted, Status: metav1.ConditionTrue, Reason: "ContentDeleted",
		})
	case ws.DeletionTimestamp != nil:
	case ws.Spec.Cluster == "" && lc != nil: // the response to the creation was lost
		lc.Annotations = map[string]string{
			tenancyv1alpha1.ShardAnnotation: from,
			corev1alpha1.PathAnnotation:     c.Scheduler.PathOf(ws),
		}
		c.Scheduler.SetLocation(ws, state.Cluster, lc)
	case ws.Spec.Cluster != "":
		c.Scheduler.MirrorStatus(ws, lc)
		if lc == nil {
			conditions.Set(&ws.Status.Conditions, lost(from, state.Cluster))
		}
	}
}

// lost is the condition of a Workspace whose shard does not have the logical cluster. It is never created again: it would be empty.
func lost(shard string, cluster logicalcluster.Name) corev1alpha1.Condition {
	return corev1alpha1.Condition{
		Type: tenancyv1alpha1.WorkspaceInitialized, Status: metav1.ConditionFalse, Severity: "Error",
		Reason: tenancyv1alpha1.ReasonWorkspaceDisappeared, Message: fmt.Sprintf("shard %q does not have the logical cluster %s: restore a "+
			"later snapshot of the shard, or delete the workspace", shard, cluster),
	}
}
