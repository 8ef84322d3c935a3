package sharded

import (
	"path/filepath"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// configureProxies writes the configuration of every front proxy.
func (i *Installation) configureProxies() error {
	tokens := filepath.Join(i.Directory, "proxy-tokens.csv")
	if err := kcptest.WriteTokens(tokens, i.options.ProxyUsers...); err != nil {
		return err
	}
	for _, proxy := range i.Proxies {
		peer, err := i.PKI.Peer(KindProxy, proxy.Name)
		if err != nil {
			return err
		}
		kubeconfig, err := i.kubeconfigOf(i.Root(), proxy.Name+"-to-root", &peer)
		if err != nil {
			return err
		}
		proxy.subcommand = "front-proxy"
		proxy.arguments = append(proxy.arguments, "--root-kubeconfig="+kubeconfig, "--shards-kubeconfig="+kubeconfig,
			"--client-ca-file="+i.PKI.Clients.File)
		if len(i.options.ProxyUsers) > 0 {
			proxy.arguments = append(proxy.arguments, "--token-auth-file="+tokens)
		}
	}
	return nil
}
