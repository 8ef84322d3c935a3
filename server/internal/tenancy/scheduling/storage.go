package scheduling

import (
	"context"
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	kcpstorage "github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/logicalcluster"
)

var (
	workspaces      = tenancyv1alpha1.Resource("workspaces")
	logicalClusters = corev1alpha1.Resource("logicalclusters")
)

// Options returns base for custom resources, with the logical cluster of a Workspace stored by the request that creates
// the Workspace. The controller of workspaces decides everything that is not known by then.
func (s *Scheduler) Options(base generic.RESTOptionsGetter) generic.RESTOptionsGetter {
	return kcpstorage.OptionsGetter(func(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
		options, err := base.GetRESTOptions(resource, example)
		if err != nil || (resource != workspaces && resource != logicalClusters) {
			return options, err
		}
		inner := options.Decorator
		options.Decorator = func(config *storagebackend.ConfigForResource, prefix string, keyFunc func(runtime.Object) (string, error), newFunc,
			newListFunc func() runtime.Object,
			attrs storage.AttrFunc, triggers storage.IndexerFuncs, indexers *cache.Indexers) (storage.Interface, factory.DestroyFunc, error) {
			plain, destroy, err := inner(config, prefix, keyFunc, newFunc, newListFunc, attrs, triggers, indexers)
			if err != nil {
				return nil, nil, err
			}
			if resource == logicalClusters {
				return &logicalClusterStorage{Interface: plain, scheduler: s}, destroy, nil
			}
			return &workspaceStorage{Interface: plain, scheduler: s}, destroy, nil
		}
		return options, nil
	})
}

// workspaceStorage stores the LogicalCluster of a new Workspace together with the Workspace: neither exists without the
// other.
type workspaceStorage struct {
	storage.Interface
	scheduler *Scheduler
}

func (w *workspaceStorage) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("unexpected type of a workspace: %T", obj)
	}
	parent, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return err
	}
	ws, name, lc, err := w.scheduler.schedule(parent, u)
	if err != nil || lc == nil {
		decisionlog.ForDecision(ctx).Info("Leaving the workspace to the scheduling controller", decisionlog.Cluster, parent, decisionlog.Name,
			u.GetName(), decisionlog.Reason, err)
		return w.Interface.Create(ctx, key, obj, out, ttl)
	}
	if w.scheduler.IsElsewhere(ws) {
		return w.createElsewhere(ctx, key, u, out, ttl, name, lc)
	}
	both := &kcpstorage.Transaction{}
	defer both.End()
	wait := w.scheduler.ExpectCluster(name)
	defer func() { wait(ctx, err == nil) }()
	seen, forget := w.scheduler.workspaceArrivals.expect(informers.Key{Cluster: parent, Name: u.GetName()})
	defer forget()
	if err = w.scheduler.Clusters.CreateAsRead(kcpstorage.WithoutRestriction(both.Hold(logicalcluster.WithName(ctx, name))),
		corev1alpha1.LogicalClusterName, lc); err != nil {
		return fmt.Errorf("logical cluster of workspace %s: %w", u.GetName(), err)
	}
	if err = w.Interface.Create(both.Commit(ctx), key, obj, kcpstorage.Stored(obj, out), ttl); err == nil {
		seen(ctx)
	}
	return err
}

// createElsewhere stores a Workspace with its place on another shard, and then has its logical cluster created there. The place is stored
// first: after a crash, the controller creates the same logical cluster and no second one.
func (w *workspaceStorage) createElsewhere(ctx context.Context, key string, u *unstructured.Unstructured, out runtime.Object, ttl uint64,
	name logicalcluster.Name, lc *corev1alpha1.LogicalCluster) error {
	if err := w.Interface.Create(ctx, key, u, kcpstorage.Stored(u, out), ttl); err != nil {
		return err
	}
	placed, ok := out.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("unexpected type of a created workspace: %T", out)
	}
	known := &tenancyv1alpha1.Workspace{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(placed.Object, known); err != nil {
		return err
	}
	stored, done := w.scheduler.complete(ctx, known, name, lc)
	var err error
	switch {
	case stored != nil:
		respond(stored, placed)
	case done:
		err = w.Interface.Get(ctx, key, storage.GetOptions{}, placed)
	}
	w.scheduler.seen(ctx, logicalcluster.Of(known))
	return err
}

// respond makes out, a workspace without a location, equal to the stored one with its location. It does not decode the stored one: decoding
// costs more than the rest of the response.
func respond(stored *tenancyv1alpha1.Workspace, out *unstructured.Unstructured) {
	out.SetGeneration(stored.Generation)
	out.SetResourceVersion(stored.ResourceVersion)
	show(stored, out)
}

