package logicalcluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/internal/apis/discovery"
	"github.com/kcplane/kcp/server/internal/apis/instances"
	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// parallelDeletions is how many collections of one cluster are deleted at a time.
const parallelDeletions = 8

var (
	definitions = schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}
	bindings    = schema.GroupResource{Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings"}
)

// deleteContent deletes everything in the cluster of ctx but its LogicalCluster, and returns what remains as "<number> <resource>".
// Definitions are deleted after their instances. The bindings that grant access are deleted last: users with access can follow the
// deletion. If nothing else needs lc, it is deleted too, and gone is true.
func (r *reconciler) deleteContent(ctx context.Context, lc *corev1alpha1.LogicalCluster) (remaining []string, gone bool, err error) {
	served, err := r.Resources(ctx)
	if err != nil {
		return nil, false, err
	}
	var deletable []discovery.Resource
	var kinds []schema.GroupResource
	for _, d := range served {
		if d.Verbs.HasAll("list", "delete") && d.GroupVersionResource != resource && !shadowed(d.GroupResource()) {
			deletable = append(deletable, d)
			kinds = append(kinds, d.GroupResource())
		}
	}
	held, err := r.Held(ctx, kinds, "")
	if err != nil {
		return nil, false, err
	}
	left, gone, err := r.deleteTogether(ctx, lc, held)
	if err != nil || gone {
		return nil, gone, err
	}
	var first, last []discovery.Resource
	for _, d := range deletable {
		switch {
		case !slices.Contains(left, d.GroupResource()):
		case d.GroupResource() == definitions || d.GroupResource() == bindings:
			last = append(last, d)
		default:
			first = append(first, d)
		}
	}
	for _, stage := range [][]discovery.Resource{first, last} {
		remaining, err := r.deleteAll(ctx, stage, isAdmitted(held))
		if err != nil || len(remaining) > 0 {
			return remaining, false, err
		}
	}
	return nil, false, nil
}

// shadowed reports whether a resource is a second view of objects that are deleted through another resource.
func shadowed(r schema.GroupResource) bool {
	return r == schema.GroupResource{Group: "events.k8s.io", Resource: "events"}
}

// deleteAll deletes the objects of resources, and returns what remains. admitted is whether the cluster may have rules for deletions.
func (r *reconciler) deleteAll(ctx context.Context, resources []discovery.Resource, admitted bool) ([]string, error) {
	left := make([]int, len(resources))
	group := errgroup.Group{} // an error of one resource does not stop the others
	group.SetLimit(parallelDeletions)
	for i, d := range resources {
		group.Go(func() error {
			asking, cancel := context.WithTimeout(ctx, instances.APITimeout)
			defer cancel()
			n, err := r.deleteResource(ctx, asking, d, admitted)
			left[i] = n
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var remaining []string
	for i, n := range left {
		if n > 0 {
			remaining = append(remaining, fmt.Sprintf("%d %s", n, resources[i].GroupResource()))
		}
	}
	slices.Sort(remaining)
	return remaining, nil
}

// deleteResource deletes every object of a resource, and returns how many wait for their finalizers. It deletes through the API first.
// Custom objects that rules and conversions of a provider or of the cluster protect are then deleted in storage. asking limits the time of
// the API.
func (r *reconciler) deleteResource(ctx, asking context.Context, d discovery.Resource, admitted bool) (int, error) {
	if d.GroupVersionResource == workspaces && !admitted {
		left, err := instances.DeleteWith(ctx, r.Metadata, workspaces, r.markDeleted)
		return left, ignoreGone(err)
	}
	background := metav1.DeletePropagationBackground
	options := metav1.DeleteOptions{PropagationPolicy: &background}
	defined, custom := r.defined(ctx, d.GroupResource())
	if !custom {
		left, err := instances.Delete(ctx, r.Metadata, d.GroupVersionResource, options)
		return left, ignoreGone(err)
	}
	left, err := instances.Delete(asking, r.Metadata, d.GroupVersionResource, options)
	if err = ignoreGone(err); err == nil && left == 0 {
		return 0, nil
	}
	if err != nil {
		cluster, _ := logicalcluster.NameFrom(ctx)
		decisionlog.ForFailure(ctx, cluster).Info("Deleting objects from the storage because deleting through the API failed",
			decisionlog.Cluster, cluster, decisionlog.Resource, d.GroupResource(), decisionlog.Reason, err)
	}
	return r.Remains.Delete(ctx, d.GroupResource(), defined.Identity,
		func(u *unstructured.Unstructured) bool { return defined.Reaches(u.GetNamespace()) })
}

// markDeleted marks a workspace as deleted, as a request to the API does, which takes three times as long.
func (r *reconciler) markDeleted(ctx context.Context, item *metav1.PartialObjectMetadata) error {
	return r.Workspaces.Update(ctx, item.Name, &tenancyv1alpha1.Workspace{}, func(obj runtime.Object) error {
		ws := obj.(*tenancyv1alpha1.Workspace)
		if ws.UID != item.UID {
			return apierrors.NewNotFound(workspaces.GroupResource(), item.Name) // another workspace has its name
		}
		if ws.DeletionTimestamp == nil {
			ws.DeletionTimestamp, ws.DeletionGracePeriodSeconds = ptr.To(metav1.NewTime(r.Clock.Now())), ptr.To[int64](0)
			ws.Generation++
		}
		return nil
	})
}

// defined returns the definition of a custom resource, and whether its objects are stored and belong to the cluster of ctx.
func (r *reconciler) defined(ctx context.Context, resource schema.GroupResource) (customresources.Installed, bool) {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return customresources.Installed{}, false
	}
	for _, i := range r.Serves(cluster) {
		if i.Key() == customresources.ResourceName(resource.Resource, resource.Group) {
			return i, !i.IsSystem() && !i.IsVirtual()
		}
	}
	return customresources.Installed{}, false
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
		return nil
	}
	return err
}

// inProgress is the condition until it is known what remains.
var inProgress = corev1alpha1.Condition{
	Type: tenancyv1alpha1.WorkspaceContentDeleted, Status: metav1.ConditionFalse, Severity: "Info", Reason: "SomeResourcesRemain",
	Message: "what it holds is being deleted",
}

// contentCondition returns the condition for the remaining content.
func contentCondition(remaining []string) corev1alpha1.Condition {
	if len(remaining) == 0 {
		return corev1alpha1.Condition{Type: tenancyv1alpha1.WorkspaceContentDeleted, Status: metav1.ConditionTrue}
	}
	return corev1alpha1.Condition{
		Type: tenancyv1alpha1.WorkspaceContentDeleted, Status: metav1.ConditionFalse, Severity: "Info", Reason: "SomeResourcesRemain",
		Message: "waiting for the finalizers of " + strings.Join(remaining, ", "),
	}
}
