package shard

import (
	"slices"

	"github.com/kcplane/kcp/operator/internal/kcpaccess"
	"github.com/kcplane/kcp/operator/internal/settings"
	"github.com/kcplane/kcp/operator/internal/workload"
)

// References lists the Secrets and ConfigMaps in the spec, and those of the managed etcd.
func References(s *Shard) []settings.Reference {
	return slices.Concat(settings.EtcdReferences(s.Etcd), settings.Authorities("caBundleSecretRef", s.Spec.CABundleSecretRef),
		settings.Authorities("clientCABundleRef", s.Spec.ClientCABundleRef), settings.AuditReferences(s.Spec.Audit),
		settings.AuthorizationReferences(s.Spec.Authorization), settings.AuthenticationReferences(s.Spec.Auth),
		settings.VolumeReferences(s.Spec.ExtraVolumes))
}

// Names of hashes: of the keys of service accounts, and of the CAs of clients and of the certificates in use.
const (
	ServiceAccountInput = "service-account"
	AuthoritiesInput    = "authorities"
	// ServerTrustInput is the hash of the CAs with which the shard verifies other processes of the installation.
	ServerTrustInput = "server-trust"
)

// files returns the mounted files. Of CAs, only the certificate is mounted: no server needs their keys.
func files(s *Shard) []workload.Files {
	certificate := []string{"tls.crt"}
	pair := []string{"tls.crt", "tls.key"}
	all := []workload.Files{
		{Name: "server", Secret: s.leaf(Server), Keys: pair, Path: tls + "server"},
		{Name: "service-account", Secret: s.ServiceAccountKeys(), Keys: pair, Path: tls + "service-account"},
		{Name: "client-ca", Secret: s.ClientBundle(), Keys: certificate, Path: tls + "ca/client"},
		{Name: "requestheader-client-ca", Secret: s.proxies(), Keys: certificate, Path: tls + "ca/requestheader-client"},
	}
	if s.Sharded {
		all = append(all, workload.Files{Name: "client", Secret: s.leaf(Client), Keys: pair, Path: tls + "client"},
			workload.Files{Name: "server-ca", Secret: s.ServerBundle(), Keys: certificate, Path: tls + "ca/server"},
			workload.Files{Name: "peer-ca", Secret: s.PeerBundle(), Keys: certificate, Path: tls + "ca/peers"})
	}
	if s.Sharded && !s.IsRoot() {
		all = append(all, workload.Files{Name: "root-shard", Secret: s.Kubeconfig(RootShard), Keys: []string{kcpaccess.Key}, Path: rootShard})
	}
	if s.Sharded && s.Cache != nil {
		all = append(all, workload.Files{Name: "cache-client", Secret: s.leaf(CacheClient), Keys: pair, Path: cache + "client"},
			workload.Files{Name: "cache-ca", Secret: s.Cache.Bundle, Keys: certificate, Path: cache + "ca"},
			workload.Files{Name: "cache-kubeconfig", Secret: s.Kubeconfig(CacheClient), Keys: []string{kcpaccess.Key}, Path: cache + "kubeconfig"})
	}
	return append(all, settings.Mounts(References(s))...)
}

// CacheFiles returns the kubeconfig for the cache server.
func CacheFiles(s *Shard) kcpaccess.Files {
	return kcpaccess.Files{URL: s.Cache.URL, Certificate: cache + "client/tls.crt", CertificateKey: cache + "client/tls.key",
		Authorities: cache + "ca/tls.crt"}
}

// RootFiles returns the kubeconfig for the root shard at a URL, to which the shard adds its certificate.
func RootFiles(url string) kcpaccess.Files {
	return kcpaccess.Files{URL: url, Authorities: tls + "ca/server/tls.crt"}
}
