package rootshard_test

import (
	"strings"
	"testing"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
)

// These tests are for known defects of other operators of kcp. D… are their numbers in the list of defects.

func secret(name string, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}
}

// D5: a kcp that is scaled to zero is not available.
func TestAKCPWithoutPodsIsNotAvailable(t *testing.T) {
	rs := external()
	rs.Spec.Replicas = new(int32(0))
	w := newWorld(rs)
	w.reconcile(t)
	w.Issue(t)
	w.reconcile(t)
	w.Roll(t, "kcp-kcp")
	rs = w.reconcile(t)
	expect(t, rs, "Available", metav1.ConditionFalse, "ScaledToZero", "spec.replicas is 0")
	if rs.Status.Phase == v1alpha1.PhaseRunning {
		t.Error("phase is Running, want another one")
	}
}

// D24: everything that the pods mount exists with each kind of issuer. D25: without an issuer or a CA, the operator creates a CA.
func TestEverythingThatPodsMountExistsWithEachIssuer(t *testing.T) {
	for name, certificates := range map[string]*v1alpha1.Certificates{
		"default": nil, "empty": {},
		"an issuer":    {IssuerRef: &v1alpha1.ObjectReference{Name: "company"}},
		"an authority": {CASecretRef: &v1alpha1.LocalReference{Name: "ours"}},
	} {
		t.Run(name, func(t *testing.T) {
			rs := external()
			rs.Spec.Certificates = certificates
			w := newWorld(rs, &certmanager.Issuer{ObjectMeta: metav1.ObjectMeta{Name: "company"}},
				secret("ours", map[string][]byte{"tls.crt": operatortest.PEM("ours"), "tls.key": []byte("key")}))
			expect(t, w.settle(t), "Ready", metav1.ConditionTrue, "", "")
			pod := operatortest.Read(t, w.Cluster, "kcp-kcp", &appsv1.StatefulSet{}).Spec.Template.Spec
			mounted := 0
			for _, volume := range pod.Volumes {
				if volume.Secret == nil {
					continue
				}
				mounted++
				found := operatortest.Read(t, w.Cluster, volume.Secret.SecretName, &corev1.Secret{})
				for _, item := range volume.Secret.Items {
					if len(found.Data[item.Key]) == 0 {
						t.Errorf("Secret %s has no %s", found.Name, item.Key)
					}
				}
			}
			if mounted < 4 {
				t.Errorf("only %d Secrets are mounted", mounted)
			}
		})
	}
}

// D4: additional CAs in the spec have an effect. D12: the bundle does not change when the server's certificate is renewed. D31: CAs that are
// removed from the spec are removed from the bundle.
func TestBundlesHaveExactlyTheCAsInTheSpec(t *testing.T) {
	rs := external()
	rs.Spec.CABundleSecretRef = &v1alpha1.LocalReference{Name: "more-servers"}
	rs.Spec.ClientCABundleRef = &v1alpha1.LocalReference{Name: "more-clients"}
	w := newWorld(rs, secret("more-servers", map[string][]byte{"tls.crt": operatortest.PEM("more-servers")}),
		secret("more-clients", map[string][]byte{"tls.crt": operatortest.PEM("more-clients")}))
	w.settle(t)
	bundle := func(name string) string {
		t.Helper()
		return string(operatortest.Read(t, w.Cluster, name, &corev1.Secret{}).Data["tls.crt"])
	}
	pem := func(names ...string) string {
		all := ""
		for _, name := range names {
			all += string(operatortest.PEM(name))
		}
		return all
	}
	if got := bundle("kcp-merged-ca-bundle"); got != pem("kcp-server-ca", "more-servers") {
		t.Errorf("the bundle for server certificates is\n%s", got)
	}
	if got := bundle("kcp-merged-client-ca"); got != pem("kcp-client-ca", "more-clients") {
		t.Errorf("the bundle for client certificates is\n%s", got)
	}
	renewed := operatortest.Read(t, w.Cluster, "kcp-server", &corev1.Secret{})
	renewed.Data["tls.crt"] = operatortest.PEM("renewed")
	w.MustUpdate(t, renewed)
	w.WritesNothing(t, func() { rs = w.reconcile(t) }) // servers reload renewed certificates
	rs.Spec.CABundleSecretRef, rs.Spec.ClientCABundleRef = nil, nil
	w.MustUpdate(t, rs)
	w.reconcile(t)
	if got := bundle("kcp-merged-ca-bundle") + bundle("kcp-merged-client-ca"); got != pem("kcp-server-ca", "kcp-client-ca") {
		t.Errorf("removed CAs are still trusted:\n%s", got)
	}
}

