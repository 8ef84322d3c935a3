package sharded

import (
	"fmt"
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
	rootKubeconfig, err := i.kubeconfigOf(i.Root(), Root, nil)
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
			"--shard-name=" + shard.Name, "--shard-base-url=" + shard.InternalURL(),
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
	cache, err := i.cacheFlags()
	if err != nil {
		return nil, err
	}
	flags := []string{
		"--token-auth-file=" + tokens, "--client-ca-file=" + i.PKI.Clients.File, "--root-ca-file=" + i.PKI.Serving.File,
		"--peer-client-ca-file=" + i.PKI.PeersFile, "--shard-ca-file=" + i.PKI.Serving.File, "--shard-external-url=" + i.URL(),
		"--requestheader-client-ca-file=" + i.PKI.Proxies.File, "--requestheader-allowed-names=" + strings.Join(i.proxyNames(), ","),
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
	}
	return slices.Concat(flags, cache, i.options.ShardFlags), nil
}

// proxyNames are the names of the front proxies. Shards know at least one, which need not run.
func (i *Installation) proxyNames() []string {
	names := []string{proxyName(0)}
	for n := 1; n < i.options.Proxies; n++ {
		names = append(names, proxyName(n))
	}
	return names
}

func proxyName(n int) string { return fmt.Sprintf("proxy-%d", n+1) }
