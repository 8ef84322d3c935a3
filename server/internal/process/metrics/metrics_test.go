package metrics

import (
	"context"
	"maps"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

func cluster(name string, phase corev1alpha1.LogicalClusterPhase) *corev1alpha1.LogicalCluster {
	return &corev1alpha1.LogicalCluster{
		ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.LogicalClusterName, Annotations: map[string]string{logicalcluster.AnnotationKey: name}},
		Status:     corev1alpha1.LogicalClusterStatus{Phase: phase},
	}
}

// counts returns the metric by phase, without zeros, and the number of its series.
func counts(t *testing.T, registry metrics.KubeRegistry) (map[string]float64, int) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if len(families) != 1 || families[0].GetName() != "kcp_logicalcluster_count" {
		t.Fatalf("got the metrics %v", families)
	}
	found := map[string]float64{}
	for _, series := range families[0].GetMetric() {
		labels := map[string]string{}
		for _, l := range series.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		if len(labels) != 2 || labels["shard"] != "north" {
			t.Errorf("a series has the labels %v", labels)
		}
		if v := series.GetGauge().GetValue(); v != 0 {
			found[labels["phase"]] = v
		}
	}
	return found, len(families[0].GetMetric())
}

func TestTheCountFollowsCreationsPhasesAndDeletions(t *testing.T) {
	const ready, inactive, deleting = corev1alpha1.LogicalClusterPhaseReady, corev1alpha1.LogicalClusterPhaseInactive, corev1alpha1.LogicalClusterPhaseDeleting
	events := watch.NewFake()
	lw := &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return &corev1alpha1.LogicalClusterList{Items: []corev1alpha1.LogicalCluster{*cluster("a", ready), *cluster("b", ready)}}, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return events, nil },
	}
	i := informers.New(corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters"), &corev1alpha1.LogicalCluster{}, lw, nil)
	registry := metrics.NewKubeRegistry()
	if err := CountLogicalClusters(registry.Register, i, "north"); err != nil {
		t.Fatal(err)
	}
	if found, series := counts(t, registry); len(found) != 0 || series != len(phases) {
		t.Errorf("without clusters: got %v in %d series, want nothing in %d", found, series, len(phases))
	}
	handled := make(chan struct{}, 100)
	i.AddHandler(func(runtime.Object, runtime.Object) { handled <- struct{}{} })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); i.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	<-i.Synced()
	<-handled
	<-handled
	for _, step := range []struct {
		name   string
		change func(runtime.Object)
		obj    *corev1alpha1.LogicalCluster
		want   map[string]float64
	}{
		{"created, no phase yet", events.Add, cluster("c", ""), map[string]float64{"Ready": 2, "Scheduling": 1}},
		{"ready", events.Modify, cluster("c", ready), map[string]float64{"Ready": 3}},
		{"changed, same phase", events.Modify, cluster("c", ready), map[string]float64{"Ready": 3}},
		{"inactive", events.Modify, cluster("a", inactive), map[string]float64{"Ready": 2, "Inactive": 1}},
		{"deleting", events.Modify, cluster("b", deleting), map[string]float64{"Ready": 1, "Inactive": 1, "Deleting": 1}},
		{"gone", events.Delete, cluster("b", deleting), map[string]float64{"Ready": 1, "Inactive": 1}},
	} {
		step.change(step.obj)
		select {
		case <-handled:
		case <-time.After(30 * time.Second):
			t.Fatalf("%s: no event", step.name)
		}
		found, series := counts(t, registry)
		if !maps.Equal(found, step.want) || series != len(phases) {
			t.Errorf("%s: got %v in %d series, want %v in %d", step.name, found, series, step.want, len(phases))
		}
	}
}

func TestAMetricIsRegisteredOnce(t *testing.T) {
	registry := metrics.NewKubeRegistry()
	i := informers.New(corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters"), &corev1alpha1.LogicalCluster{}, &cache.ListWatch{}, nil)
	if err := CountLogicalClusters(registry.Register, i, "north"); err != nil {
		t.Fatal(err)
	}
	if err := CountLogicalClusters(registry.Register, i, "north"); err == nil {
		t.Error("registering the metric twice succeeds")
	}
}