// logicalClusterStorage responds to the creation of a LogicalCluster when its cluster can be entered.
type logicalClusterStorage struct {
	storage.Interface
	scheduler *Scheduler
}

func (l *logicalClusterStorage) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	name, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return err
	}
	wait := l.scheduler.ExpectCluster(name)
	err = l.Interface.Create(ctx, key, obj, out, ttl)
	wait(ctx, err == nil)
	return err
}

// ExpectCluster must be called before a LogicalCluster is stored, and the returned function afterwards: it waits until
// this server knows the cluster, if it was stored.
func (s *Scheduler) ExpectCluster(name logicalcluster.Name) func(ctx context.Context, stored bool) {
	key := informers.Key{Cluster: name, Name: corev1alpha1.LogicalClusterName}
	seen, forget := s.clusterArrivals.expect(key)
	return func(ctx context.Context, stored bool) {
		defer forget()
		if stored && !s.LogicalClusters.Has(key.Cluster, "", key.Name) {
			seen(ctx)
		}
	}
}

// schedule returns the LogicalCluster of a new workspace, and sets its location in the workspace, or only its place if that is another
// shard. The LogicalCluster is nil if an input is missing. It converts only the parts of the workspace that it needs, because converting
// the managed fields alone costs more than these.
func (s *Scheduler) schedule(parent logicalcluster.Name, u *unstructured.Unstructured) (*tenancyv1alpha1.Workspace, logicalcluster.Name,
	*corev1alpha1.LogicalCluster, error) {
	ws := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{
		Name: u.GetName(), UID: u.GetUID(), Labels: u.GetLabels(), Annotations: u.GetAnnotations(), Finalizers: u.GetFinalizers(),
	}}
	spec, _ := u.Object["spec"].(map[string]any)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &ws.Spec); err != nil {
		return nil, "", nil, err
	}
	if ws.Spec.Mount != nil || ws.Spec.Cluster != "" {
		return nil, "", nil, nil
	}
	if ws.Annotations == nil {
		ws.Annotations = map[string]string{}
	}
	ws.Annotations[logicalcluster.AnnotationKey] = string(parent)
	shard, err := s.Shard(ws)
	if err != nil {
		return nil, "", nil, err
	}
	name := NewName()
	ws.Annotations[tenancyv1alpha1.ShardAnnotation] = shard
	lc, err := s.LogicalCluster(ws, name)
	if err != nil {
		return nil, "", nil, err
	}
	if s.IsElsewhere(ws) {
		SetPlacement(ws, shard, name)
		ws.Status.Phase = corev1alpha1.LogicalClusterPhaseScheduling
	} else {
		s.SetLocation(ws, name, lc)
	}
	show(ws, u)
	return ws, name, lc, nil
}

// show writes into u what the scheduler changes in a workspace.
func show(ws *tenancyv1alpha1.Workspace, u *unstructured.Unstructured) {
	u.SetLabels(ws.Labels)
	u.SetAnnotations(ws.Annotations)
	u.SetFinalizers(ws.Finalizers)
	before, _ := u.Object["spec"].(map[string]any)
	spec := make(map[string]any, len(before)+2) // others may have the map
	maps.Copy(spec, before)
	set(spec, "cluster", ws.Spec.Cluster)
	set(spec, "URL", ws.Spec.URL)
	u.Object["spec"], u.Object["status"] = spec, contentOf(&ws.Status)
}

// contentOf returns a status as an Unstructured has it. Upstream's converter takes ten times as long.
func contentOf(status *tenancyv1alpha1.WorkspaceStatus) map[string]any {
	content := map[string]any{}
	set(content, "phase", string(status.Phase))
	setAll(content, "initializers", status.Initializers)
	setAll(content, "terminators", status.Terminators)
	all := make([]any, len(status.Conditions))
	for i, c := range status.Conditions {
		condition := map[string]any{"type": c.Type, "status": string(c.Status), "lastTransitionTime": c.LastTransitionTime.ToUnstructured()}
		set(condition, "severity", string(c.Severity))
		set(condition, "reason", c.Reason)
		set(condition, "message", c.Message)
		all[i] = condition
	}
	if len(all) > 0 {
		content["conditions"] = all
	}
	return content
}

// set sets a field that is omitted if it is empty.
func set(content map[string]any, field, value string) {
	if value != "" {
		content[field] = value
	}
}

func setAll[S ~string](content map[string]any, field string, values []S) {
	if len(values) == 0 {
		return
	}
	all := make([]any, len(values))
	for i, value := range values {
		all[i] = string(value)
	}
	content[field] = all
}
