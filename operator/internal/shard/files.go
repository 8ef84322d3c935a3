package shard

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/workload"
)

// Directories of files from users.
const (
	auditPolicy           = "/etc/kcp/audit/policy"
	auditWebhook          = "/etc/kcp/audit/webhook"
	authorizationWebhook  = "/etc/kcp/authorization/webhook"
	authenticationWebhook = "/etc/kcp/authentication/webhook"
	tokens                = "/etc/kcp/authentication/token"
	oidcCA                = "/etc/kcp/tls/oidc"
	etcdTLS               = "/etc/etcd/tls"
	etcdTrust             = "/etc/etcd/trust"
)

// Volumes with credentials for etcd.
const (
	etcdVolume      = "etcd"
	etcdTrustVolume = "etcd-trust"
)

// Reference is a Secret or ConfigMap in the spec, with keys that it must have.
type Reference struct {
	// Field of the spec.
	Field             string
	Secret, ConfigMap string
	Keys              []string
	// volume and path are where the server reads it. Both are empty if only the operator reads it, or the spec has the path.
	volume, path string
}

// References lists the Secrets and ConfigMaps in the spec, and those of the managed etcd.
func References(s *Shard) []Reference {
	var all []Reference
	secret := func(field, name, volume, path string, keys ...string) {
		all = append(all, Reference{Field: field, Secret: name, Keys: keys, volume: volume, path: path})
	}
	if s.Etcd.Secret != "" {
		field, keys := "etcd.tlsConfig.secretRef", []string{"tls.crt", "tls.key", "ca.crt"}
		if s.Etcd.Trust != "" {
			field, keys = "etcd.managed", keys[:2]
			secret(field, s.Etcd.Trust, etcdTrustVolume, etcdTrust, s.Etcd.TrustKey)
		}
		secret(field, s.Etcd.Secret, etcdVolume, etcdTLS, keys...)
	}
	if s.Spec.CABundleSecretRef != nil {
		secret("caBundleSecretRef", s.Spec.CABundleSecretRef.Name, "", "", "tls.crt")
	}
	if s.Spec.ClientCABundleRef != nil {
		secret("clientCABundleRef", s.Spec.ClientCABundleRef.Name, "", "", "tls.crt")
	}
	if a := s.Spec.Audit; a != nil {
		if p := a.Policy; p != nil && p.ConfigMap != nil {
			all = append(all, Reference{Field: "audit.policy.configMap", ConfigMap: p.ConfigMap.Name, Keys: []string{p.ConfigMap.Key},
				volume: "audit-policy", path: auditPolicy})
		}
		if w := a.Webhook; w != nil && w.ConfigSecretName != "" {
			secret("audit.webhook.configSecretName", w.ConfigSecretName, "audit-webhook", auditWebhook, "kubeconfig")
		}
	}
	if a := s.Spec.Authorization; a != nil && a.Webhook != nil && a.Webhook.ConfigSecretName != "" {
		secret("authorization.webhook.configSecretName", a.Webhook.ConfigSecretName, "authorization-webhook", authorizationWebhook, "kubeconfig")
	}
	if a := s.Spec.Auth; a != nil {
		if o := a.OIDC; o != nil && o.CAFileRef != nil {
			secret("auth.oidc.caFileRef", o.CAFileRef.Name, "oidc-ca", oidcCA, oidcKey(o.CAFileRef))
		}
		if w := a.Webhook; w != nil {
			secret("auth.webhook.configSecretName", w.ConfigSecretName, "authentication-webhook", authenticationWebhook, "kubeconfig")
		}
		if t := a.TokenAuthFile; t != nil {
			secret("auth.tokenAuthFile.secretName", t.SecretName, "tokens", tokens, tokenKey(t))
		}
	}
	for _, v := range s.Spec.ExtraVolumes {
		field := "extraVolumes[" + v.Name + "]"
		if source := v.Secret; source != nil && (source.Optional == nil || !*source.Optional) {
			all = append(all, Reference{Field: field, Secret: source.SecretName, Keys: keysOf(source.Items)})
		}
		if source := v.ConfigMap; source != nil && (source.Optional == nil || !*source.Optional) {
			all = append(all, Reference{Field: field, ConfigMap: source.Name, Keys: keysOf(source.Items)})
		}
	}
	return all
}

func keysOf(items []corev1.KeyToPath) []string {
	var keys []string
	for _, item := range items {
		keys = append(keys, item.Key)
	}
	return keys
}

// Hashed returns the keys that the server reads only when it starts. Of a certificate for etcd, that is the CA: client certificates are
// read for each connection.
func (r Reference) Hashed() []string {
	switch {
	case r.path == "":
		return nil
	case r.volume == etcdVolume:
		return r.Keys[2:] // ca.crt, if it is used
	default:
		return r.Keys
	}
}

// Input returns the name of the hash.
func (r Reference) Input() string { return r.volume }

// Names of hashes: of the keys of service accounts, and of the CAs of clients and of the certificates in use.
const (
	ServiceAccountInput = "service-account"
	AuthoritiesInput    = "authorities"
)

// files returns the mounted files. Of CAs, only the certificate is mounted: no server needs their keys.
func files(s *Shard) []workload.Files {
	certificate := []string{"tls.crt"}
	pair := []string{"tls.crt", "tls.key"}
	all := []workload.Files{
		{Name: "server", Secret: s.leaf(Server), Keys: pair, Path: tls + "server"},
		{Name: "service-account", Secret: s.ServiceAccountKeys(), Keys: pair, Path: tls + "service-account"},
		{Name: "client-ca", Secret: s.ClientBundle(), Keys: certificate, Path: tls + "ca/client"},
		{Name: "requestheader-client-ca", Secret: s.authority("requestheader-client-ca"), Keys: certificate,
			Path: tls + "ca/requestheader-client"},
	}
	for _, r := range References(s) {
		if r.path != "" {
			all = append(all, workload.Files{Name: r.volume, Secret: r.Secret, ConfigMap: r.ConfigMap, Keys: r.Keys, Path: r.path})
		}
	}
	return all
}

func oidcKey(ref *v1alpha1.OIDCCAFileRef) string { return cmp.Or(ref.Key, "ca.crt") }

func tokenKey(t *v1alpha1.TokenAuthFile) string { return cmp.Or(t.Key, "token.csv") }
