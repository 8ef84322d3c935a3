// Package quickstart defines what kubectl kcp quickstart creates: the objects of an API provider, and a tree of workspaces.
package quickstart

import (
	_ "embed"
	"fmt"
	"math/rand/v2"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/cli/internal/manifests"
)

// Scenarios.
const (
	Provider   = "api-provider"
	Workspaces = "workspaces"
)

// Label with LabelValue marks the workspaces of the quick start. Others are neither used nor deleted.
const (
	Label      = "app.kubernetes.io/managed-by"
	LabelValue = "kubectl-kcp-quickstart"
)

// Export is the name of the APIExport.
const Export = "cowboys"

// Object is an object to create, with its resource.
type Object struct {
	*unstructured.Unstructured
	Resource schema.GroupVersionResource
}

//go:embed provider.yaml
var provider string

//go:embed samples.yaml
var samples string

// ProviderObjects returns the objects of the provider's workspace in the order of creation.
func ProviderObjects() ([]Object, error) { return parse(provider) }

// Samples returns sample objects of the API.
func Samples() ([]Object, error) { return parse(samples) }

// Sample returns an object that every workspace can store.
func Sample() Object {
	return Object{Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
		Unstructured: &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "quickstart", "namespace": "default"},
			"data": map[string]any{"hello": "world"},
		}}}
}

func parse(text string) ([]Object, error) {
	parsed, err := manifests.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("parsing the manifests of the quick start: %w", err)
	}
	objects := make([]Object, len(parsed))
	for i, u := range parsed {
		gvk := u.GroupVersionKind()
		objects[i] = Object{u, gvk.GroupVersion().WithResource(strings.ToLower(gvk.Kind) + "s")}
	}
	return objects, nil
}

// Tree returns the paths of count workspaces, with parents before their children and at most depth levels. The same seed returns the
// same tree.
func Tree(count, depth int, seed uint64) [][]string {
	random := rand.New(rand.NewPCG(seed, 0))
	parents, paths := [][]string{nil}, make([][]string, 0, count)
	for i := range count {
		parent := parents[random.IntN(len(parents))]
		path := append(parent[:len(parent):len(parent)], fmt.Sprintf("ws-%d", i+1))
		paths = append(paths, path)
		if len(path) < depth {
			parents = append(parents, path)
		}
	}
	return paths
}
