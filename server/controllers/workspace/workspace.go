// Package workspace leads every Workspace from its creation to its logical cluster, keeps its status that of the logical
// cluster, and holds it until the logical cluster is gone. Most workspaces are complete when they are created: then there
// is nothing to do.
package workspace

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/controllers/controller"
	"github.com/kcplane/kcp/server/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
	"github.com/kcplane/kcp/server/scheduling"
)

// Inputs of the controller. Clients reach the cluster in each call's context.
type Inputs struct {
	Set       *informers.Set
	Dynamic   dynamic.Interface
	Scheduler *scheduling.Scheduler
}

// grace is how long the LogicalCluster of a scheduled workspace may be unknown before the workspace is unavailable.
const grace = time.Minute

var (
	resource        = tenancyv1alpha1.SchemeGroupVersion.WithResource("workspaces")
	logicalClusters = corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters")
)

type reconciler struct {
	Inputs
	controller *controller.Controller

	mu      sync.Mutex
	waiting map[informers.Key]bool // for a shard or a type
}

// New returns the controller. Its keys are Workspaces.
func New(in Inputs) *controller.Controller {
	r := &reconciler{Inputs: in, waiting: map[informers.Key]bool{}}
	r.controller = controller.New("workspace", 16, r.reconcile)
	r.controller.Watch(in.Set.Workspaces.Informer)
	r.controller.WatchMapped(in.Set.LogicalClusters.Informer, func(obj runtime.Object) []informers.Key {
		owner := obj.(*corev1alpha1.LogicalCluster).Spec.Owner
		if owner == nil || owner.Resource != resource.Resource {
			return nil
		}
		return []informers.Key{{Cluster: logicalcluster.Name(owner.Cluster), Name: owner.Name}}
	})
	again := func(_, _ runtime.Object) { r.retry() }
	in.Set.Shards.AddHandler(again)
	in.Set.WorkspaceTypes.AddHandler(again)
	return r.controller
}

// retry reconciles what waits for a shard or a type.
func (r *reconciler) retry() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key := range r.waiting {
		r.controller.Enqueue(key)
	}
	clear(r.waiting)
}

func (r *reconciler) wait(key informers.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting[key] = true
}

