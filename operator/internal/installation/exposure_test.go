package installation_test

import (
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
)

// passthrough is an Ingress whose controller passes TLS through.
func passthrough() *v1alpha1.IngressSpec {
	return &v1alpha1.IngressSpec{Metadata: v1alpha1.Metadata{
		Annotations: map[string]string{"nginx.ingress.kubernetes.io/ssl-passthrough": "true"}}}
}

func TestAnIngressExistsWhileTheSpecHasIt(t *testing.T) {
	f, second := proxy("public"), proxy("second")
	f.Spec.Ingress, second.Spec.Ingress = passthrough(), passthrough()
	w := newWorld(root("kcp"), f, second)
	w.settle(t)
	w.expect(t, f, "Exposed", metav1.ConditionTrue, "AsExpected", "")
	w.expect(t, f, "Ready", metav1.ConditionTrue, "Reconciled", "")
	ingress := operatortest.Read(t, w.Cluster, "public-front-proxy", &networkingv1.Ingress{})
	if ingress.Spec.Rules[0].Host != "kcp.example.com" || !metav1.IsControlledBy(ingress, f) {
		t.Errorf("got %+v", ingress)
	}
	w.expect(t, second, "ReferenceValid", metav1.ConditionFalse, "HostnameInUse", "FrontProxy public")
	if err := w.Get(t.Context(), operatortest.Key("second-front-proxy"), ingress); !apierrors.IsNotFound(err) {
		t.Errorf("a front proxy without its own hostname has an Ingress: %v", err)
	}
	w.WritesNothing(t, func() { w.reconcile(t) })
	operatortest.Read(t, w.Cluster, "public", f)
	f.Spec.Ingress = nil
	w.MustUpdate(t, f)
	w.settle(t)
	if err := w.Get(t.Context(), operatortest.Key("public-front-proxy"), ingress); !apierrors.IsNotFound(err) {
		t.Errorf("the Ingress remains: %v", err)
	}
	operatortest.Read(t, w.Cluster, "public", f)
	if c := meta.FindStatusCondition(f.Status.Conditions, "Exposed"); c != nil {
		t.Errorf("the condition remains: %+v", c)
	}
}

func TestAFrontProxyThatCannotBeExposedRunsAndReportsTheField(t *testing.T) {
	f, byAddress := proxy("public"), proxy("address")
	f.Spec.TLSRoute = &v1alpha1.TLSRouteSpec{ParentRefs: []v1alpha1.GatewayReference{{Name: "edge"}}}
	byAddress.Spec.External = &v1alpha1.FrontProxyExternalConfig{Hostname: "10.1.2.3", Port: 443}
	byAddress.Spec.Ingress = passthrough()
	w := newWorld(root("kcp"), f, byAddress)
	w.settle(t)
	for object, want := range map[*v1alpha1.FrontProxy][2]string{
		f:         {"KindMissing", "spec.tlsRoute: this cluster has no kind TLSRoute: install the Gateway API"},
		byAddress: {"HostnameRequired", "the address of this one is 10.1.2.3: set a hostname in spec.external"},
	} {
		w.expect(t, object, "Exposed", metav1.ConditionFalse, want[0], want[1])
		w.expect(t, object, "Stalled", metav1.ConditionTrue, want[0], want[1])
		w.expect(t, object, "Available", metav1.ConditionTrue, "AsExpected", "")
	}
	if err := w.Get(t.Context(), operatortest.Key("address-front-proxy"), &networkingv1.Ingress{}); !apierrors.IsNotFound(err) {
		t.Errorf("an address has an Ingress: %v", err)
	}
	w.WritesNothing(t, func() { w.reconcile(t) })
}
