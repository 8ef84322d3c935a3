package transitions

import (
	"context"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/objecttest"
)

// entries returns what log calls at the verbosity of state changes write.
func entries(t *testing.T, log func(context.Context)) []string {
	t.Helper()
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(2)))
	log(klog.NewContext(t.Context(), logger))
	underlier, ok := logger.GetSink().(ktesting.Underlier)
	if !ok {
		t.Fatal("the logger has no buffer")
	}
	var written []string
	for _, e := range underlier.GetBuffer().Data() {
		line := e.Message
		for i := 0; i+1 < len(e.ParameterKVList); i += 2 {
			if key := e.ParameterKVList[i].(string); key == "phase" || key == "waiting" || key == "reason" || key == "identity" {
				if value := text(e.ParameterKVList[i+1]); value != "" {
					line += " " + key + "=" + value
				}
			}
		}
		written = append(written, line)
	}
	return written
}

func text(value any) string {
	switch value := value.(type) {
	case corev1alpha1.LogicalClusterPhase:
		return string(value)
	case apisv1alpha2.APIBindingPhase:
		return string(value)
	case string:
		return value
	}
	return ""
}

func logicalCluster(cluster string, change func(*corev1alpha1.LogicalCluster)) *corev1alpha1.LogicalCluster {
	lc := objecttest.In(cluster, &corev1alpha1.LogicalCluster{
		ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.LogicalClusterName},
		Status:     corev1alpha1.LogicalClusterStatus{Phase: corev1alpha1.LogicalClusterPhaseReady},
	})
	if change != nil {
		change(lc)
	}
	return lc
}

func TestChangesOfLogicalClustersAreLogged(t *testing.T) {
	initializing := func(initializers ...corev1alpha1.LogicalClusterInitializer) func(*corev1alpha1.LogicalCluster) {
		return func(lc *corev1alpha1.LogicalCluster) {
			lc.Status.Phase, lc.Status.Initializers = corev1alpha1.LogicalClusterPhaseInitializing, initializers
		}
	}
	created := func(lc *corev1alpha1.LogicalCluster) { lc.CreationTimestamp = metav1.Now() }
	deleted := func(message string) func(*corev1alpha1.LogicalCluster) {
		return func(lc *corev1alpha1.LogicalCluster) {
			now := metav1.Now()
			lc.DeletionTimestamp, lc.Status.Phase = &now, corev1alpha1.LogicalClusterPhaseDeleting
			if message != "" {
				lc.Status.Conditions = []corev1alpha1.Condition{{Type: "ContentDeleted", Status: "False", Reason: "SomeRemain", Message: message}}
			}
		}
	}
	for name, tc := range map[string]struct {
		old, lc *corev1alpha1.LogicalCluster
		want    []string
	}{
		"an older logical cluster that is ready is not logged": {nil, logicalCluster("a", nil), nil},
		"an older logical cluster that waits": {nil, logicalCluster("b", initializing("root:one")),
			[]string{"Logical cluster is not ready phase=Initializing waiting=root:one"}},
		"a created logical cluster": {nil, logicalCluster("c", created), []string{"Logical cluster created phase=Ready"}},
		"a change without effect on the state": {logicalCluster("d", nil), logicalCluster("d", func(lc *corev1alpha1.LogicalCluster) {
			lc.Labels = map[string]string{"a": "b"}
		}), nil},
		"a phase": {logicalCluster("e", initializing("root:one")), logicalCluster("e", nil),
			[]string{"Logical cluster changed its phase phase=Ready"}},
		"an initializer that has finished": {logicalCluster("f", initializing("root:one", "root:two")), logicalCluster("f", initializing("root:two")),
			[]string{"Logical cluster waits for other initializers or terminators phase=Initializing waiting=root:two"}},
		"the start of a deletion": {logicalCluster("g", nil), logicalCluster("g", deleted("")),
			[]string{"Deletion of a logical cluster started phase=Deleting"}},
		"what a deletion waits for": {logicalCluster("h", deleted("")), logicalCluster("h", deleted("1 configmaps")),
			[]string{"Condition changed reason=SomeRemain: 1 configmaps"}},
		"the end of a deletion": {logicalCluster("i", deleted("")), nil, []string{"Logical cluster deleted phase=Deleting"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := &Log{began: time.Now()}
			if got := entries(t, func(ctx context.Context) { l.logicalCluster(ctx, tc.old, tc.lc) }); !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestChangesOfWorkspacesBindingsAndExportsAreLogged(t *testing.T) {
	l := &Log{began: time.Now()}
	workspace := func(cluster string, phase corev1alpha1.LogicalClusterPhase, mounted bool) *tenancyv1alpha1.Workspace {
		ws := objecttest.In("root", &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: "team"}})
		ws.Spec.Cluster, ws.Status.Phase = cluster, phase
		if mounted {
			ws.Spec.Mount = &tenancyv1alpha1.Mount{}
		}
		return ws
	}
	binding := func(phase apisv1alpha2.APIBindingPhase, conditions ...corev1alpha1.Condition) *apisv1alpha2.APIBinding {
		b := objecttest.In("consumer", &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: "widgets"}})
		b.Status.Phase, b.Status.Conditions = phase, conditions
		return b
	}
	export := func(hash string) *apisv1alpha2.APIExport {
		e := objecttest.In("provider", &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: "widgets"}})
		e.Status.IdentityHash = hash
		return e
	}
	missing := corev1alpha1.Condition{Type: "APIExportValid", Status: "False", Reason: "NotFound", Message: "no export"}
	for name, tc := range map[string]struct {
		log  func(context.Context)
		want []string
	}{
		"a workspace that is not scheduled": {func(ctx context.Context) { l.workspace(ctx, nil, workspace("", "Scheduling", false)) },
			[]string{"Workspace is not scheduled phase=Scheduling"}},
		"a workspace that is scheduled": {func(ctx context.Context) {
			l.workspace(ctx, workspace("", "Scheduling", false), workspace("x", "Ready", false))
		}, []string{"Workspace scheduled phase=Ready"}},
		"a workspace that is unavailable": {func(ctx context.Context) {
			l.workspace(ctx, workspace("x", "Ready", false), workspace("x", "Unavailable", false))
		}, []string{"Workspace is unavailable phase=Unavailable"}},
		"a phase that the logical cluster has too": {func(ctx context.Context) {
			l.workspace(ctx, workspace("x", "Initializing", false), workspace("x", "Ready", false))
		}, nil},
		"a mounted workspace": {func(ctx context.Context) {
			l.workspace(ctx, workspace("", "Initializing", true), workspace("", "Ready", true))
		}, []string{"Mounted workspace changed its phase phase=Ready"}},
		"a binding that cannot be bound": {func(ctx context.Context) { l.binding(ctx, binding(""), binding("Binding", missing)) },
			[]string{"APIBinding changed its phase phase=Binding", "Condition changed reason=NotFound: no export"}},
		"a binding that is bound": {func(ctx context.Context) { l.binding(ctx, binding("Binding"), binding("Bound")) },
			[]string{"APIBinding changed its phase phase=Bound"}},
		"a created binding without a phase is not logged": {func(ctx context.Context) { l.binding(ctx, nil, binding("")) }, nil},
		"an older binding that is bound is not logged":    {func(ctx context.Context) { l.binding(ctx, nil, binding("Bound")) }, nil},
		"a new identity": {func(ctx context.Context) { l.export(ctx, export("one"), export("two")) },
			[]string{"APIExport has a new identity identity=two"}},
		"a deleted export": {func(ctx context.Context) { l.export(ctx, export("one"), nil) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := entries(t, tc.log); !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
