package sharded

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

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

// Describe creates what the tests of kcptest.Main need, writes a file for kcptest.InstalledVariable, and returns its path.
func (i *Installation) Describe(ctx context.Context) (string, error) {
	if err := i.defineEmptyType(ctx); err != nil {
		return "", fmt.Errorf("creating the workspace type %q: %w", emptyType, err)
	}
	description, err := i.description()
	if err != nil {
		return "", err
	}
	content, err := json.Marshal(description)
	if err != nil {
		return "", err
	}
	file := filepath.Join(i.Directory, "installed.json")
	return file, os.WriteFile(file, content, 0o600)
}

func (i *Installation) description() (kcptest.Installed, error) {
	ca, err := os.ReadFile(i.PKI.Serving.File)
	description := kcptest.Installed{Authorities: ca, Type: emptyType}
	for _, proxy := range i.Proxies {
		description.URLs = append(description.URLs, proxy.URL)
	}
	for _, shard := range i.Shards {
		description.Shards = append(description.Shards, kcptest.InstalledShard{Name: shard.Name, URL: shard.URL})
	}
	return description, err
}

// defineEmptyType creates the workspace type emptyType, unless a former run has created it.
func (i *Installation) defineEmptyType(ctx context.Context) error {
	config := i.Root().Server().Named(Root).Config(kcptest.Masters)
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	_, err = client.Resource(kcptest.WorkspaceTypes).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType", "metadata": map[string]any{"name": emptyType},
		"spec": map[string]any{},
	}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