// D31: unused certificates and their keys are deleted.
func TestUnusedCertificatesAreDeleted(t *testing.T) {
	rs := external()
	rs.Spec.Monitoring = &v1alpha1.MonitoringSpec{ServiceMonitor: &v1alpha1.ServiceMonitorSpec{Enabled: true}}
	w := newWorld(rs, &certmanager.Issuer{ObjectMeta: metav1.ObjectMeta{Name: "company"}})
	rs = w.settle(t)
	operatortest.Read(t, w.Cluster, "kcp-metrics-viewer", &corev1.Secret{})
	operatortest.Read(t, w.Cluster, "kcp-selfsigned", &certmanager.Issuer{})
	rs.Spec.Monitoring = nil
	rs.Spec.Certificates = &v1alpha1.Certificates{IssuerRef: &v1alpha1.ObjectReference{Name: "company"}}
	w.MustUpdate(t, rs)
	w.reconcile(t)
	for _, test := range []struct {
		name string
		err  error
	}{
		{"the certificate", w.Get(t.Context(), operatortest.Key("kcp-metrics-viewer"), &certmanager.Certificate{})},
		{"its key", w.Get(t.Context(), operatortest.Key("kcp-metrics-viewer"), &corev1.Secret{})},
		{"the issuer", w.Get(t.Context(), operatortest.Key("kcp-selfsigned"), &certmanager.Issuer{})},
	} {
		if !apierrors.IsNotFound(test.err) {
			t.Errorf("%s still exists (%v)", test.name, test.err)
		}
	}
	operatortest.Read(t, w.Cluster, "kcp-ca", &corev1.Secret{})
}

// D35: some issuers, such as ACME, do not publish their CA. Then the spec must name it.
func TestAnIssuerWithoutACAInItsSecretsRequiresABundle(t *testing.T) {
	rs := external()
	rs.Spec.CertificateTemplates = v1alpha1.CertificateTemplateMap{"server": {Spec: &v1alpha1.CertificateSpecTemplate{
		IssuerRef: &v1alpha1.ObjectReference{Name: "acme"}}}}
	w := newWorld(rs, &certmanager.Issuer{ObjectMeta: metav1.ObjectMeta{Name: "acme"}}, secret("roots", map[string][]byte{"tls.crt": operatortest.PEM("roots")}))
	w.reconcile(t)
	w.Issue(t)
	server := operatortest.Read(t, w.Cluster, "kcp-server", &corev1.Secret{})
	delete(server.Data, "ca.crt")
	w.MustUpdate(t, server)
	rs = w.reconcile(t)
	expect(t, rs, "Stalled", metav1.ConditionTrue, "AuthorityUnknown", "spec.caBundleSecretRef")
	rs.Spec.CABundleSecretRef = &v1alpha1.LocalReference{Name: "roots"}
	w.MustUpdate(t, rs)
	w.reconcile(t)
	w.Roll(t, "kcp-kcp")
	expect(t, w.reconcile(t), "Ready", metav1.ConditionTrue, "", "")
	if got := string(operatortest.Read(t, w.Cluster, "kcp-merged-ca-bundle", &corev1.Secret{}).Data["tls.crt"]); !strings.Contains(got, string(operatortest.PEM("roots"))) {
		t.Errorf("the bundle is\n%s", got)
	}
}

// D4: fields that are accepted only for compatibility are reported once as ignored.
func TestIgnoredFieldsAreReportedOnce(t *testing.T) {
	rs := external()
	rs.Spec.Proxy = &v1alpha1.RootShardProxySpec{Replicas: new(int32(2))}
	rs.Spec.Cache = &v1alpha1.CacheConfig{Embedded: &v1alpha1.EmbeddedCacheConfig{Enabled: true}}
	rs.Spec.Auth = &v1alpha1.AuthSpec{DropGroups: []string{"a"}, OIDC: &v1alpha1.OIDCConfiguration{IssuerURL: "https://a", ClientID: "b", ClientSecret: "c"}}
	for _, test := range []struct {
		rs   *v1alpha1.RootShard
		want string
	}{
		{external(), ""},
		{rs, "Warning FieldsIgnored these fields are accepted for compatibility and have no effect: spec.proxy: the operator connects to the shard directly; " +
			"spec.cache.embedded: the root shard contains the cache; spec.auth.oidc.clientSecret: the server does not need it; " +
			"spec.auth.dropGroups and passOnGroups: they apply to front proxies"},
	} {
		w := newWorld(test.rs)
		expect(t, w.settle(t), "Ready", metav1.ConditionTrue, "", "")
		reported := ""
		for len(w.Events.Events) > 0 {
			if event := <-w.Events.Events; strings.Contains(event, "FieldsIgnored") {
				reported += event
			}
		}
		if reported != test.want {
			t.Errorf("reported %q, want %q", reported, test.want)
		}
	}
}
