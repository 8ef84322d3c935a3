package logicalcluster

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/controllers/controller"
	"github.com/kcplane/kcp/server/controllers/namespace"
	"github.com/kcplane/kcp/server/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Inputs of the controller. Clients reach the cluster in each call's context.
type Inputs struct {
	Set       *informers.Set
	Dynamic   dynamic.Interface
	Metadata  metadata.Interface
	Resources namespace.Resources
	Holds     namespace.Holds
	// ExternalURL of the installation, without a trailing slash.
	ExternalURL string
}

const (
	remainingInterval = time.Second
	orphanAge         = time.Minute
)

var (
	resource   = corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters")
	workspaces = tenancyv1alpha1.SchemeGroupVersion.WithResource("workspaces")
)

type reconciler struct {
	Inputs
	controller *controller.Controller
	started    time.Time
}

// New returns the controller. Its keys are LogicalClusters.
func New(in Inputs) *controller.Controller {
	r := &reconciler{Inputs: in, started: time.Now()}
	r.controller = controller.New("logicalcluster", 8, r.reconcile)
	r.controller.Watch(in.Set.LogicalClusters.Informer)
	return r.controller
}

func (r *reconciler) reconcile(ctx context.Context, key informers.Key) error {
	lc, err := r.Set.LogicalClusters.Get(key.Cluster, "", key.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil || r.settled(lc) {
		return err
	}
	u, err := r.Dynamic.Resource(resource).Get(ctx, key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	live := &corev1alpha1.LogicalCluster{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, live); err != nil {
		return err
	}
	if orphan, err := r.orphan(ctx, key, live); orphan || err != nil {
		return err
	}
	wanted := next(live, r.ExternalURL)
	if wanted.Status.Phase == corev1alpha1.LogicalClusterPhaseDeleting && slices.Contains(live.Finalizers, corev1alpha1.DeletionFinalizer) {
		remaining, err := r.deleteContent(ctx)
		if err != nil {
			return err
		}
		wanted.Status.Conditions = withContentCondition(live.Status.Conditions, remaining)
		if len(remaining) == 0 {
			wanted.Finalizers = slices.DeleteFunc(wanted.Finalizers, func(f string) bool { return f == corev1alpha1.DeletionFinalizer })
		} else {
			r.controller.EnqueueAfter(key, remainingInterval)
		}
	}
	return r.commit(ctx, live, wanted)
}

// settled tells whether a logical cluster needs nothing.
func (r *reconciler) settled(lc *corev1alpha1.LogicalCluster) bool {
	return lc.DeletionTimestamp == nil && lc.Status.Phase == nextPhase(lc) && lc.Labels[corev1alpha1.PhaseLabel] == string(lc.Status.Phase) &&
		lc.Status.URL == urlOf(lc, r.ExternalURL) && lc.Status.Phase == corev1alpha1.LogicalClusterPhaseReady &&
		slices.Contains(lc.Finalizers, corev1alpha1.TerminatorsFinalizer) == (len(lc.Status.Terminators) > 0) && !r.suspect(lc)
}

// suspect tells whether a logical cluster may be what a crash has left of a workspace that was never stored: one from
// before this process, without its workspace.
func (r *reconciler) suspect(lc *corev1alpha1.LogicalCluster) bool {
	owner := lc.Spec.Owner
	if owner == nil || owner.Resource != workspaces.Resource || lc.DeletionTimestamp != nil || !lc.CreationTimestamp.Time.Before(r.started) {
		return false
	}
	_, err := r.Set.Workspaces.Get(logicalcluster.Name(owner.Cluster), "", owner.Name)
	return apierrors.IsNotFound(err)
}

// orphan deletes a logical cluster whose workspace does not exist, once it is old enough for a request of another server
// that is still storing the workspace.
func (r *reconciler) orphan(ctx context.Context, key informers.Key, lc *corev1alpha1.LogicalCluster) (bool, error) {
	if !r.suspect(lc) {
		return false, nil
	}
	if age := time.Since(lc.CreationTimestamp.Time); age < orphanAge {
		r.controller.EnqueueAfter(key, orphanAge-age)
		return true, nil
	}
	owner := lc.Spec.Owner
	found, err := r.Dynamic.Resource(workspaces).Get(logicalcluster.WithName(ctx, logicalcluster.Name(owner.Cluster)), owner.Name, metav1.GetOptions{})
	if err == nil && found.GetUID() == owner.UID {
		return false, nil
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return false, err
	}
	return true, ignoreGone(r.Dynamic.Resource(resource).Delete(ctx, key.Name, metav1.DeleteOptions{}))
}

// commit writes what changed: first the status, then the metadata, whose finalizers may make the object go.
func (r *reconciler) commit(ctx context.Context, old, wanted *corev1alpha1.LogicalCluster) error {
	client := r.Dynamic.Resource(resource)
	if !reflect.DeepEqual(old.Status, wanted.Status) {
		status := old.DeepCopy()
		status.Status = wanted.Status
		u, err := toUnstructured(status)
		if err != nil {
			return err
		}
		updated, err := client.UpdateStatus(ctx, u, metav1.UpdateOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		wanted.ResourceVersion = updated.GetResourceVersion()
	}
	if maps.Equal(old.Labels, wanted.Labels) && slices.Equal(old.Finalizers, wanted.Finalizers) {
		return nil
	}
	u, err := toUnstructured(wanted)
	if err != nil {
		return err
	}
	if _, err = client.Update(ctx, u, metav1.UpdateOptions{}); apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func toUnstructured(lc *corev1alpha1.LogicalCluster) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(lc)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(corev1alpha1.SchemeGroupVersion.WithKind("LogicalCluster"))
	return u, nil
}
