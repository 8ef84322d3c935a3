package controller

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
	"github.com/kcplane/kcp/client/workspaces"
	"github.com/kcplane/kcp/fleet/internal/feed"
	"github.com/kcplane/kcp/fleet/internal/loop"
	"github.com/kcplane/kcp/fleet/internal/placement"
	"github.com/kcplane/kcp/fleet/internal/summary"
)

// system are the namespaces that every workspace and every cluster has for itself.
var system = map[string]bool{"kube-system": true, "kube-public": true, "kube-node-lease": true}

// followAssignments keeps the Assignments of the index up to date.
func (f *fleet) followAssignments(ctx context.Context, from cache.Cache) error {
	informer, err := from.GetInformer(ctx, &v1alpha1.Assignment{})
	if err != nil {
		return err
	}
	registration, err := informer.AddEventHandler(loop.Handler(func(a *v1alpha1.Assignment, deleted bool) {
		n := feed.Namespace{Endpoint: a.Spec.Endpoint, Workspace: a.Spec.Workspace, Name: a.Spec.Namespace}
		f.queue.Add(n)
		changed := true
		if deleted {
			f.index.RemoveAssignment(a)
		} else {
			changed = f.index.SetAssignment(a)
		}
		f.pods.Changed(ctx, a.Spec.Workspace)
		if changed {
			f.writeStatuses(n)
		}
	}))
	if err != nil {
		return err
	}
	if toolscache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		f.index.SetReady()
	}
	return nil
}

// schedule decides on one namespace.
func (f *fleet) schedule(ctx context.Context, n feed.Namespace) (time.Duration, error) {
	s := f.shards.at(n.Endpoint)
	if s == nil || system[n.Name] {
		return 0, nil // the namespaces of an endpoint are decided on when it is known
	}
	ctx = workspaces.In(ctx, n.Workspace)
	selected, err := s.placementOf(ctx, n.Name)
	if err != nil {
		return 0, err
	}
	list := &v1alpha1.ClusterList{}
	if err := f.provider.List(ctx, list); err != nil {
		return 0, err
	}
	snapshot := placement.Snapshot{
		Key: n.Workspace + "/" + n.Name, Clusters: list.Items, Assignments: f.index.Assignments(n), BoundClaim: f.index.BoundClaim(n),
		Expected: f.index.Expected(list.Items), Now: time.Now(),
	}
	snapshot.Requests, snapshot.Resources = f.index.Demand(n)
	if selected != nil {
		snapshot.Placement = &selected.Spec
	}
	d, err := placement.Decide(snapshot)
	if err != nil {
		return 0, s.report(ctx, scheduled, n, "", selected, problem{noClusterFits, err.Error()})
	}
	if !d.Moves {
		f.moves.forget(n)
	} else if wait := f.moves.wait(n, snapshot.Now); wait > 0 {
		d.Create, d.Share, d.Drain, d.Again = nil, nil, nil, wait
	}
	if err := f.apply(ctx, n, snapshot.Assignments, d); err != nil {
		return 0, err
	}
	found := problem{}
	switch {
	case d.Unscheduled != "":
		found = problem{noClusterFits, d.Unscheduled}
	case d.Pinned != "":
		found = problem{"VolumeBound", d.Pinned}
	}
	return d.Again, s.report(ctx, scheduled, n, "", selected, found)
}

// placementOf returns the first placement of the workspace in the context that selects a namespace, or nil.
func (s *shard) placementOf(ctx context.Context, name string) (*v1alpha1.Placement, error) {
	namespace := &corev1.Namespace{}
	err := s.manager.GetClient().Get(ctx, client.ObjectKey{Name: name}, namespace)
	if apierrors.IsNotFound(err) {
		err = s.manager.GetAPIReader().Get(ctx, client.ObjectKey{Name: name}, namespace)
	}
	if apierrors.IsNotFound(err) || (err == nil && namespace.DeletionTimestamp != nil) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	list := &v1alpha1.PlacementList{}
	if err := s.manager.GetClient().List(ctx, list); err != nil {
		return nil, err
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.Placement) int { return strings.Compare(a.Name, b.Name) })
	for i := range list.Items {
		p := &list.Items[i]
		if p.DeletionTimestamp != nil {
			continue
		}
		selector := labels.Everything()
		if p.Spec.NamespaceSelector != nil {
			if selector, err = metav1.LabelSelectorAsSelector(p.Spec.NamespaceSelector); err != nil {
				continue // admission has not refused it, and it selects nothing
			}
		}
		if selector.Matches(labels.Set(namespace.Labels)) {
			return p, nil
		}
	}
	return nil, nil
}

