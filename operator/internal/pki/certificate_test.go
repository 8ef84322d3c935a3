package pki

import (
	"testing"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"

	v1alpha1 "github.com/kcplane/kcp/api/operator/v1alpha1"
)

func TestServersHaveFastKeys(t *testing.T) {
	server := Request{Usages: ServerUsages}
	for name, c := range map[string]struct {
		request  Request
		template v1alpha1.PrivateKeyTemplate
		want     certmanager.CertificatePrivateKey
	}{
		"server":                  {server, v1alpha1.PrivateKeyTemplate{}, certmanager.CertificatePrivateKey{Algorithm: "ECDSA", Size: 256}},
		"client":                  {Request{Usages: ClientUsages}, v1alpha1.PrivateKeyTemplate{}, certmanager.CertificatePrivateKey{Algorithm: "RSA", Size: 4096}},
		"authority":               {Request{Usages: ServerUsages, Authority: true}, v1alpha1.PrivateKeyTemplate{}, certmanager.CertificatePrivateKey{Algorithm: "RSA", Size: 4096}},
		"key that stays":          {Request{Usages: ServerUsages, KeepKey: true}, v1alpha1.PrivateKeyTemplate{}, certmanager.CertificatePrivateKey{Algorithm: "RSA", Size: 4096}},
		"size of an RSA key":      {server, v1alpha1.PrivateKeyTemplate{Size: 2048}, certmanager.CertificatePrivateKey{Algorithm: "RSA", Size: 2048}},
		"size of a curve":         {server, v1alpha1.PrivateKeyTemplate{Size: 384}, certmanager.CertificatePrivateKey{Algorithm: "ECDSA", Size: 384}},
		"algorithm":               {server, v1alpha1.PrivateKeyTemplate{Algorithm: "RSA"}, certmanager.CertificatePrivateKey{Algorithm: "RSA"}},
		"algorithm that it is of": {server, v1alpha1.PrivateKeyTemplate{Algorithm: "ECDSA"}, certmanager.CertificatePrivateKey{Algorithm: "ECDSA", Size: 256}},
	} {
		c.request.Template = &v1alpha1.CertificateTemplate{Spec: &v1alpha1.CertificateSpecTemplate{PrivateKey: &c.template}}
		key := Certificate(c.request).Spec.PrivateKey
		if key.Algorithm != c.want.Algorithm || key.Size != c.want.Size {
			t.Errorf("%s: got %s %d, want %s %d", name, key.Algorithm, key.Size, c.want.Algorithm, c.want.Size)
		}
	}
}
