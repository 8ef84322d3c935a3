package shard

import (
	"net"
	"slices"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/pki"
)

// Leaf certificates, by their names in templates.
const (
	// Server is the certificate of the server.
	Server = "server"
	// ServiceAccount is the key pair that signs tokens of service accounts.
	ServiceAccount = "service-account"
	metricsViewer  = "metrics-viewer" // the user that kcp's battery of this name creates
	// Operator is the certificate of the operator.
	Operator = "kcp-operator"
	// LogicalClusterAdmin and ExternalAdmin are the certificates of components that work on all logical clusters.
	LogicalClusterAdmin = "logical-cluster-admin"
	ExternalAdmin       = "external-logical-cluster-admin"
	// Client is the certificate with which a shard calls the other processes of its installation.
	Client = "client"
	// CacheClient is the certificate of a shard for the cache server, which an authority of the cache server signs.
	CacheClient = "cache-client"
	// RootShard names the kubeconfig of the root shard.
	RootShard = "root-shard"
)

// ProxyName is the common name in the certificates of front proxies. Shards believe what they say about users.
const ProxyName = "kcp-front-proxy"

// The CAs, all signed by the CA of the installation.
var authorities = []string{"server-ca", "client-ca", "requestheader-client-ca", "service-account-ca"}

// peerCA signs the certificates with which shards call each other. Only an installation with several processes has it.
const peerCA = "peer-ca"

// Authority returns the name of the Secret and of the Issuer of a CA of the installation.
func (s *Shard) Authority(name string) string { return s.authority(name) }

// authority returns the name of the Secret of a CA.
func (s *Shard) authority(name string) string { return s.Root + "-" + name }

// leaf returns the name of the Secret of a leaf certificate.
func (s *Shard) leaf(name string) string { return s.prefix() + name }

// prefix returns the prefix of the names of a shard's objects, which are not those of another kind with the same name.
func (s *Shard) prefix() string {
	if s.IsRoot() {
		return s.Name + "-"
	}
	return s.Name + "-shard-"
}

// ServerCA returns the name of the Secret and of the Issuer of the CA for server certificates.
func (s *Shard) ServerCA() string { return s.authority("server-ca") }

// ClientCA returns the name of the Secret and of the Issuer of the CA for client certificates.
func (s *Shard) ClientCA() string { return s.authority("client-ca") }

// ServerBundle and ClientBundle return the names of the Secrets with all CAs for server certificates, and for client certificates.
func (s *Shard) ServerBundle() string { return s.prefix() + "merged-ca-bundle" }

// ClientBundle is described at ServerBundle.
func (s *Shard) ClientBundle() string { return s.prefix() + "merged-client-ca" }

// PeerCA returns the name of the Secret and of the Issuer of the CA for the certificates of shards as peers, and ProxyCA for those of front
// proxies.
func (s *Shard) PeerCA() string { return s.authority(peerCA) }

// ProxyCA is described at PeerCA.
func (s *Shard) ProxyCA() string { return s.authority("requestheader-client-ca") }

// PeerBundle returns the name of the Secret with all CAs for the certificates of peers, and ProxyBundle for those of front proxies only.
// Both are the same for all shards of an installation.
func (s *Shard) PeerBundle() string { return s.authority("merged-peer-ca") }

// ProxyBundle is described at PeerBundle.
func (s *Shard) ProxyBundle() string { return s.authority("merged-requestheader-ca") }

// proxies returns the name of the Secret with the CAs of front proxies.
func (s *Shard) proxies() string {
	if s.Sharded {
		return s.ProxyBundle()
	}
	return s.ProxyCA()
}

// ServiceAccountKeys returns the name of the Secret with the key that signs tokens of service accounts, and with all accepted keys.
func (s *Shard) ServiceAccountKeys() string { return s.leaf(ServiceAccount) + "-keys" }

// Leaf returns the name of the Secret of a certificate, and Kubeconfig the name of the Secret with a kubeconfig for it.
func (s *Shard) Leaf(name string) string { return s.leaf(name) }

// Kubeconfig is described at Leaf.
func (s *Shard) Kubeconfig(name string) string { return s.leaf(name) + "-kubeconfig" }

