package sharded

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// configureShards writes the configuration of every shard.
func (i *Installation) configureShards() error {
	common, err := i.commonShardFlags()
	if err != nil {
		return err
	}
	rootKubeconfig, err := i.kubeconfigOf(i.Root())
	if err != nil {
		return err
	}
	for _, shard := range i.Shards {
		peer, err := i.PKI.Peer(KindShard, shard.Name)
		if err != nil {
			return err
		}
		shard.subcommand = "start"
		shard.arguments = slices.Concat(shard.arguments, common, []string{
			"--shard-name=" + shard.Name, "--shard-base-url=" + shard.internalURL(),
			"--shard-client-cert-file=" + peer.Cert, "--shard-client-key-file=" + peer.Key,
		})
		if shard.Name != Root {
			shard.arguments = append(shard.arguments, "--root-shard-kubeconfig-file="+rootKubeconfig)
		}
	}
	return nil
}

// commonShardFlags are the flags that have the same value on all shards.
func (i *Installation) commonShardFlags() ([]string, error) {
	tokens := filepath.Join(i.Directory, "tokens.csv")
	if err := kcptest.WriteTokens(tokens, i.options.Users...); err != nil {
		return nil, err
	}
	flags := append([]string{
		"--token-auth-file=" + tokens, "--client-ca-file=" + i.PKI.Clients.File, "--root-ca-file=" + i.PKI.Serving.File,
		"--peer-client-ca-file=" + i.PKI.PeersFile, "--shard-ca-file=" + i.PKI.Serving.File, "--shard-external-url=" + i.URL(),
	}, i.options.ShardFlags...)
	if len(i.Proxies) > 0 {
		names := make([]string, len(i.Proxies))
		for n, proxy := range i.Proxies {
			names[n] = proxy.Name
		}
		flags = append(flags, "--requestheader-client-ca-file="+i.PKI.Proxies.File, "--requestheader-allowed-names="+strings.Join(names, ","),
			"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
			"--requestheader-extra-headers-prefix=X-Remote-Extra-")
	}
	return flags, nil
}
