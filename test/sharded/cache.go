package sharded

// configureCache writes the configuration of the cache server, if there is one.
func (i *Installation) configureCache() error {
	if i.Cache == nil {
		return nil
	}
	i.Cache.subcommand = "cache-server"
	i.Cache.arguments = append(i.Cache.arguments, "--peer-client-ca-file="+i.PKI.Peers.File, "--client-ca-file="+i.PKI.Clients.File)
	return nil
}

// cacheFlags are the flags with which a shard reaches the cache server. Without them, it uses the root shard.
func (i *Installation) cacheFlags() ([]string, error) {
	if i.Cache == nil {
		return nil, nil
	}
	kubeconfig, err := i.kubeconfigOf(i.Cache, i.Cache.Name, nil)
	return []string{"--cache-kubeconfig=" + kubeconfig}, err
}
