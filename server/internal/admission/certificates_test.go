package admission

import (
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/kubernetes/pkg/apis/certificates"
)

// withKey returns a request for a key of so many bits, and without a valid signature.
func withKey(t *testing.T, bits uint) []byte {
	t.Helper()
	n := new(big.Int).Lsh(big.NewInt(1), bits-1)
	public, err := x509.MarshalPKIXPublicKey(&rsa.PublicKey{N: n.SetBit(n, 0, 1), E: 65537})
	if err != nil {
		t.Fatal(err)
	}
	type content struct {
		Version    int
		Subject    pkix.RDNSequence
		PublicKey  asn1.RawValue
		Attributes []asn1.RawValue `asn1:"tag:0"`
	}
	der, err := asn1.Marshal(struct {
		Content   content
		Algorithm pkix.AlgorithmIdentifier
		Signature asn1.BitString
	}{
		content{Subject: pkix.Name{CommonName: "alice"}.ToRDNSequence(), PublicKey: asn1.RawValue{FullBytes: public}},
		pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 11}, Parameters: asn1.NullRawValue},
		asn1.BitString{Bytes: make([]byte, bits/8), BitLength: int(bits/8) * 8},
	})
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

func TestKeysOfCertificateRequestsAreBoundedBeforeTheyAreVerified(t *testing.T) {
	kind, resource := certificates.Kind("CertificateSigningRequest").WithVersion("v1"), certificates.Resource("certificatesigningrequests").WithVersion("v1")
	for bits, refused := range map[uint]bool{2048: false, 8192: false, 8200: true, 1 << 20: true} {
		request := &certificates.CertificateSigningRequest{Spec: certificates.CertificateSigningRequestSpec{Request: withKey(t, bits)}}
		if _, err := certificates.ParseCSR(request.Spec.Request); err != nil {
			t.Fatal(err)
		}
		err := certificateKeys{}.Admit(t.Context(), admission.NewAttributesRecord(request, nil, kind, "", "x", resource, "", admission.Create, nil, false, &user.DefaultInfo{}), nil)
		if refused != (err != nil) || (refused && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "the limit is 8192"))) {
			t.Errorf("%d bits: %v", bits, err)
		}
	}
	other := &certificates.CertificateSigningRequest{Spec: certificates.CertificateSigningRequestSpec{Request: []byte("x")}}
	if err := (certificateKeys{}).Admit(t.Context(), admission.NewAttributesRecord(other, nil, kind, "", "x", resource, "", admission.Create, nil, false, &user.DefaultInfo{}), nil); err != nil {
		t.Errorf("what cannot be parsed: %v", err)
	}
}
