package shard

import (
	"slices"

	"github.com/kcplane/kcp/operator/internal/kcpaccess"
	"github.com/kcplane/kcp/operator/internal/settings"
)

const (
	// rootDirectory has the files that the server writes, which are deleted with the pod.
	rootDirectory = "/var/run/kcp"
	tls           = "/etc/kcp/tls/"
	rootShard     = "/etc/kcp/root-shard"
	cache         = "/etc/kcp/cache/"
	// delay is how long a server that shuts down still accepts new requests: until no proxy sends any.
	delay = "10s"
)

// OwnViewsFlag is the flag of shards that other processes serve the virtual workspaces of.
const OwnViewsFlag = "--run-virtual-workspaces="

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
		"--requestheader-allowed-names=" + ProxyName + ",kcp-root-shard-proxy",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--service-account-key-file=" + tls + "service-account/tls.crt",
		"--service-account-signing-key-file=" + tls + "service-account/tls.key",
	}
	if s.ViewsURL != "" {
		a = append(a, OwnViewsFlag+"false", "--shard-virtual-workspace-url="+s.ViewsURL)
	}
	a = append(a, shardingArgs(s)...)
	return slices.Concat(
		a,
		settings.LoggingFlags(s.Spec.Logging),
		settings.EtcdFlags(s.Etcd),
		settings.AuditFlags(s.Spec.Audit),
		settings.AuthorizationFlags(s.Spec.Authorization),
		settings.AuthenticationFlags(s.Spec.Auth),
		s.Spec.ExtraArgs,
	)
}

// shardingArgs returns the flags of a shard of an installation with several processes.
func shardingArgs(s *Shard) []string {
	if !s.Sharded {
		return nil
	}
	a := []string{
		"--shard-name=" + s.KCPName(),
		"--root-ca-file=" + tls + "ca/server/tls.crt",
		"--shard-ca-file=" + tls + "ca/server/tls.crt",
		"--peer-client-ca-file=" + tls + "ca/peers/tls.crt",
		"--shard-client-cert-file=" + tls + "client/tls.crt",
		"--shard-client-key-file=" + tls + "client/tls.key",
	}
	if !s.IsRoot() {
		a = append(a, "--root-shard-kubeconfig-file="+rootShard+"/"+kcpaccess.Key)
	}
	if s.Cache != nil {
		a = append(a, "--cache-kubeconfig="+cache+"kubeconfig/"+kcpaccess.Key)
	}
	return a
}
