// Package settings converts fields that several components have into flags, and into the files that these name. Its functions are pure.
package settings

import (
	"slices"
	"strconv"
	"strings"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
)

// etcdNames are the flags for the endpoints, the prefix of keys, and the credentials of an etcd.
var etcdNames = []string{"--etcd-servers=", "--etcd-prefix=", "--etcd-certfile=", "--etcd-keyfile=", "--etcd-cafile="}

// EtcdFlags returns the flags for an etcd.
func EtcdFlags(e Etcd) []string {
	a := []string{"--etcd-servers=" + strings.Join(e.Endpoints, ",")}
	if e.Prefix != "" {
		a = append(a, "--etcd-prefix="+e.Prefix)
	}
	if e.Secret != "" {
		authorities := etcdTLS + "/ca.crt"
		if e.Trust != "" {
			authorities = etcdTrust + "/" + e.TrustKey
		}
		a = append(a, "--etcd-certfile="+etcdTLS+"/tls.crt", "--etcd-keyfile="+etcdTLS+"/tls.key", "--etcd-cafile="+authorities)
	}
	return a
}

// LoggingFlags returns the flags for logging.
func LoggingFlags(l *v1alpha1.LoggingSpec) []string {
	if l == nil || l.Level == 0 {
		return nil
	}
	return []string{"-v=" + strconv.Itoa(l.Level)}
}

// flags is a command line without flags for unset values.
type flags []string

func (f *flags) text(name, value string) {
	if value != "" {
		*f = append(*f, "--"+name+"="+value)
	}
}

func (f *flags) number(name string, value int) {
	if value != 0 {
		f.text(name, strconv.Itoa(value))
	}
}

func (f *flags) set(name string, value bool) {
	if value {
		f.text(name, "true")
	}
}

func (f *flags) duration(name string, value *v1alpha1.Duration) {
	if value != nil && value.Duration.Duration != 0 {
		f.text(name, value.Duration.Duration.String())
	}
}

// AuditFlags returns the flags for auditing.
func AuditFlags(audit *v1alpha1.AuditSpec) []string {
	var f flags
	if audit == nil {
		return nil
	}
	if p := audit.Policy; p != nil && p.ConfigMap != nil {
		f.text("audit-policy-file", auditPolicy+"/"+p.ConfigMap.Key)
	}
	if w := audit.Webhook; w != nil && w.ConfigSecretName != "" {
		f.text("audit-webhook-config-file", auditWebhook+"/kubeconfig")
		f.text("audit-webhook-mode", w.Mode)
		f.text("audit-webhook-version", w.Version)
		f.duration("audit-webhook-initial-backoff", w.InitialBackoff)
		f.number("audit-webhook-batch-buffer-size", w.BatchBufferSize)
		f.number("audit-webhook-batch-max-size", w.BatchMaxSize)
		f.duration("audit-webhook-batch-max-wait", w.BatchMaxWait)
		f.number("audit-webhook-batch-throttle-burst", w.BatchThrottleBurst)
		f.set("audit-webhook-batch-throttle-enable", w.BatchThrottleEnable)
		f.text("audit-webhook-batch-throttle-qps", w.BatchThrottleQPS)
		f.set("audit-webhook-truncate-enabled", w.TruncateEnabled)
		f.number("audit-webhook-truncate-max-batch-size", w.TruncateMaxBatchSize)
		f.number("audit-webhook-truncate-max-event-size", w.TruncateMaxEventSize)
	}
	return f
}

// AuthorizationFlags returns the flags for authorization besides RBAC.
func AuthorizationFlags(authorization *v1alpha1.AuthorizationSpec) []string {
	var f flags
	if authorization == nil || authorization.Webhook == nil {
		return nil
	}
	w := authorization.Webhook
	if w.ConfigSecretName != "" {
		f.text("authorization-webhook-config-file", authorizationWebhook+"/kubeconfig")
		f.text("authorization-webhook-version", w.Version)
		f.duration("authorization-webhook-cache-authorized-ttl", w.CacheAuthorizedTTL)
		f.duration("authorization-webhook-cache-unauthorized-ttl", w.CacheUnauthorizedTTL)
	}
	if len(w.AllowPaths) > 0 {
		paths := slices.Concat(w.AllowPaths, []string{"/livez", "/readyz"}) // the kubelet probes these two without authentication
		slices.Sort(paths)
		f.text("authorization-always-allow-paths", strings.Join(slices.Compact(paths), ","))
	}
	return f
}

// AuthenticationFlags returns the flags for authentication besides client certificates.
func AuthenticationFlags(auth *v1alpha1.AuthSpec) []string {
	var f flags
	if auth == nil {
		return nil
	}
	if o := auth.OIDC; o != nil {
		f.text("oidc-issuer-url", o.IssuerURL)
		f.text("oidc-client-id", o.ClientID)
		f.text("oidc-groups-claim", o.GroupsClaim)
		f.text("oidc-username-claim", o.UsernameClaim)
		f.text("oidc-username-prefix", o.UsernamePrefix)
		f.text("oidc-groups-prefix", o.GroupsPrefix)
		if o.CAFileRef != nil {
			f.text("oidc-ca-file", oidcCA+"/"+oidcKey(o.CAFileRef))
		}
	}
	if w := auth.Webhook; w != nil {
		f.text("authentication-token-webhook-config-file", authenticationWebhook+"/kubeconfig")
		f.text("authentication-token-webhook-version", w.Version)
		f.duration("authentication-token-webhook-cache-ttl", w.CacheAuthenticationTTL)
	}
	if t := auth.TokenAuthFile; t != nil {
		f.text("token-auth-file", tokens+"/"+tokenKey(t))
	}
	return f
}
