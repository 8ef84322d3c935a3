package rootshard_test

import (
	"testing"

	acmev1 "github.com/cert-manager/cert-manager/pkg/apis/acme/v1"
	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
)

// Some issuers sign only certificates of servers, and some Secrets have such a certificate.
func TestIssuersThatCannotSignAuthoritiesAreReported(t *testing.T) {
	issuer := &certmanager.Issuer{ObjectMeta: metav1.ObjectMeta{Name: "public"}}
	issuer.Spec.ACME = &acmev1.ACMEIssuer{Server: "https://acme.example.com/directory"}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "site"}, Data: map[string][]byte{
		"tls.crt": operatortest.Leaf(t, "kcp.example.com"), "tls.key": []byte("x")}}
	template := func(name string) v1alpha1.CertificateTemplateMap {
		return v1alpha1.CertificateTemplateMap{name: {Spec: &v1alpha1.CertificateSpecTemplate{
			IssuerRef: &v1alpha1.ObjectReference{Name: "public"}}}}
	}
	for name, test := range map[string]struct {
		change          func(*v1alpha1.RootShardSpec)
		reason, message string // no reason: the input is good
	}{
		"the issuer of all authorities": {func(spec *v1alpha1.RootShardSpec) {
			spec.Certificates = &v1alpha1.Certificates{IssuerRef: &v1alpha1.ObjectReference{Name: "public"}}
		}, "IssuerCannotSign", "spec.certificates.issuerRef: Issuer public uses ACME, which signs no certificate authorities"},
		"the issuer of one authority": {func(spec *v1alpha1.RootShardSpec) { spec.CertificateTemplates = template("server-ca") },
			"IssuerCannotSign", "spec.certificateTemplates[server-ca].spec.issuerRef: Issuer public uses ACME"},
		"the issuer of a server's certificate": {func(spec *v1alpha1.RootShardSpec) {
			spec.CertificateTemplates = template("server")
			spec.CABundleSecretRef = &v1alpha1.LocalReference{Name: "site"}
		}, "", ""},
		"a Secret with the certificate of a server": {func(spec *v1alpha1.RootShardSpec) {
			spec.Certificates = &v1alpha1.Certificates{CASecretRef: &v1alpha1.LocalReference{Name: "site"}}
		}, "NotAnAuthority", "spec.certificates.caSecretRef: the certificate in Secret site is not one of a CA"},
	} {
		t.Run(name, func(t *testing.T) {
			rs := external()
			test.change(&rs.Spec)
			w := newWorld(issuer.DeepCopy(), secret.DeepCopy(), rs)
			w.reconcile(t)
			w.Issue(t)
			rs = w.reconcile(t)
			if test.reason == "" {
				expect(t, rs, "CertificatesReady", metav1.ConditionTrue, "", "")
				return
			}
			expect(t, rs, "CertificatesReady", metav1.ConditionFalse, test.reason, test.message)
			expect(t, rs, "Stalled", metav1.ConditionTrue, test.reason, test.message)
		})
	}
}

// An issuer may ignore that a certificate is requested for a CA.
func TestAnAuthorityThatIsNoneIsReported(t *testing.T) {
	w := newWorld(external())
	w.reconcile(t)
	w.Issue(t)
	secret := operatortest.Read(t, w.Cluster, "kcp-client-ca", &corev1.Secret{})
	secret.Data["tls.crt"] = operatortest.Leaf(t, "kcp-client-ca")
	w.MustUpdate(t, secret)
	rs := w.reconcile(t)
	expect(t, rs, "CertificatesReady", metav1.ConditionFalse, "NotAnAuthority", "Certificate kcp-client-ca: its issuer has signed")
	expect(t, rs, "Stalled", metav1.ConditionTrue, "NotAnAuthority", "spec.certificates.issuerRef")
}
