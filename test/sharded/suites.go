package sharded

import (
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// TestUsers returns the users of kcptest: those whose tokens shards accept, and those whose tokens front proxies accept. Proxies pass the
// token of the administrator on, because shards accept no administrator from a proxy.
func TestUsers() (all, ofProxies []kcptest.User) {
	ofProxies = []kcptest.User{kcptest.Alice, kcptest.Bob, kcptest.Victor, kcptest.Stranger}
	return append([]kcptest.User{kcptest.Masters}, ofProxies...), ofProxies
}

// emptyType is the name of a workspace type in root whose workspaces are empty.
const emptyType = "empty"

// Describe writes a file for kcptest.InstalledVariable, and returns its path.
func (i *Installation) Describe() (string, error) {
	ca, err := os.ReadFile(i.PKI.Serving.File)
	if err != nil {
		return "", err
	}
	description := kcptest.Installed{Authorities: ca, Type: emptyType}
	for _, proxy := range i.Proxies {
		description.URLs = append(description.URLs, proxy.URL)
	}
	for _, shard := range i.Shards {
		description.Shards = append(description.Shards, shard.Name)
	}
	content, err := json.Marshal(description)
	if err != nil {
		return "", err
	}
	file := filepath.Join(i.Directory, "installed.json")
	return file, os.WriteFile(file, content, 0o600)
}
