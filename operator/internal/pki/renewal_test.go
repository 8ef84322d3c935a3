package pki_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
	"github.com/kcplane/kcp/operator/internal/pki"
)

// Caches may be outdated: a new Certificate may be missing.
func TestACertificateThatDoesNotExistYetNeedsNoRenewal(t *testing.T) {
	c := operatortest.New()
	strict := interceptor.NewClient(c.Client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
			if key.Name == "" {
				return errors.New("resource name may not be empty") // as clients of an API server say
			}
			return w.Get(ctx, key, object, opts...)
		},
	})
	owner := &v1alpha1.RootShard{}
	owner.Annotations = map[string]string{v1alpha1.RenewAnnotation: "now"}
	if heeded, err := pki.Renew(t.Context(), strict, owner, 1, "", []*certmanager.Certificate{{}}); heeded != "now" || err != nil {
		t.Errorf("got %q, %v", heeded, err)
	}
}

// Otherwise, certificates of a CA that is not in the bundle yet would be issued again and again.
func TestACertificateOfTheCurrentCAIsNotIssuedAgain(t *testing.T) {
	one, two := operatortest.NewKey(t), operatortest.NewKey(t)
	for name, test := range map[string]struct {
		by    []byte
		again bool
		want  string
	}{
		"by a former authority":     {operatortest.Certificate(t, "leaf", operatortest.NewKey(t), two), true, "reissuing Certificate leaf"},
		"by the authority of today": {operatortest.Certificate(t, "leaf", operatortest.NewKey(t), one), false, "waiting for authority ca"},
	} {
		t.Run(name, func(t *testing.T) {
			certificate := &certmanager.Certificate{ObjectMeta: metav1.ObjectMeta{Name: "leaf", Namespace: operatortest.Namespace}}
			certificate.Spec.SecretName, certificate.Spec.IssuerRef = "leaf", pki.IssuerNamed("ca")
			secret := func(name string, content []byte) *corev1.Secret {
				return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: operatortest.Namespace}, Data: map[string][]byte{corev1.TLSCertKey: content}}
			}
			c := operatortest.New(certificate, secret("leaf", test.by), secret("ca", operatortest.Certificate(t, "ca", one, one)))
			if err := pki.Distrusted(t.Context(), c, certificate, "ca", ""); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("it waits for %v", err)
			}
			live := operatortest.Read(t, c, "leaf", &certmanager.Certificate{})
			if issuing := len(live.Status.Conditions) > 0; issuing != test.again {
				t.Errorf("its conditions are %+v", live.Status.Conditions)
			}
		})
	}
}
