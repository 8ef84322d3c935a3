// Package quickstart is what kubectl kcp quickstart makes: the objects of an API with its provider, and the shape of a tree of
// workspaces.
package quickstart

import (
	_ "embed"
	"fmt"
	"math/rand/v2"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// Scenarios.
const (
	Provider   = "api-provider"
	Workspaces = "workspaces"
)

// Label marks the workspaces that are made, with LabelValue. No other workspace is used or deleted.
const (
	Label      = "app.kubernetes.io/managed-by"
	LabelValue = "kubectl-kcp-quickstart"
)

// Export is the name of the APIExport.
const Export = "cowboys"

// Object is one to create, and where.
type Object struct {
	*unstructured.Unstructured
	Resource schema.GroupVersionResource
}

//go:embed provider.yaml
var provider string

//go:embed samples.yaml
var samples string

// ProviderObjects returns what the provider's workspace holds, in the order of creation.
func ProviderObjects() ([]Object, error) { return parse(provider) }

// Samples returns objects of the API.
func Samples() ([]Object, error) { return parse(samples) }

// Sample returns an object that every workspace can hold.
func Sample() Object {
	return Object{Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Unstructured: &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "quickstart", "namespace": "default"},
		"data": map[string]any{"hello": "world"},
	}}}
}

func parse(manifests string) ([]Object, error) {
	var objects []Object
	for _, manifest := range strings.Split(manifests, "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(manifest), &u.Object); err != nil {
			return nil, fmt.Errorf("manifest of the quick start: %w", err)
		}
		gvk := u.GroupVersionKind()
		objects = append(objects, Object{u, gvk.GroupVersion().WithResource(strings.ToLower(gvk.Kind) + "s")})
	}
	return objects, nil
}

// Tree returns the paths of count workspaces below one, each after its parent and none deeper than depth. A seed stands for one tree.
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
