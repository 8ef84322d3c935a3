package admission

import (
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/pkg/apis/certificates"

	"github.com/kcplane/kcp/server/internal/admission/objectlimit"
)

// certificateSigningRequest returns a request for an RSA key of a length, without a valid signature.
func certificateSigningRequest(t *testing.T, bits uint, organizations ...string) []byte {
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
		content{Subject: pkix.Name{CommonName: "alice", Organization: organizations}.ToRDNSequence(), PublicKey: asn1.RawValue{FullBytes: public}},
		pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 11}, Parameters: asn1.NullRawValue},
		asn1.BitString{Bytes: make([]byte, bits/8), BitLength: int(bits/8) * 8},
	})
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

func TestKeysOfCertificateRequestsAreBoundedBeforeTheyAreVerified(t *testing.T) {
	for bits, want := range map[uint]string{
		2048: "", 8192: "",
		8200:    "403 Forbidden: spec.request: the RSA key has 8200 bits, the limit is 8192",
		1 << 20: "403 Forbidden: spec.request: the RSA key has 1048576 bits, the limit is 8192",
	} {
		a := certificateRequest(&certificates.CertificateSigningRequest{
			Spec: certificates.CertificateSigningRequestSpec{Request: certificateSigningRequest(t, bits)},
		}, "", admission.Create)
		wantOutcome(t, a, certificateKeys{}.Admit(t.Context(), a, nil), want)
	}
	a := certificateRequest(&certificates.CertificateSigningRequest{Spec: certificates.CertificateSigningRequestSpec{Request: []byte("x")}}, "", admission.Create)
	wantOutcome(t, a, certificateKeys{}.Admit(t.Context(), a, nil), "")
}

// certificateRequest returns what plugins see of a write of a CertificateSigningRequest.
func certificateRequest(request *certificates.CertificateSigningRequest, subresource string, operation admission.Operation) admission.Attributes {
	kind, resource := certificates.Kind("CertificateSigningRequest").WithVersion("v1"), certificates.Resource("certificatesigningrequests").WithVersion("v1")
	var old runtime.Object
	if operation == admission.Update {
		before := request.DeepCopy()
		before.Status = certificates.CertificateSigningRequestStatus{}
		old = before
	}
	return admission.NewAttributesRecord(request, old, kind, "", "x", resource, subresource, operation, nil, false, tenant)
}

func TestTheChainHasTheRulesForCertificateRequests(t *testing.T) {
	request := func(signer string, organizations ...string) *certificates.CertificateSigningRequest {
		return &certificates.CertificateSigningRequest{Spec: certificates.CertificateSigningRequestSpec{
			Request: certificateSigningRequest(t, 2048, organizations...), SignerName: signer,
		}}
	}
	const client, own = "kubernetes.io/kube-apiserver-client", "example.org/own"
	signed := request(client)
	signed.Status.Certificate = []byte("certificate")
	large := request(client)
	large.Spec.Request = certificateSigningRequest(t, 8200)
	for name, test := range map[string]struct {
		a    admission.Attributes
		want string
	}{
		"a request for a group is admitted":                          {certificateRequest(request(client, "team"), "", admission.Create), ""},
		"a request for system:masters by another signer is admitted": {certificateRequest(request(own, "system:masters"), "", admission.Create), ""},
		"a request for system:masters is refused": {certificateRequest(request(client, "team", "system:masters"), "", admission.Create),
			"403 Forbidden: use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"},
		"a request with a large key is refused": {certificateRequest(large, "", admission.Create),
			"403 Forbidden: spec.request: the RSA key has 8200 bits, the limit is 8192"},
		"approval requires permission on the signer": {certificateRequest(request(client), "approval", admission.Update),
			`403 Forbidden: user not permitted to approve requests with signerName "kubernetes.io/kube-apiserver-client"`},
		"an approver of the signer approves": {certificateRequest(request(own), "approval", admission.Update), ""},
		"signing requires permission on the signer": {certificateRequest(signed, "status", admission.Update),
			`403 Forbidden: user not permitted to sign requests with signerName "kubernetes.io/kube-apiserver-client"`},
	} {
		t.Run(name, func(t *testing.T) {
			config := newConfig(t, grants{"ada approve signers.certificates.k8s.io example.org/own in root"}, at("root")...)
			config.Limits = objectlimit.New(objectlimit.Config{})
			config.Limits.Follow(config.Set)
			chain, err := New(config)
			if err != nil {
				t.Fatal(err)
			}
			err = chain.(admission.MutationInterface).Admit(in(t, "root"), test.a, nil)
			if err == nil {
				err = chain.(admission.ValidationInterface).Validate(in(t, "root"), test.a, nil)
			}
			wantOutcome(t, test.a, err, test.want)
		})
	}
}
