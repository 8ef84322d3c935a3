package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
	"github.com/kcplane/kcp/fleet/internal/identity"
	"github.com/kcplane/kcp/fleet/internal/loop"
)

// clusterReconciler keeps the condition Ready of Clusters, and issues the first certificate of each agent after its approval.
type clusterReconciler struct {
	*fleet
	mu        sync.Mutex           // guards all below, which have names of Clusters as keys
	seen      map[string]heartbeat // the last heartbeats
	scheduled map[string]string    // the states on which the last decisions depend
	rooms     map[string]string    // what was free
}

// heartbeat is the last renewal of a Lease, with the time of this process at which it was seen: clocks of clusters may differ.
type heartbeat struct {
	renewed time.Time
	at      time.Time
}

func (f *fleet) addClusters(manager ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(manager).Named("clusters").For(&v1alpha1.Cluster{}).
		WithOptions(controller.Options{RateLimiter: loop.RateLimiter[ctrl.Request]()}).
		Watches(&coordinationv1.Lease{}, &handler.EnqueueRequestForObject{}).
		Complete(&clusterReconciler{fleet: f, seen: map[string]heartbeat{}, scheduled: map[string]string{}, rooms: map[string]string{}})
}

// Reconcile implements reconcile.Reconciler.
func (r *clusterReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	cluster := &v1alpha1.Cluster{}
	key := client.ObjectKey{Name: request.Name}
	if err := r.provider.Get(ctx, key, cluster); err != nil {
		r.forget(request.Name)
		r.sessions.keep(request.Name, "")
		r.reschedule(ctx)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	r.sessions.keep(cluster.Name, cluster.Spec.ApprovedKey)
	lease := &coordinationv1.Lease{}
	err := r.provider.Get(ctx, client.ObjectKey{Namespace: v1alpha1.Namespace, Name: cluster.Name}, lease)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	updated := cluster.DeepCopy()
	condition, again := r.readiness(cluster.Name, lease)
	condition.ObservedGeneration = cluster.Generation
	changed := meta.SetStatusCondition(&updated.Status.Conditions, condition)
	issued, err := r.issue(updated)
	if err != nil {
		ctrl.Log.Info("Certificate not issued", "cluster", cluster.Name, "error", err.Error())
	}
	if changed || issued {
		patch := client.MergeFromWithOptions(cluster, client.MergeFromWithOptimisticLock{})
		if err := r.provider.Status().Patch(ctx, updated, patch); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
	}
	if r.differs(cluster, condition.Status) {
		r.reschedule(ctx)
	}
	if r.hasOtherRoom(cluster) {
		for _, n := range r.problems.withoutCluster() {
			r.queue.Add(n)
		}
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// differs reports whether decisions depend on something that has changed since the last call, and remembers it. The cache may not have
// the condition yet, which triggers the next call.
func (r *clusterReconciler) differs(cluster *v1alpha1.Cluster, ready metav1.ConditionStatus) bool {
	cached := meta.IsStatusConditionTrue(cluster.Status.Conditions, v1alpha1.ClusterReady)
	states := make([]string, len(cluster.Status.Resources))
	for i, resource := range cluster.Status.Resources { // without messages, which may change with each comparison
		states[i] = fmt.Sprint(resource.Resource, ".", resource.Group, "=", resource.State)
	}
	state := fmt.Sprint(cluster.UID, cluster.Generation, cluster.Labels, cluster.DeletionTimestamp, ready, cached, states)
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.scheduled[cluster.Name] = state }()
	return r.scheduled[cluster.Name] != state
}

// hasOtherRoom reports whether what is free has changed since the last call, and remembers it. Only namespaces without a cluster depend on
// it: all others stay where they are.
func (r *clusterReconciler) hasOtherRoom(cluster *v1alpha1.Cluster) bool {
	lists, _ := json.Marshal([]corev1.ResourceList{cluster.Status.Capacity, cluster.Status.Requested}) // quantities have no error
	room := string(lists)
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.rooms[cluster.Name] = room }()
	return r.rooms[cluster.Name] != room
}

func (r *clusterReconciler) forget(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.seen, name)
	delete(r.scheduled, name)
	delete(r.rooms, name)
}

// readiness returns the condition Ready, and the time until it may change.
func (r *clusterReconciler) readiness(name string, lease *coordinationv1.Lease) (metav1.Condition, time.Duration) {
	condition := metav1.Condition{Type: v1alpha1.ClusterReady, Status: metav1.ConditionFalse, Reason: "WaitingForAgent",
		Message: "the agent has never connected: apply the manifest of kubectl kcp fleet join to the cluster"}
	if lease.Spec.RenewTime == nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		return condition, 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	last, now := r.seen[name], time.Now()
	if !last.renewed.Equal(lease.Spec.RenewTime.Time) {
		last = heartbeat{lease.Spec.RenewTime.Time, now}
		r.seen[name] = last
	}
	if left := r.options.Lost - now.Sub(last.at); left > 0 {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionTrue, "AgentConnected", "the agent renews its Lease"
		return condition, left
	}
	condition.Reason = "AgentLost"
	condition.Message = fmt.Sprintf(
		"the agent has not renewed its Lease for %s: check its pod, and its connection to the fleet",
		r.options.Lost,
	)
	return condition, 0
}

// issue issues a certificate for an approved request.
func (r *clusterReconciler) issue(cluster *v1alpha1.Cluster) (bool, error) {
	status := &cluster.Status
	if status.Request == "" || identity.IsFor(status.Certificate, status.Request) {
		return false, nil
	}
	fingerprint, err := identity.Fingerprint(status.Request)
	if err != nil || fingerprint != cluster.Spec.ApprovedKey {
		return false, err
	}
	status.Certificate, err = r.authority.Issue(cluster.Name, fingerprint, status.Request, time.Now())
	return err == nil, err
}

// reschedule decides again on the namespaces of all workspaces with a placement.
func (r *clusterReconciler) reschedule(ctx context.Context) {
	r.shards.mu.Lock()
	running := make([]*shard, 0, len(r.shards.running))
	for _, s := range r.shards.running {
		running = append(running, s)
	}
	r.shards.mu.Unlock()
	for _, s := range running {
		s.scheduleAll(ctx)
	}
}
