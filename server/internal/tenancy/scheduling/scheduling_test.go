package scheduling

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/randfill"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/informers"
)

func TestArrivalsReleaseWaitingRequests(t *testing.T) {
	a := &arrivals{informer: &informers.Informer{}, waiting: map[informers.Key][]chan struct{}{}}
	key := informers.Key{Cluster: "c", Name: "n"}
	first, forgetFirst := a.expect(key)
	second, forgetSecond := a.expect(key)
	_, forgetOther := a.expect(informers.Key{Cluster: "d", Name: "n"})
	forgetSecond() // stops waiting: the first still waits
	arrived := make(chan time.Duration)
	go func() {
		began := time.Now()
		first(context.Background())
		arrived <- time.Since(began)
	}()
	a.arrived(key)
	if took := <-arrived; took >= arrivalTimeout {
		t.Errorf("it waited %s", took)
	}
	forgetFirst()
	forgetOther()
	if len(a.waiting) != 0 {
		t.Errorf("%v is left", a.waiting)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	second(ended) // returns immediately, although no object arrives
}

func TestMarkDeletedKeepsTheFirstTime(t *testing.T) {
	lc := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Generation: 1}}
	for range 2 {
		if err := MarkDeleted(lc.UID)(lc); err != nil {
			t.Fatal(err)
		}
	}
	if lc.DeletionTimestamp == nil || lc.DeletionGracePeriodSeconds == nil || lc.Generation != 2 {
		t.Errorf("it is %+v", lc.ObjectMeta)
	}
	before := lc.DeletionTimestamp.DeepCopy()
	if err := MarkDeleted(lc.UID)(lc); err != nil || !lc.DeletionTimestamp.Equal(before) {
		t.Errorf("the time of deletion changed: %v", err)
	}
}

func TestMirrorShowsTheStateOfTheLogicalCluster(t *testing.T) {
	s := &Scheduler{}
	steps := []corev1alpha1.LogicalClusterInitializer{"root:golden"}
	for what, c := range map[string]struct {
		lc          *corev1alpha1.LogicalCluster
		phase       corev1alpha1.LogicalClusterPhase
		initialized metav1.ConditionStatus
	}{
		"gone":         {nil, "Unavailable", metav1.ConditionFalse},
		"ready":        {&corev1alpha1.LogicalCluster{Status: corev1alpha1.LogicalClusterStatus{Phase: "Ready"}}, "Ready", metav1.ConditionTrue},
		"inactive":     {&corev1alpha1.LogicalCluster{Status: corev1alpha1.LogicalClusterStatus{Phase: "Inactive"}}, "Inactive", metav1.ConditionTrue},
		"initializing": {&corev1alpha1.LogicalCluster{Status: corev1alpha1.LogicalClusterStatus{Phase: "Initializing", Initializers: steps}}, "Initializing", metav1.ConditionFalse},
	} {
		ws := &tenancyv1alpha1.Workspace{}
		s.MirrorStatus(ws, c.lc)
		if ws.Status.Phase != c.phase || ws.Labels[corev1alpha1.PhaseLabel] != string(c.phase) || ws.Status.Conditions[0].Status != c.initialized {
			t.Errorf("%s: %+v", what, ws.Status)
		}
	}
}

func TestTheStatusIsAsUpstreamConvertsIt(t *testing.T) {
	fill := randfill.NewWithSeed(1).NilChance(0.3).NumElements(1, 3)
	for range 200 {
		status := &tenancyv1alpha1.WorkspaceStatus{}
		fill.Fill(status)
		want, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, contentOf(status)); diff != "" {
			t.Fatal(diff)
		}
	}
}
