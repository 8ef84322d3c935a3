package etcdcluster

import (
	"encoding/pem"
	"fmt"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/conditions"
	"github.com/kcplane/kcp/operator/internal/pki"
)

// Names of the Certificates of a cluster. Peers have a separate authority, so that a client certificate is never accepted as a member.
func serverName(cluster string) string   { return cluster + "-server" }
func peerName(cluster string) string     { return cluster + "-peer" }
func operatorName(cluster string) string { return cluster + "-operator" }
func peerCAName(cluster string) string   { return cluster + "-peer-ca" }

// TrustSecretName returns the name of the Secret with the CA certificates that members and their clients trust.
func TrustSecretName(cluster string) string { return cluster + "-trust" }

// Keys of that Secret. The first authority signs the certificates of clients, and those that members present to clients.
const (
	TrustedClients = "clients.crt"
	trustedPeers   = "peers.crt"
)

// certificates returns the authorities, then the leaf certificates. The DNS names cover all possible members, so that certificates do not
// change when the cluster is scaled.
func certificates(cluster *v1alpha1.EtcdCluster) []client.Object {
	var objects []client.Object
	namespace, name := cluster.Namespace, cluster.Name
	issuer := pki.IssuerNamed(name + "-selfsigned")
	if tls := cluster.Spec.TLS; tls != nil && tls.IssuerRef != nil {
		issuer = pki.Issuer(*tls.IssuerRef)
	} else {
		objects = append(objects, pki.SelfSignedIssuer(namespace, issuer.Name, labels(cluster)))
	}
	for _, ca := range []string{ClientIssuerName(name), peerCAName(name)} {
		objects = append(objects,
			certificate(cluster, pki.Request{Name: ca, CommonName: ca, Issuer: issuer, Authority: true}),
			pki.CAIssuer(namespace, ca, ca, labels(cluster)))
	}
	client, peer := pki.IssuerNamed(ClientIssuerName(name)), pki.IssuerNamed(peerCAName(name))
	both := append([]certmanager.KeyUsage{"client auth"}, pki.ServerUsages...)
	members := fmt.Sprintf("*.%s.%s.svc.%s", peerServiceName(name), namespace, domain(cluster))
	serverNames := []string{"localhost", members}
	for _, suffix := range []string{"", "." + namespace, "." + namespace + ".svc", "." + namespace + ".svc." + domain(cluster)} {
		serverNames = append(serverNames, ClientServiceName(name)+suffix)
	}
	return append(objects,
		certificate(cluster, pki.Request{Name: serverName(name), Issuer: client, Usages: both, DNSNames: serverNames,
			IPAddresses: []string{"127.0.0.1"}}),
		certificate(cluster, pki.Request{Name: peerName(name), Issuer: peer, Usages: both, DNSNames: []string{members}}),
		certificate(cluster, pki.Request{Name: ClientSecretName(name), Issuer: client, Usages: pki.ClientUsages,
			CommonName: ClientSecretName(name)}),
		certificate(cluster, pki.Request{Name: operatorName(name), Issuer: client, Usages: pki.ClientUsages, CommonName: operatorName(name)}),
	)
}

// certificate returns a Certificate with the type of key that makes TLS handshakes cheapest.
func certificate(cluster *v1alpha1.EtcdCluster, r pki.Request) *certmanager.Certificate {
	r.Namespace, r.Labels = cluster.Namespace, labels(cluster)
	c := pki.Certificate(r)
	c.Spec.PrivateKey.Algorithm, c.Spec.PrivateKey.Size, c.Spec.PrivateKey.Encoding = "ECDSA", 256, "PKCS8"
	return c
}

// trust returns the Secret with the CA certificates that members trust: the two authorities of the cluster, and not the issuers above them.
// An issuer of the user also signs certificates for others, and members must not accept those. Such issuers are in ca.crt of a certificate,
// and in the chain of an authority, so neither is used. Former authorities with other keys stay trusted as long as the Secret holds them,
// or they have signed certificates in use; their number is returned.
func trust(cluster *v1alpha1.EtcdCluster, authorities map[string]*corev1.Secret, held,
	signers map[string][]byte) (*corev1.Secret, int, error) {
	data, former := map[string][]byte{}, 0
	for key, secret := range authorities {
		authority := secret.Data[corev1.TLSCertKey]
		if block, _ := pem.Decode(authority); block == nil || block.Type != "CERTIFICATE" {
			return nil, 0, conditions.Stall("InvalidAuthority", "Secret %s has no certificate in %s: delete the Secret, so that it is issued again",
				secret.Name, corev1.TLSCertKey)
		}
		all, others := pki.Trusted(authority, held[key], signers[key])
		data[key], former = all, former+others
	}
	return &corev1.Secret{ObjectMeta: meta(cluster, TrustSecretName(cluster.Name)), Type: corev1.SecretTypeOpaque, Data: data}, former, nil
}
