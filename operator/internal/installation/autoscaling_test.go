package installation_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
)

func TestAnAutoscalerSetsTheNumberOfPods(t *testing.T) {
	f := proxy("public")
	f.Spec.Autoscaling = &v1alpha1.AutoscalingSpec{MaxReplicas: 9}
	w := newWorld(root("kcp"), f)
	w.settle(t)
	pods := func() int32 {
		t.Helper()
		return *operatortest.Read(t, w.Cluster, "public-front-proxy", &appsv1.StatefulSet{}).Spec.Replicas
	}
	scale := func(n int32) {
		t.Helper()
		set := operatortest.Read(t, w.Cluster, "public-front-proxy", &appsv1.StatefulSet{})
		set.Spec.Replicas = &n
		w.MustUpdate(t, set)
		w.settle(t)
	}
	autoscaler := operatortest.Read(t, w.Cluster, "public-front-proxy", &autoscalingv2.HorizontalPodAutoscaler{})
	if ref := autoscaler.Spec.ScaleTargetRef; ref.Kind != "StatefulSet" || ref.Name != "public-front-proxy" || !metav1.IsControlledBy(autoscaler, f) {
		t.Errorf("got %+v", autoscaler)
	}
	if n := pods(); n != 2 {
		t.Errorf("it starts with %d pods", n)
	}
	scale(7)
	operatortest.Read(t, w.Cluster, "public", f)
	f.Spec.Logging = &v1alpha1.LoggingSpec{Level: 4}
	f.Generation++
	w.MustUpdate(t, f)
	w.settle(t)
	if n := pods(); n != 7 {
		t.Errorf("a change of the pods changes the number that the autoscaler has set to %d", n)
	}
	w.WritesNothing(t, func() { w.reconcile(t) })
	if scale(0); pods() != 2 { // no autoscaler would start any
		t.Errorf("%d pods after none", pods())
	}
	operatortest.Read(t, w.Cluster, "public", f)
	f.Spec.Autoscaling = nil
	w.MustUpdate(t, f)
	w.settle(t)
	if err := w.Get(t.Context(), operatortest.Key("public-front-proxy"), autoscaler); !apierrors.IsNotFound(err) {
		t.Errorf("the autoscaler remains: %v", err)
	}
	if n := pods(); n != 2 {
		t.Errorf("removing the autoscaler changes the number of pods to %d", n)
	}
}
