package settings

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
	// Volume and Path are where the component reads it. Both are empty if only the operator reads it, or the spec has the path.
	Volume, Path string
}

// Hashed returns the keys that the component reads only when it starts. Of a certificate for etcd, that is the CA: client certificates are
// read for each connection.
func (r Reference) Hashed() []string {
	switch {
	case r.Path == "":
		return nil
	case r.Volume == etcdVolume:
		return r.Keys[2:] // ca.crt, if it is used
	default:
		return r.Keys
	}
}

// Input returns the name of the hash.
func (r Reference) Input() string { return r.Volume }

// Mounts returns the files of references that the component reads.
func Mounts(references []Reference) []workload.Files {
	var all []workload.Files
	for _, r := range references {
		if r.Path != "" {
			all = append(all, workload.Files{Name: r.Volume, Secret: r.Secret, ConfigMap: r.ConfigMap, Keys: r.Keys, Path: r.Path})
		}
	}
	return all
}

// Authorities returns the reference to a Secret with CAs, or nothing.
func Authorities(field string, ref *v1alpha1.LocalReference) []Reference {
	if ref == nil {
		return nil
	}
	return []Reference{{Field: field, Secret: ref.Name, Keys: []string{"tls.crt"}}}
}

// EtcdReferences returns the Secrets with credentials for an etcd.
func EtcdReferences(e Etcd) []Reference {
	if e.Secret == "" {
		return nil
	}
	var all []Reference
	field, keys := "etcd.tlsConfig.secretRef", []string{"tls.crt", "tls.key", "ca.crt"}
	if e.Trust != "" {
		field, keys = "etcd.managed", keys[:2]
		all = append(all, Reference{Field: field, Secret: e.Trust, Keys: []string{e.TrustKey}, Volume: etcdTrustVolume, Path: etcdTrust})
	}
	return append(all, Reference{Field: field, Secret: e.Secret, Keys: keys, Volume: etcdVolume, Path: etcdTLS})
}

// AuditReferences returns the policy and the webhook of auditing.
func AuditReferences(a *v1alpha1.AuditSpec) []Reference {
	var all []Reference
	if a == nil {
		return nil
	}
	if p := a.Policy; p != nil && p.ConfigMap != nil {
		all = append(all, Reference{Field: "audit.policy.configMap", ConfigMap: p.ConfigMap.Name, Keys: []string{p.ConfigMap.Key},
			Volume: "audit-policy", Path: auditPolicy})
	}
	if w := a.Webhook; w != nil && w.ConfigSecretName != "" {
		all = append(all, webhook("audit.webhook.configSecretName", w.ConfigSecretName, "audit-webhook", auditWebhook))
	}
	return all
}

// AuthorizationReferences returns the webhook of authorization.
func AuthorizationReferences(a *v1alpha1.AuthorizationSpec) []Reference {
	if a == nil || a.Webhook == nil || a.Webhook.ConfigSecretName == "" {
		return nil
	}
	return []Reference{webhook("authorization.webhook.configSecretName", a.Webhook.ConfigSecretName, "authorization-webhook",
		authorizationWebhook)}
}

func webhook(field, secret, volume, path string) Reference {
	return Reference{Field: field, Secret: secret, Keys: []string{"kubeconfig"}, Volume: volume, Path: path}
}

// AuthenticationReferences returns the CA of an issuer, the webhook and the static tokens of authentication.
func AuthenticationReferences(a *v1alpha1.AuthSpec) []Reference {
	var all []Reference
	if a == nil {
		return nil
	}
	if o := a.OIDC; o != nil && o.CAFileRef != nil {
		all = append(all, Reference{Field: "auth.oidc.caFileRef", Secret: o.CAFileRef.Name, Keys: []string{oidcKey(o.CAFileRef)},
			Volume: "oidc-ca", Path: oidcCA})
	}
	if w := a.Webhook; w != nil {
		all = append(all, webhook("auth.webhook.configSecretName", w.ConfigSecretName, "authentication-webhook", authenticationWebhook))
	}
	if t := a.TokenAuthFile; t != nil {
		all = append(all, Reference{Field: "auth.tokenAuthFile.secretName", Secret: t.SecretName, Keys: []string{tokenKey(t)},
			Volume: "tokens", Path: tokens})
	}
	return all
}

// VolumeReferences returns the sources of additional volumes.
func VolumeReferences(volumes []corev1.Volume) []Reference {
	var all []Reference
	for _, v := range volumes {
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

func oidcKey(ref *v1alpha1.OIDCCAFileRef) string { return cmp.Or(ref.Key, "ca.crt") }

func tokenKey(t *v1alpha1.TokenAuthFile) string { return cmp.Or(t.Key, "token.csv") }