// Authorities builds the CAs of an installation, and their Issuers. The issuer in the spec signs the topmost CA, which is self-signed
// without an issuer, and is not built if the spec names an existing one.
func Authorities(s *Shard, certificates *v1alpha1.Certificates) (issuers, signed []client.Object) {
	root := s.Root + "-ca"
	request := func(name, template, issuer string) pki.Request {
		return pki.Request{
			Namespace: s.Namespace, Name: name, Labels: s.Labels(), CommonName: name, Authority: true, Template: s.template(template),
			Issuer: pki.IssuerNamed(issuer),
		}
	}
	if certificates == nil || certificates.CASecretRef == nil {
		own := request(root, "root-ca", s.selfSigned())
		if certificates != nil && certificates.IssuerRef != nil {
			own.Issuer = pki.Issuer(*certificates.IssuerRef)
		} else {
			issuers = append(issuers, pki.SelfSignedIssuer(s.Namespace, own.Issuer.Name, s.Labels()))
		}
		signed = append(signed, pki.Certificate(own))
	}
	issuers = append(issuers, pki.CAIssuer(s.Namespace, root, s.RootSecret, s.Labels()))
	all := authorities
	if s.Sharded {
		all = append(slices.Clone(all), peerCA)
	}
	for _, name := range all {
		issuers = append(issuers, pki.CAIssuer(s.Namespace, s.authority(name), s.authority(name), s.Labels()))
		signed = append(signed, pki.Certificate(request(s.authority(name), name, root)))
	}
	return issuers, signed
}

// Leaves builds the leaf certificates of a shard.
func Leaves(s *Shard) []client.Object {
	names, addresses := s.serverNames()
	user := func(name, commonName string, groups ...string) pki.Request {
		return s.request(name, "client-ca", pki.Request{CommonName: commonName, Organizations: groups, Usages: pki.ClientUsages})
	}
	requests := []pki.Request{
		s.request(Server, "server-ca", pki.Request{DNSNames: names, IPAddresses: addresses, Usages: pki.ServerUsages}),
		// A new key would invalidate all tokens of service accounts: renewal keeps it. The certificate itself is not used.
		s.request(ServiceAccount, "service-account-ca", pki.Request{CommonName: s.leaf(ServiceAccount), KeepKey: true,
			Usages: []certmanager.KeyUsage{"digital signature", "key encipherment"}, Duration: 10 * pki.Year}),
	}
	if s.IsRoot() {
		requests = append(requests, user(LogicalClusterAdmin, LogicalClusterAdmin, "system:kcp:logical-cluster-admin"),
			user(ExternalAdmin, ExternalAdmin, "system:kcp:external-logical-cluster-admin"),
			user(Operator, "system:kcp-operator", "system:kcp:admin"))
	}
	if s.Sharded {
		requests = append(requests, s.request(Client, peerCA, s.peer()))
	}
	if s.Sharded && s.Cache != nil {
		client := s.request(CacheClient, "", s.peer())
		client.Issuer, client.Template = pki.IssuerNamed(s.Cache.Issuer), s.Cache.Template
		requests = append(requests, client)
	}
	if s.Scraped() {
		requests = append(requests, user(metricsViewer, metricsViewer))
	}
	var certificates []client.Object
	for _, request := range requests {
		certificates = append(certificates, pki.Certificate(request))
	}
	return certificates
}

// Unwanted returns objects that Authorities and Leaves build only for other specs. CAs are not included, because users may have
// certificates from them.
func Unwanted(s *Shard, certificates *v1alpha1.Certificates) []client.Object {
	var objects []client.Object
	if certificates != nil && certificates.IssuerRef != nil {
		objects = append(objects, pki.SelfSignedIssuer(s.Namespace, s.selfSigned(), s.Labels()))
	}
	unwanted := func(name string) {
		objects = append(objects, &certmanager.Certificate{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.leaf(name)}})
	}
	if !s.Scraped() {
		unwanted(metricsViewer)
	}
	if s.Cache == nil {
		unwanted(CacheClient)
	}
	return objects
}

// selfSigned returns the name of the Issuer of a self-signed CA.
func (s *Shard) selfSigned() string { return s.authority("selfsigned") }

func (s *Shard) request(name, authority string, r pki.Request) pki.Request {
	r.Namespace, r.Name, r.Labels, r.Template = s.Namespace, s.leaf(name), s.Labels(), s.template(name)
	r.Issuer = pki.IssuerNamed(s.authority(authority))
	return r
}

func (s *Shard) template(name string) *v1alpha1.CertificateTemplate {
	if template, ok := s.Templates[name]; ok {
		return &template
	}
	return nil
}

// peer describes a certificate that says which shard of the installation a client is.
func (s *Shard) peer() pki.Request {
	return pki.Request{CommonName: "shard-" + s.KCPName(), URIs: []string{"kcp://shard/" + s.KCPName()}, Usages: pki.ClientUsages}
}

// serverNames returns the DNS names and IP addresses in the server's certificate.
func (s *Shard) serverNames() (names, addresses []string) {
	service := s.WorkloadName()
	names = []string{"localhost", service, service + "." + s.Namespace, service + "." + s.Namespace + ".svc", s.Host()}
	hosts := []string{s.baseHost()}
	if s.IsRoot() {
		hosts = append(hosts, s.External.Hostname, s.External.PrivateHostname)
	}
	for _, host := range hosts {
		if net.ParseIP(host) != nil {
			addresses = append(addresses, host)
		} else {
			names = append(names, host)
		}
	}
	return names, addresses
}
