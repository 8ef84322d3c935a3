package frontproxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kcplane/kcp/server/internal/frontproxy/forward"
	"github.com/kcplane/kcp/server/internal/frontproxy/identity"
	"github.com/kcplane/kcp/server/internal/frontproxy/mapping"
	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/internal/process/outbound"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/shards/tree"
)

// reloadInterval is how often files are compared with what is in use.
const reloadInterval = 5 * time.Second

// files are what the proxy has read from its files: how it connects to backends.
type files struct {
	mapping mapping.Mapping
	// connections are those of the entries, and shards those to shards.
	connections map[*mapping.Entry]*forward.Connections
	shards      *forward.Connections
	// headers are those for users at shards.
	headers identity.Names
	guard   *identity.Guard
	// peers call shards, and root is the URL of the root shard, empty without a kubeconfig.
	peers *peers.Clients
	root  string
	// texts are the files that decide about the rest.
	texts [3]string
}

// loader reads the files of the flags.
type loader struct {
	mappingFile, rootKubeconfig, shardsKubeconfig string
	// url returns the URL of a shard, for peers.
	url   func(shard string) (*url.URL, bool)
	clock clock.PassiveClock
}

// load reads all files. Connections with the same credentials are shared, also with those before.
func (l *loader) load(before *files) (*files, error) {
	loaded := &files{connections: map[*mapping.Entry]*forward.Connections{}}
	for i, name := range []string{l.mappingFile, l.rootKubeconfig, l.shardsKubeconfig} {
		if name == "" {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		loaded.texts[i] = string(text)
	}
	if before != nil && before.texts == loaded.texts {
		return before, nil
	}
	config, err := l.kubeconfig()
	if err != nil {
		return nil, err
	}
	if config != nil {
		if loaded.root, err = baseOf(config.Host); err != nil {
			return nil, err
		}
	}
	if loaded.mapping, err = l.mapping(loaded.texts[0], loaded.root); err != nil {
		return nil, err
	}
	loaded.guard = identity.NewGuard(loaded.mapping.Names()...)
	return loaded, l.connect(loaded, config)
}

// kubeconfig returns how to connect to shards; nil without a file.
func (l *loader) kubeconfig() (*rest.Config, error) {
	for _, name := range []string{l.shardsKubeconfig, l.rootKubeconfig} {
		if name == "" {
			continue
		}
		config, err := outbound.Kubeconfig(name)
		if err != nil {
			return nil, err
		}
		if name == l.shardsKubeconfig && l.rootKubeconfig != "" {
			root, err := outbound.Kubeconfig(l.rootKubeconfig)
			if err != nil {
				return nil, err
			}
			config.Host = root.Host
		}
		return config, nil
	}
	return nil, nil
}

// baseOf returns the URL of a server without the path of a logical cluster.
func baseOf(host string) (string, error) {
	u, err := url.Parse(host)
	if err != nil || u.Scheme != "https" {
		return "", fmt.Errorf("the URL %q in the kubeconfig of the root shard must begin with https://", host)
	}
	return u.Scheme + "://" + u.Host, nil
}

// mapping returns the mapping of a file. Without one, everything is at the shards.
func (l *loader) mapping(text, root string) (mapping.Mapping, error) {
	if l.mappingFile != "" {
		return mapping.Parse(l.mappingFile, []byte(text))
	}
	if root == "" {
		return mapping.Mapping{}, errors.New("--mapping-file or --root-kubeconfig is required")
	}
	backend, err := mapping.ParseBackend(root)
	if err != nil {
		return mapping.Mapping{}, err
	}
	var entries []*mapping.Entry
	for _, path := range []string{mapping.Clusters, services} {
		entries = append(entries, &mapping.Entry{Path: path, Backend: backend, Headers: identity.DefaultNames})
	}
	return mapping.New(entries)
}

// connect opens the connections of all entries.
func (l *loader) connect(loaded *files, config *rest.Config) error {
	shards := forward.Credentials{}
	tls := rest.TLSClientConfig{}
	if config != nil {
		tls = config.TLSClientConfig
		shards = forward.Credentials{
			CAFile: tls.CAFile, CertFile: tls.CertFile, KeyFile: tls.KeyFile, CA: tls.CAData, Cert: tls.CertData, Key: tls.KeyData,
		}
	}
	loaded.headers = identity.DefaultNames
	known := map[string]*forward.Connections{}
	open := func(c forward.Credentials) (*forward.Connections, error) {
		key := fmt.Sprintf("%q", []string{c.CAFile, c.CertFile, c.KeyFile, string(c.CA), string(c.Cert), string(c.Key)})
		if found, ok := known[key]; ok {
			return found, nil
		}
		created, err := forward.NewConnections(c)
		known[key] = created
		return created, err
	}
	for _, e := range loaded.mapping.Entries() {
		credentials := forward.Credentials{CAFile: e.CAFile, CertFile: e.CertFile, KeyFile: e.KeyFile}
		if l.mappingFile == "" || e.IsClusters() && e.CertFile == "" {
			credentials = shards
		}
		if e.IsClusters() {
			shards, loaded.headers = credentials, e.Headers
		}
		connections, err := open(credentials)
		if err != nil {
			return fmt.Errorf("%s: path %q: %w", cmp.Or(e.Source, l.rootKubeconfig), e.Path, err)
		}
		loaded.connections[e] = connections
	}
	var err error
	if loaded.shards, err = open(shards); err != nil {
		return err
	}
	if config == nil {
		tls = rest.TLSClientConfig{CAFile: shards.CAFile, CertFile: shards.CertFile, KeyFile: shards.KeyFile}
	}
	loaded.peers, err = peers.NewClients(peers.Config{TLS: tls, Clock: l.clock, URL: func(shard string) (string, bool) {
		u, known := l.url(shard)
		if !known {
			return "", false
		}
		return u.String(), true
	}})
	return err
}

// reload reads the files again when they change, until ctx ends. Requests in progress keep what they have. An invalid file changes nothing.
func (l *loader) reload(ctx context.Context, current *atomic.Pointer[files], stale func(file string, invalid bool)) {
	wait.UntilWithContext(ctx, func(context.Context) { l.reloadOnce(current, stale) }, reloadInterval)
}

func (l *loader) reloadOnce(current *atomic.Pointer[files], stale func(file string, invalid bool)) {
	before := current.Load()
	loaded, err := l.load(before)
	stale("mapping", err != nil)
	switch {
	case err != nil:
		klog.ErrorS(err, "Reading the mapping file and the kubeconfigs failed; the ones before stay in use")
		loaded = before
	case loaded != before:
		klog.InfoS("The mapping file or a kubeconfig has changed", decisionlog.Path, l.mappingFile)
		current.Store(loaded)
	}
	var failures []error
	seen := map[*forward.Connections]bool{}
	for _, c := range append(slices.Collect(maps.Values(loaded.connections)), loaded.shards) {
		if seen[c] {
			continue
		}
		seen[c] = true
		if _, err := c.Reload(); err != nil {
			failures = append(failures, err)
		}
	}
	stale("certificates", len(failures) > 0)
	if err := errors.Join(failures...); err != nil {
		klog.ErrorS(err, "Reading certificates failed; the ones before stay in use")
	}
}

// Stream implements tree.Streams. The root shard sends new shards with its bookmarks, so they arrive every second.
func (c currentPeers) Stream(ctx context.Context, shard, call string, query url.Values) (io.ReadCloser, error) {
	if shard != peers.Root {
		query.Set(tree.BookmarksParameter, tree.BookmarkInterval(c.shards()).String())
	}
	return c.files.Load().peers.Stream(ctx, shard, call, query)
}
