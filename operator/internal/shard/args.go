package shard

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
)

const (
	// rootDirectory has the files that the server writes, which are deleted with the pod.
	rootDirectory = "/var/run/kcp"
	tls           = "/etc/kcp/tls/"
	// delay is how long a server that shuts down still accepts new requests: until no proxy sends any.
	delay = "10s"
)

// args returns the command line. Arguments of users are last, so that they take precedence.
func args(s *Shard) []string {
	batteries := "workspace-types"
	if s.Scraped() {
		batteries += "," + metricsViewer
	}
	a := []string{
		"--root-directory=" + rootDirectory,
		"--batteries-included=" + batteries,
		"--shard-base-url=" + s.BaseURL(),
		"--shard-external-url=" + s.ExternalURL(),
		"--enable-leader-election=true",
		"--shutdown-delay-duration=" + delay,
		"--logging-format=json",
		"--tls-cert-file=" + tls + "server/tls.crt",
		"--tls-private-key-file=" + tls + "server/tls.key",
		"--client-ca-file=" + tls + "ca/client/tls.crt",
		"--requestheader-client-ca-file=" + tls + "ca/requestheader-client/tls.crt",
		"--requestheader-allowed-names=kcp-front-proxy,kcp-root-shard-proxy",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--service-account-key-file=" + tls + "service-account/tls.crt",
		"--service-account-signing-key-file=" + tls + "service-account/tls.key",
	}
	if s.Name != s.Root {
		a = append(a, "--shard-name="+s.Name)
	}
	if l := s.Spec.Logging; l != nil && l.Level > 0 {
		a = append(a, fmt.Sprintf("-v=%d", l.Level))
	}
	return slices.Concat(a, etcdArgs(s.Etcd), auditArgs(s.Spec.Audit), authorizationArgs(s.Spec.Authorization),
		authenticationArgs(s.Spec.Auth), s.Spec.ExtraArgs)
}

// etcdFlags are the flags for the endpoints, the prefix of keys, and the credentials of an etcd.
var etcdFlags = []string{"--etcd-servers=", "--etcd-prefix=", "--etcd-certfile=", "--etcd-keyfile=", "--etcd-cafile="}

func etcdArgs(e Etcd) []string {
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

func auditArgs(audit *v1alpha1.AuditSpec) []string {
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

func authorizationArgs(authorization *v1alpha1.AuthorizationSpec) []string {
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

func authenticationArgs(auth *v1alpha1.AuthSpec) []string {
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
