package e2e

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"testing"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// An annotation renews certificates, and the operator's role has the necessary permissions.
func TestCertificatesAreIssuedWhenThereIsAnIssuerAndRenewedOnDemand(t *testing.T) {
	start(t, asOperator())
	admin := cluster(t, host)
	rs, k := shard("renewed"), accessTo("renewed", "renewed")
	rs.Spec.Certificates = &v1alpha1.Certificates{IssuerRef: &v1alpha1.ObjectReference{Name: "renewed-company"}}
	etcd := etcdNamed("renewed-etcd")
	etcd.Spec.TLS = &v1alpha1.EtcdClusterTLSSpec{IssuerRef: rs.Spec.Certificates.IssuerRef}
	admin.MustCreate(t, rs, k, etcd)
	bothSay := func(reason string) {
		t.Helper()
		kcptest.Eventually(t, reason, func(context.Context) error {
			return errors.Join(says(operatortest.Read(t, admin, "renewed", rs).Status.Conditions, "CertificatesReady", metav1.ConditionFalse, reason),
				says(operatortest.Read(t, admin, "renewed-etcd", etcd).Status.Conditions, "CertificatesReady", metav1.ConditionFalse, reason))
		})
	}
	bothSay("IssuerNotFound")
	issuer := &certmanager.Issuer{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: "renewed-company"}}
	issuer.Spec.SelfSigned = &certmanager.SelfSignedIssuer{}
	admin.MustCreate(t, issuer)
	bothSay("CertificateNotReady")
	if err := admin.Delete(t.Context(), etcd); err != nil { // its certificates are issued below, and not part of this test
		t.Fatal(err)
	}
	kcptest.Eventually(t, "certificates are issued", func(context.Context) error {
		admin.Issue(t)
		if n := len(operatortest.Read(t, admin, "renewed", k).Status.Certificates); n != 1 {
			return fmt.Errorf("the Kubeconfig has %d", n)
		}
		return says(operatortest.Read(t, admin, "renewed", rs).Status.Conditions, "CertificatesReady", metav1.ConditionTrue, "AsExpected")
	})
	annotated := map[string]string{v1alpha1.RenewAnnotation: "today"}
	change(t, admin, "renewed", rs, func(rs *v1alpha1.RootShard) { rs.Annotations = annotated })
	change(t, admin, "renewed", k, func(k *v1alpha1.Kubeconfig) { k.Annotations = annotated })
	for name, want := range map[string]string{"renewed-server": "[Ready Issuing]", "kubeconfig-cert-renewed": "[Ready Issuing]", "renewed-server-ca": "[Ready]"} {
		kcptest.Eventually(t, "renewal of "+name, func(context.Context) error {
			if got := operatortest.Read(t, admin, "renewed", rs).Status.Renewed + operatortest.Read(t, admin, "renewed", k).Status.Renewed; got != "todaytoday" {
				return fmt.Errorf("heeded: %s", got)
			}
			var types []string
			for _, condition := range operatortest.Read(t, admin, name, &certmanager.Certificate{}).Status.Conditions {
				types = append(types, string(condition.Type))
			}
			if got := fmt.Sprint(types); got != want {
				return fmt.Errorf("conditions %s", got)
			}
			return nil
		})
	}
}

// The rotation of the RootShard's CA also waits for the certificate of a Kubeconfig, which belongs to another object.
func TestTheEndOfARotationIsNoticedWhenTheLastCertificateIsRenewed(t *testing.T) {
	start(t, asOperator())
	admin := cluster(t, host)
	rs, k := shard("rotating"), accessTo("rotating", "rotating")
	admin.MustCreate(t, rs, k)
	rotating := func(reason string) {
		t.Helper()
		kcptest.Eventually(t, reason, func(context.Context) error {
			admin.Issue(t)
			return says(operatortest.Read(t, admin, "rotating", rs).Status.Conditions, "Rotating", metav1.ConditionTrue, reason)
		})
	}
	kcptest.Eventually(t, "pods are requested", func(context.Context) error {
		admin.Issue(t)
		return errors.Join(admin.Get(t.Context(), operatortest.Key("rotating-kcp"), &appsv1.StatefulSet{}),
			says(operatortest.Read(t, admin, "rotating", k).Status.Conditions, "CertificatesReady", metav1.ConditionTrue, "AsExpected"))
	})
	former, authority, leaf := operatortest.NewKey(t), operatortest.NewKey(t), operatortest.NewKey(t)
	issue := func(secret string, key, by *ecdsa.PrivateKey) {
		t.Helper()
		change(t, admin, secret, &corev1.Secret{}, func(s *corev1.Secret) { s.Data["tls.crt"] = operatortest.Certificate(t, secret, key, by) })
	}
	issue("kubeconfig-cert-rotating", leaf, former)
	issue("rotating-client-ca", authority, authority)
	rotating(v1alpha1.RotatingRenewable)
	issue("kubeconfig-cert-rotating", leaf, authority)
	changeStatus(t, admin, "kubeconfig-cert-rotating", &certmanager.Certificate{}, func(c *certmanager.Certificate) { c.Status.Revision = new(2) })
	rotating(v1alpha1.RotatingRenewed)
}
