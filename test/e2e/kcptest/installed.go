package kcptest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"k8s.io/client-go/rest"
)

// Installed describes an installation of several processes that another program runs. The suites that share it create their logical
// clusters on all its shards.
type Installed struct {
	// URLs are those of its front proxies.
	URLs []string `json:"urls"`
	// Authorities verify them, in PEM.
	Authorities []byte `json:"authorities"`
	// Shards are the names of its shards.
	Shards []string `json:"shards"`
	// Type is the name of a workspace type in root whose workspaces are empty.
	Type string `json:"type"`
}

// InstalledVariable is the environment variable with the path of a file that contains an Installed. With it, Main starts no server.
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
	s.installed = i
	return s, nil
}

// clusterOnShard creates an empty workspace on one of the shards of an installation.
func (s *Server) clusterOnShard(t testing.TB) *Cluster {
	t.Helper()
	root, name := s.Named("root"), "test"+Suffix()
	shard := s.installed.Shards[rand.IntN(len(s.installed.Shards))]
	root.CreateWorkspace(t, Masters, On(shard, Workspace(name, root.Name, s.installed.Type)))
	c := s.Named(root.GetWorkspace(t, name).Spec.Cluster)
	t.Logf("workspace root:%s is logical cluster %s on shard %s", name, c.Name, shard)
	return c
}
