package e2e

import (
	"context"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// The kind TLSRoute belongs to a project that may not be installed. Without it, the operator reports that and watches nothing; with it, routes
// are valid for the project's own definition. The operator runs with its own role and under its policies.
func TestFrontProxiesAreExposedByTheAPIServersRules(t *testing.T) {
	start(t, asOperator())
	admin := cluster(t, host)
	f := &v1alpha1.FrontProxy{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: "edge"}}
	f.Spec.RootShard.Reference = &v1alpha1.LocalReference{Name: "edges"}
	f.Spec.Ingress = &v1alpha1.IngressSpec{ClassName: "nginx", Metadata: v1alpha1.Metadata{
		Annotations: map[string]string{"nginx.ingress.kubernetes.io/ssl-passthrough": "true"}}}
	f.Spec.TLSRoute = &v1alpha1.TLSRouteSpec{ParentRefs: []v1alpha1.GatewayReference{{Name: "edge", Namespace: "gateways", SectionName: "tls"}}}
	admin.MustCreate(t, shard("edges"), f)
	condition := func(reason string) {
		t.Helper()
		kcptest.Eventually(t, "Exposed is "+reason, func(context.Context) error {
			operatortest.Read(t, admin, "edge", f)
			return says(f.Status.Conditions, "Exposed", metav1.ConditionFalse, reason)
		})
	}
	condition("KindMissing")
	ingress := operatortest.Read(t, admin, "edge-front-proxy", &networkingv1.Ingress{})
	if !metav1.IsControlledBy(ingress, f) || *ingress.Spec.IngressClassName != "nginx" {
		t.Errorf("got %+v", ingress)
	}
	if err := admin.Delete(t.Context(), ingress); err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "a deleted Ingress is created again", func(ctx context.Context) error {
		return admin.Get(ctx, operatortest.Key("edge-front-proxy"), ingress)
	})
	kinds, err := envtest.InstallCRDs(host, envtest.CRDInstallOptions{Paths: kcptest.GatewayAPI.Files(t, 0), ErrorIfPathMissing: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := envtest.UninstallCRDs(host, envtest.CRDInstallOptions{CRDs: kinds}); err != nil {
			t.Error(err)
		}
	})
	change(t, admin, "edge", f, func(f *v1alpha1.FrontProxy) { f.Annotations = map[string]string{"reconcile": "now"} })
	condition("WaitingForGateway")
	route := &unstructured.Unstructured{}
	route.SetGroupVersionKind(schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "TLSRoute"})
	operatortest.Read(t, admin, "edge-front-proxy", route)
	if !metav1.IsControlledBy(route, f) {
		t.Errorf("got %+v", route.Object)
	}
	parentRef := map[string]any{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "edge", "namespace": "gateways", "sectionName": "tls"}
	route.Object["status"] = map[string]any{"parents": []any{map[string]any{"controllerName": "example.com/gateways", "parentRef": parentRef,
		"conditions": []any{map[string]any{"type": "Accepted", "status": "True", "reason": "Accepted", "message": "", "observedGeneration": int64(1),
			"lastTransitionTime": "2026-01-01T00:00:00Z"}}}}}
	if err := admin.Status().Update(t.Context(), route); err != nil {
		t.Fatal(err)
	}
	change(t, admin, "edge", f, func(f *v1alpha1.FrontProxy) { f.Annotations["reconcile"] = "again" })
	kcptest.Eventually(t, "it is exposed", func(context.Context) error {
		operatortest.Read(t, admin, "edge", f)
		return says(f.Status.Conditions, "Exposed", metav1.ConditionTrue, "AsExpected")
	})
	change(t, admin, "edge", f, func(f *v1alpha1.FrontProxy) { f.Spec.Ingress, f.Spec.TLSRoute = nil, nil })
	kcptest.Eventually(t, "both are removed", func(ctx context.Context) error {
		if err := kcptest.Gone(admin.Get(ctx, operatortest.Key("edge-front-proxy"), ingress)); err != nil {
			return err
		}
		return kcptest.Gone(admin.Get(ctx, operatortest.Key("edge-front-proxy"), route))
	})
}