func (r *reconciler) reconcile(ctx context.Context, key informers.Key) error {
	ws, err := r.Set.Workspaces.Get(key.Cluster, "", key.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	lc, err := r.logicalCluster(ws)
	if err != nil || r.settled(ws, lc) {
		return err
	}
	u, err := r.Dynamic.Resource(resource).Get(ctx, key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	live := &tenancyv1alpha1.Workspace{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, live); err != nil {
		return err
	}
	wanted := live.DeepCopy()
	switch {
	case live.DeletionTimestamp != nil:
		err = r.remove(ctx, wanted, lc)
	case live.Spec.Mount != nil:
	case live.Spec.Cluster == "":
		err = r.schedule(ctx, key, wanted)
	case lc == nil && time.Since(live.CreationTimestamp.Time) < grace:
		r.controller.EnqueueAfter(key, time.Second)
	default:
		r.Scheduler.Mirror(wanted, lc)
		if lc != nil {
			wanted.Spec.URL = r.url(lc)
		}
	}
	if err != nil {
		return err
	}
	return r.commit(ctx, live, wanted)
}

func (r *reconciler) url(lc *corev1alpha1.LogicalCluster) string {
	return r.Scheduler.ExternalURL + "/clusters/" + lc.Annotations[corev1alpha1.PathAnnotation]
}

// logicalCluster returns that of a workspace, nil if it has none.
func (r *reconciler) logicalCluster(ws *tenancyv1alpha1.Workspace) (*corev1alpha1.LogicalCluster, error) {
	name := clusterOf(ws)
	if name == "" {
		return nil, nil
	}
	lc, err := r.Set.LogicalClusters.Get(name, "", corev1alpha1.LogicalClusterName)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err == nil && !owns(ws, lc) {
		return nil, nil
	}
	return lc, err
}

// clusterOf returns the logical cluster that a workspace has, or is about to have.
func clusterOf(ws *tenancyv1alpha1.Workspace) logicalcluster.Name {
	if ws.Spec.Cluster != "" {
		return logicalcluster.Name(ws.Spec.Cluster)
	}
	return logicalcluster.Name(ws.Annotations[tenancyv1alpha1.ClusterAnnotation])
}

func owns(ws *tenancyv1alpha1.Workspace, lc *corev1alpha1.LogicalCluster) bool {
	return lc.Spec.Owner != nil && lc.Spec.Owner.UID == ws.UID
}

// settled tells whether a workspace needs nothing.
func (r *reconciler) settled(ws *tenancyv1alpha1.Workspace, lc *corev1alpha1.LogicalCluster) bool {
	if ws.DeletionTimestamp != nil || ws.Spec.Mount != nil || ws.Spec.Cluster == "" || lc == nil {
		return ws.Spec.Mount != nil && ws.DeletionTimestamp == nil
	}
	return ws.Status.Phase == corev1alpha1.LogicalClusterPhaseReady && lc.Status.Phase == corev1alpha1.LogicalClusterPhaseReady &&
		len(ws.Status.Initializers) == 0 && slices.Equal(ws.Status.Terminators, lc.Status.Terminators) && ws.Spec.URL == r.url(lc)
}

// schedule makes the logical cluster of a workspace, or notes why that is not possible.
func (r *reconciler) schedule(ctx context.Context, key informers.Key, ws *tenancyv1alpha1.Workspace) error {
	name := logicalcluster.Name(ws.Annotations[tenancyv1alpha1.ClusterAnnotation])
	shard, err := r.Scheduler.Shard(ws)
	var impossible scheduling.UnschedulableError
	switch {
	case err == nil && shard != r.Scheduler.ShardName:
		impossible.Reason = "shard " + shard + " cannot be reached from here"
	case err != nil && !asUnschedulable(err, &impossible):
		return err
	case err == nil && name == "":
		// The intention is stored first, so that after a crash the same logical cluster is made, and no second one.
		ws.Annotations[tenancyv1alpha1.ClusterAnnotation] = string(scheduling.NewName())
		if !slices.Contains(ws.Finalizers, tenancyv1alpha1.LogicalClusterFinalizer) {
			ws.Finalizers = append(ws.Finalizers, tenancyv1alpha1.LogicalClusterFinalizer)
		}
		return nil
	}
	var lc *corev1alpha1.LogicalCluster
	if impossible.Reason == "" {
		lc, err = r.Scheduler.LogicalCluster(ws, name)
		if apierrors.IsNotFound(err) {
			impossible.Reason = err.Error()
		} else if err != nil {
			return err
		}
	}
	if impossible.Reason != "" {
		r.wait(key)
		scheduling.SetCondition(&ws.Status.Conditions, corev1alpha1.Condition{
			Type: tenancyv1alpha1.WorkspaceScheduled, Status: metav1.ConditionFalse, Severity: "Error",
			Reason: tenancyv1alpha1.ReasonUnschedulable, Message: impossible.Reason,
		})
		return nil
	}
	if err := r.create(logicalcluster.WithName(ctx, name), ws, lc); err != nil {
		return err
	}
	if ws.Annotations[tenancyv1alpha1.ClusterAnnotation] == "" { // the name was taken
		return nil
	}
	r.Scheduler.Settle(ws, name, lc)
	return nil
}

func asUnschedulable(err error, into *scheduling.UnschedulableError) bool {
	found, ok := err.(scheduling.UnschedulableError)
	*into = found
	return ok
}

// create stores a LogicalCluster: first as the one thing that may be created, then with the state that it begins with.
func (r *reconciler) create(ctx context.Context, ws *tenancyv1alpha1.Workspace, lc *corev1alpha1.LogicalCluster) error {
	u, err := toUnstructured(lc, corev1alpha1.SchemeGroupVersion.WithKind("LogicalCluster"))
	if err != nil {
		return err
	}
	client := r.Dynamic.Resource(logicalClusters)
	_, err = client.Create(ctx, u, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		existing, err := client.Get(ctx, corev1alpha1.LogicalClusterName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if uid, _, _ := unstructured.NestedString(existing.Object, "spec", "owner", "uid"); uid != string(ws.UID) {
			delete(ws.Annotations, tenancyv1alpha1.ClusterAnnotation)
		}
		return nil
	}
	return err
}

// remove deletes the logical cluster of a workspace that is being deleted, and lets go of the workspace once it is gone.
func (r *reconciler) remove(ctx context.Context, ws *tenancyv1alpha1.Workspace, lc *corev1alpha1.LogicalCluster) error {
	if !slices.Contains(ws.Finalizers, tenancyv1alpha1.LogicalClusterFinalizer) {
		return nil
	}
	ws.Status.Phase = corev1alpha1.LogicalClusterPhaseDeleting
	if lc != nil {
		if ws.Status.Terminators = lc.Status.Terminators; len(ws.Status.Terminators) > 0 {
			ws.Status.Phase = corev1alpha1.LogicalClusterPhaseTerminating
		}
		for _, condition := range lc.Status.Conditions {
			if condition.Type == tenancyv1alpha1.WorkspaceContentDeleted {
				scheduling.SetCondition(&ws.Status.Conditions, condition)
			}
		}
	}
	if ws.Labels == nil {
		ws.Labels = map[string]string{}
	}
	ws.Labels[corev1alpha1.PhaseLabel] = string(ws.Status.Phase)
	if len(ws.Finalizers) > 1 {
		return nil // others want the logical cluster to be there still
	}
	name := clusterOf(ws)
	if name == "" {
		ws.Finalizers = nil
		return nil
	}
	if lc != nil && lc.DeletionTimestamp != nil {
		return nil
	}
	inside := logicalcluster.WithName(ctx, name)
	client := r.Dynamic.Resource(logicalClusters)
	if lc == nil {
		existing, err := client.Get(inside, corev1alpha1.LogicalClusterName, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			ws.Finalizers = nil
			return nil
		}
		if err != nil {
			return err
		}
		if uid, _, _ := unstructured.NestedString(existing.Object, "spec", "owner", "uid"); uid != string(ws.UID) {
			ws.Finalizers = nil
			return nil
		}
	}
	err := client.Delete(inside, corev1alpha1.LogicalClusterName, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting logical cluster %s: %w", name, err)
	}
	return nil
}

// commit writes what differs. The status goes first: without finalizers the object may be gone after the second write.
func (r *reconciler) commit(ctx context.Context, live, wanted *tenancyv1alpha1.Workspace) error {
	client := r.Dynamic.Resource(resource)
	kind := tenancyv1alpha1.SchemeGroupVersion.WithKind("Workspace")
	gone := live.DeletionTimestamp != nil && len(wanted.Finalizers) == 0
	changed := !reflect.DeepEqual(live.ObjectMeta, wanted.ObjectMeta) || !reflect.DeepEqual(live.Spec, wanted.Spec)
	if changed && !gone {
		u, err := toUnstructured(wanted, kind)
		if err != nil {
			return err
		}
		updated, err := client.Update(ctx, u, metav1.UpdateOptions{})
		if err != nil {
			return ignoreGone(err)
		}
		wanted.ResourceVersion = updated.GetResourceVersion()
	}
	if !gone && !reflect.DeepEqual(live.Status, wanted.Status) {
		u, err := toUnstructured(wanted, kind)
		if err != nil {
			return err
		}
		_, err = client.UpdateStatus(ctx, u, metav1.UpdateOptions{})
		return ignoreGone(err)
	}
	if gone {
		u, err := toUnstructured(wanted, kind)
		if err != nil {
			return err
		}
		_, err = client.Update(ctx, u, metav1.UpdateOptions{})
		return ignoreGone(err)
	}
	return nil
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func toUnstructured(obj runtime.Object, kind interface {
	ToAPIVersionAndKind() (string, string)
}) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: content}
	version, name := kind.ToAPIVersionAndKind()
	u.SetAPIVersion(version)
	u.SetKind(name)
	return u, nil
}
