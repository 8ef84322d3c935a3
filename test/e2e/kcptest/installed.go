package kcptest

import (
	"encoding/json"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
)

// Installed describes an installation of several processes that another program runs. The suites that share it create their logical
// clusters on all its shards.
type Installed struct {
	// URLs are those of its front proxies.
	URLs []string `json:"urls"`
	// Authorities verify them, in PEM.
	Authorities []byte `json:"authorities"`
	// Shards are its shards.
	Shards []InstalledShard `json:"shards"`
	// Type is the name of a workspace type in root whose workspaces are empty.
	Type string `json:"type"`
}

// InstalledShard is a shard of an installation.
type InstalledShard struct {
	Name string `json:"name"`
	// URL is where it serves virtual workspaces.
	URL string `json:"url"`
}

// InstalledVariable is the environment variable with the path of a file that contains an Installed. With it, Main starts no server. The
// kubeconfig of administrators is beside the file.
const InstalledVariable = "KCP_INSTALLED"

// At returns a server that another program runs, for clients that verify it with certificate authorities in PEM.
func At(url string, authorities []byte) *Server {
	return &Server{URL: url, base: &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: authorities}}}
}

// installed returns a server that is one of the front proxies of an installation.
func installed(file string) (*Server, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", InstalledVariable, err)
	}
	i := &Installed{}
	if err := json.Unmarshal(content, i); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", InstalledVariable, file, err)
	}
	s := At(i.URLs[rand.IntN(len(i.URLs))], i.Authorities)
	s.installed, s.seed, s.Root = i, maphash.MakeSeed(), filepath.Dir(file)
	return s, nil
}

// clusterOnShard creates an empty workspace on one of the shards of an installation.
func (s *Server) clusterOnShard(t testing.TB) *Cluster {
	t.Helper()
	root, name := s.Named("root"), "test"+Suffix()
	shard := s.installed.Shards[rand.IntN(len(s.installed.Shards))]
	if s.oneShard {
		shard = s.shardOf(t)
	}
	root.CreateWorkspace(t, Masters, On(shard.Name, Workspace(name, root.Name, s.installed.Type)))
	c := s.Named(root.GetWorkspace(t, name).Spec.Cluster)
	s.placed.Store(c.Name, shard.URL)
	t.Logf("workspace root:%s is logical cluster %s on shard %s", name, c.Name, shard.Name)
	return c
}

// shardOf returns the shard of all logical clusters of a test.
func (s *Server) shardOf(t testing.TB) InstalledShard {
	test, _, _ := strings.Cut(t.Name(), "/")
	return s.installed.Shards[maphash.String(s.seed, test)%uint64(len(s.installed.Shards))]
}

// together lets a Workspace object select the shard of its test, and returns that, if the workspaces of a test must be on one shard.
func (s *Server) together(t testing.TB, ws *unstructured.Unstructured) (*unstructured.Unstructured, InstalledShard) {
	if s.installed == nil || !s.oneShard {
		return ws, InstalledShard{}
	}
	shard := s.shardOf(t)
	return On(shard.Name, ws), shard
}

// ShardURLs returns the URLs at which lists of all logical clusters are read: of each shard of an installation, or of the server.
func (s *Server) ShardURLs() []string {
	if s.installed == nil {
		return []string{s.URL}
	}
	var urls []string
	for _, shard := range s.installed.Shards {
		urls = append(urls, shard.URL)
	}
	return urls
}

// UseShardOf makes requests for the virtual workspace of a workspace type, by the URL in its status, go to the shard of a workspace: in an
// installation, there is a URL for each shard.
func (s *Server) UseShardOf(ws *tenancyv1alpha1.Workspace, url string) {
	if s.installed == nil {
		return
	}
	for _, shard := range s.installed.Shards {
		if shard.Name == ws.Annotations[tenancyv1alpha1.ShardAnnotation] {
			s.placed.Store(url[strings.LastIndexByte(url, '/')+1:], shard.URL)
		}
	}
}

// baseOf returns the URL of the server of a path. In an installation, each shard serves the virtual workspaces of its logical clusters.
func (s *Server) baseOf(path string) string {
	if view, ok := strings.CutPrefix(path, "/services/"); ok && s.installed != nil {
		_, below, _ := strings.Cut(view, "/")
		cluster, _, _ := strings.Cut(below, "/")
		if url, ok := s.placed.Load(cluster); ok {
			return url.(string)
		}
	}
	return s.URL
}
