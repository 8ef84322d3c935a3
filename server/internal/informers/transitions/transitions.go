// Package transitions logs the state changes of kcp's own objects: phases, what an object waits for, conditions, identities and
// deletions. It reads them from the informers, so that it sees a change whatever made it, and keeps nothing of the objects.
package transitions

import (
	"context"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	cachev1alpha1 "github.com/kcplane/kcp/api/cache/v1alpha1"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Log logs the changes of the objects of a set.
type Log struct {
	set *informers.Set
	// began is when the log began. Older objects are logged only if they wait for something.
	began time.Time
}

// New returns a log of the changes in set, which must be a branch that ends with the context of Run.
func New(set *informers.Set, c clock.PassiveClock) *Log { return &Log{set: set, began: c.Now()} }

// Run logs changes until ctx ends. At a lower verbosity than that of state changes it does not read the objects.
func (l *Log) Run(ctx context.Context) {
	if decisionlog.LogsChanges(ctx) {
		s := l.set
		s.LogicalClusters.AddHandler(handler(func(old, lc *corev1alpha1.LogicalCluster) { l.logicalCluster(ctx, old, lc) }))
		s.Workspaces.AddHandler(handler(func(old, ws *tenancyv1alpha1.Workspace) { l.workspace(ctx, old, ws) }))
		s.APIBindings.AddHandler(handler(func(old, b *apisv1alpha2.APIBinding) { l.binding(ctx, old, b) }))
		s.APIExports.AddHandler(handler(func(old, e *apisv1alpha2.APIExport) { l.export(ctx, old, e) }))
		s.WorkspaceTypes.AddHandler(handler(func(old, t *tenancyv1alpha1.WorkspaceType) {
			compare(ctx, "workspacetypes", t, conditionsOf(old, t, func(t *tenancyv1alpha1.WorkspaceType) []corev1alpha1.Condition {
				return t.Status.Conditions
			}))
		}))
		s.APIExportEndpointSlices.AddHandler(handler(func(old, slice *apisv1alpha1.APIExportEndpointSlice) {
			compare(ctx, "apiexportendpointslices", slice, conditionsOf(old, slice,
				func(s *apisv1alpha1.APIExportEndpointSlice) []corev1alpha1.Condition { return s.Status.Conditions }))
		}))
		s.ClusterCachedResources.AddHandler(handler(func(old, r *cachev1alpha1.ClusterCachedResource) {
			compare(ctx, "clustercachedresources", r, conditionsOf(old, r,
				func(r *cachev1alpha1.ClusterCachedResource) []corev1alpha1.Condition { return r.Status.Conditions }))
		}))
	}
	<-ctx.Done()
}

// handler returns an informer's handler that gets nil pointers for objects that do not exist.
func handler[T runtime.Object](compare func(old, obj T)) informers.Handler {
	return func(oldObj, newObj runtime.Object) {
		old, _ := oldObj.(T)
		obj, _ := newObj.(T)
		compare(old, obj)
	}
}

// isNew reports whether an object was created since the log began. Times of creation have seconds.
func (l *Log) isNew(obj metav1.Object) bool {
	return obj.GetCreationTimestamp().Time.After(l.began.Add(-time.Second))
}

// logicalCluster logs a change of a logical cluster. It counts against the limit of the logical cluster of its workspace: a tenant can
// create very many workspaces.
func (l *Log) logicalCluster(ctx context.Context, old, lc *corev1alpha1.LogicalCluster) {
	known := lc
	if lc == nil {
		known = old
	}
	cluster, path := logicalcluster.Of(known), known.Annotations[corev1alpha1.PathAnnotation]
	tenant := cluster
	if owner := known.Spec.Owner; owner != nil {
		tenant = logicalcluster.Name(owner.Cluster)
	}
	message := ""
	switch {
	case lc == nil:
		message = "Logical cluster deleted"
	case old == nil && l.isNew(lc):
		message = "Logical cluster created"
	case old == nil && lc.Status.Phase != corev1alpha1.LogicalClusterPhaseReady:
		message = "Logical cluster is not ready"
	case old == nil:
		return
	case old.DeletionTimestamp == nil && lc.DeletionTimestamp != nil:
		message = "Deletion of a logical cluster started"
	case old.Status.Phase != lc.Status.Phase:
		message = "Logical cluster changed its phase"
	case !slices.Equal(old.Status.Initializers, lc.Status.Initializers), !slices.Equal(old.Status.Terminators, lc.Status.Terminators):
		message = "Logical cluster waits for other initializers or terminators"
	default:
		for _, c := range changed(old.Status.Conditions, lc.Status.Conditions) {
			logCondition(ctx, tenant, "logicalclusters", lc, c)
		}
		return
	}
	if logger := decisionlog.ForChange(ctx, tenant); logger.Enabled() {
		logger.Info(message, decisionlog.Cluster, cluster, decisionlog.Workspace, path, decisionlog.Phase, known.Status.Phase,
			decisionlog.Waiting, waiting(known))
	}
}

// waiting returns the initializers, or the terminators, that a logical cluster waits for.
func waiting(lc *corev1alpha1.LogicalCluster) string {
	var names []string
	if lc.DeletionTimestamp == nil {
		for _, i := range lc.Status.Initializers {
			names = append(names, string(i))
		}
	} else {
		for _, t := range lc.Status.Terminators {
			names = append(names, string(t))
		}
	}
	return strings.Join(names, ",")
}

// workspace logs a change of a workspace that its logical cluster does not have: it is not scheduled, it is unavailable, or it is mounted.
func (l *Log) workspace(ctx context.Context, old, ws *tenancyv1alpha1.Workspace) {
	if ws == nil || (old != nil && old.Status.Phase == ws.Status.Phase && (old.Spec.Cluster == "") == (ws.Spec.Cluster == "")) {
		return
	}
	message := ""
	switch {
	case ws.Spec.Mount != nil && (old != nil || l.isNew(ws) || ws.Status.Phase != corev1alpha1.LogicalClusterPhaseReady):
		message = "Mounted workspace changed its phase"
	case ws.Spec.Mount != nil:
		return
	case ws.Spec.Cluster == "":
		message = "Workspace is not scheduled"
	case old != nil && old.Spec.Cluster == "":
		message = "Workspace scheduled"
	case ws.Status.Phase == corev1alpha1.LogicalClusterPhaseUnavailable:
		message = "Workspace is unavailable"
	default:
		return
	}
	parent := logicalcluster.Of(ws)
	if logger := decisionlog.ForChange(ctx, parent); logger.Enabled() {
		logger.Info(message, decisionlog.Cluster, parent, decisionlog.Resource, "workspaces", decisionlog.Name, ws.Name,
			decisionlog.Phase, ws.Status.Phase)
	}
}

// binding logs a change of an APIBinding.
func (l *Log) binding(ctx context.Context, old, b *apisv1alpha2.APIBinding) {
	if b == nil {
		return
	}
	if b.Status.Phase != "" && ((old == nil && (l.isNew(b) || b.Status.Phase != apisv1alpha2.APIBindingPhaseBound)) ||
		(old != nil && old.Status.Phase != b.Status.Phase)) {
		cluster := logicalcluster.Of(b)
		if logger := decisionlog.ForChange(ctx, cluster); logger.Enabled() {
			logger.Info("APIBinding changed its phase", decisionlog.Cluster, cluster, decisionlog.Resource, "apibindings",
				decisionlog.Name, b.Name, decisionlog.Phase, b.Status.Phase)
		}
	}
	conditions := func(b *apisv1alpha2.APIBinding) []corev1alpha1.Condition { return b.Status.Conditions }
	compare(ctx, "apibindings", b, conditionsOf(old, b, conditions))
}

// export logs a change of an APIExport.
func (l *Log) export(ctx context.Context, old, e *apisv1alpha2.APIExport) {
	if e == nil {
		return
	}
	if hash := e.Status.IdentityHash; hash != "" && ((old == nil && l.isNew(e)) || (old != nil && old.Status.IdentityHash != hash)) {
		cluster := logicalcluster.Of(e)
		if logger := decisionlog.ForChange(ctx, cluster); logger.Enabled() {
			logger.Info("APIExport has a new identity", decisionlog.Cluster, cluster, decisionlog.Resource, "apiexports",
				decisionlog.Name, e.Name, decisionlog.Identity, hash)
		}
	}
	conditions := func(e *apisv1alpha2.APIExport) []corev1alpha1.Condition { return e.Status.Conditions }
	compare(ctx, "apiexports", e, conditionsOf(old, e, conditions))
}

// conditionsOf returns the conditions of an object that have changed. The conditions of an object that has just been found count if they
// are False.
func conditionsOf[T comparable](old, obj T, conditions func(T) []corev1alpha1.Condition) []corev1alpha1.Condition {
	var none T
	switch {
	case obj == none:
		return nil
	case old == none:
		return changed(nil, conditions(obj))
	}
	return changed(conditions(old), conditions(obj))
}

// changed returns the conditions that have another status, reason or message than before, or that are new and not True.
func changed(old, all []corev1alpha1.Condition) []corev1alpha1.Condition {
	var result []corev1alpha1.Condition
	for _, c := range all {
		i := slices.IndexFunc(old, func(o corev1alpha1.Condition) bool { return o.Type == c.Type })
		if i < 0 && c.Status != metav1.ConditionTrue ||
			i >= 0 && (old[i].Status != c.Status || old[i].Reason != c.Reason || old[i].Message != c.Message) {
			result = append(result, c)
		}
	}
	return result
}

// compare logs conditions of an object that have changed.
func compare(ctx context.Context, resource string, obj metav1.Object, conditions []corev1alpha1.Condition) {
	for _, c := range conditions {
		logCondition(ctx, logicalcluster.Of(obj), resource, obj, c)
	}
}

func logCondition(ctx context.Context, tenant logicalcluster.Name, resource string, obj metav1.Object, c corev1alpha1.Condition) {
	logger := decisionlog.ForChange(ctx, tenant)
	if !logger.Enabled() {
		return
	}
	reason := c.Reason
	if c.Message != "" {
		reason += ": " + c.Message
	}
	logger.Info("Condition changed", decisionlog.Cluster, logicalcluster.Of(obj), decisionlog.Resource, resource,
		decisionlog.Name, obj.GetName(), decisionlog.Condition, c.Type, decisionlog.Status, c.Status, decisionlog.Reason, reason)
}