// apply writes a decision.
func (f *fleet) apply(ctx context.Context, n feed.Namespace, current []v1alpha1.Assignment, d placement.Decision) error {
	for cluster, share := range d.Create {
		a := &v1alpha1.Assignment{
			ObjectMeta: metav1.ObjectMeta{
				Name: feed.AssignmentName(n.Workspace, n.Name, cluster), Labels: map[string]string{v1alpha1.ClusterLabel: cluster},
			},
			Spec: v1alpha1.AssignmentSpec{Workspace: n.Workspace, Namespace: n.Name, Cluster: cluster, Endpoint: n.Endpoint, Share: share},
		}
		if err := f.create(ctx, a); err != nil {
			return err
		}
		ctrl.Log.Info("Assigned namespace", "workspace", n.Workspace, "namespace", n.Name, "cluster", cluster)
	}
	for i := range current {
		a := current[i].DeepCopy()
		share, changes := d.Share[a.Spec.Cluster]
		switch {
		case slices.Contains(d.Delete, a.Spec.Cluster):
			if err := f.provider.Delete(ctx, a, client.Preconditions{UID: &a.UID}); client.IgnoreNotFound(err) != nil {
				return err
			}
			continue
		case slices.Contains(d.Drain, a.Spec.Cluster):
			a.Spec.Draining = true
			ctrl.Log.Info("Draining namespace", "workspace", n.Workspace, "namespace", n.Name, "cluster", a.Spec.Cluster)
		case changes:
			a.Spec.Share = share
		default:
			continue
		}
		if err := f.provider.Update(ctx, a); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// create creates an Assignment. If the workspace has moved to another shard, the Assignment exists with its former endpoint.
func (f *fleet) create(ctx context.Context, a *v1alpha1.Assignment) error {
	err := f.provider.Create(ctx, a)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	former := &v1alpha1.Assignment{}
	if err := f.provider.Get(ctx, client.ObjectKeyFromObject(a), former); err != nil {
		return client.IgnoreNotFound(err)
	}
	if former.Spec.Endpoint == a.Spec.Endpoint {
		return nil
	}
	former.Spec.Endpoint = a.Spec.Endpoint
	return f.provider.Update(ctx, former)
}

// writeStatus writes the status of an object in its workspace: what its clusters report.
func (f *fleet) writeStatus(ctx context.Context, o object) (time.Duration, error) {
	s := f.shards.at(o.Endpoint)
	if s == nil {
		return 0, nil
	}
	known, assignments, reports := f.index.Reports(o.Namespace, o.Key)
	if err := s.reportRefused(ctx, o, reports); err != nil || known == nil {
		return 0, err
	}
	status := statusOf(o.Key, assignments, reports)
	former, _, _ := unstructured.NestedMap(known.Object, "status")
	if status == nil || equality.Semantic.DeepEqual(status, former) {
		return 0, nil
	}
	ctx = workspaces.In(ctx, o.Workspace)
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(known.GroupVersionKind())
	key := client.ObjectKey{Namespace: o.Namespace.Name, Name: o.Key.Name}
	if err := s.manager.GetAPIReader().Get(ctx, key, live); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	if live.GetUID() != known.GetUID() {
		return 0, nil
	}
	live.Object["status"] = status
	return 0, client.IgnoreNotFound(s.manager.GetClient().Status().Update(ctx, live))
}

// writeStatuses writes the status of all objects of a namespace.
func (f *fleet) writeStatuses(n feed.Namespace) {
	for _, key := range f.index.Keys(n) {
		f.reported.Add(object{n, key})
	}
}

// statusOf returns the status that the workspace shows, or nil if it is not known. While a copy moves, it is that of the copy that works.
// An empty status is not known: no controller of the cluster has looked at the object yet.
func statusOf(key feed.Key, assignments map[string]*v1alpha1.Assignment, reports map[string]feed.Report) map[string]any {
	statuses, whole := map[string]map[string]any{}, ""
	for cluster, a := range assignments {
		report, ok := reports[cluster]
		if !ok || len(report.Status) == 0 {
			if a.Spec.Share != nil && a.Status.Phase == v1alpha1.AssignmentReady {
				return nil // its part is not known
			}
			continue
		}
		statuses[cluster] = report.Status
		if a.Spec.Share != nil {
			continue
		}
		if whole == "" || cmp.Or(readyFirst(a, assignments[whole]), strings.Compare(cluster, whole)) < 0 {
			whole = cluster
		}
	}
	if whole != "" {
		return summary.Merge(key.Resource.GroupResource(), map[string]map[string]any{whole: statuses[whole]})
	}
	return summary.Merge(key.Resource.GroupResource(), statuses)
}

func readyFirst(a, b *v1alpha1.Assignment) int {
	x, y := a.Status.Phase == v1alpha1.AssignmentReady, b.Status.Phase == v1alpha1.AssignmentReady
	switch {
	case x == y:
		return 0
	case x:
		return -1
	}
	return 1
}
