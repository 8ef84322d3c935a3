// Package cachedresources tests that all consumers of an export, and no others, can read the objects that its provider publishes.
package cachedresources

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

var server *kcptest.Server

func TestMain(m *testing.M) {
	kcptest.MainOnOneShard(m, &server)
}

var (
	cached  = schema.GroupVersionResource{Group: "cache.kcp.io", Version: "v1alpha1", Resource: "clustercachedresources"}
	slices  = schema.GroupVersionResource{Group: "cache.kcp.io", Version: "v1alpha1", Resource: "clustercachedresourceendpointslices"}
	regions = schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "regions"}
)

// definition is the definition of regions in the provider's workspace. It has a field that consumers do not see.
const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: regions.example.org}
spec:
  group: example.org
  names: {plural: regions, singular: region, kind: Region, listKind: RegionList, shortNames: [rg]}
  scope: Cluster
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              city: {type: string}
              cost: {type: integer}
`

// shownSchema is the schema of regions for consumers.
const shownSchema = `
apiVersion: apis.kcp.io/v1alpha1
kind: APIResourceSchema
metadata: {name: v1.regions.example.org}
spec:
  group: example.org
  names: {plural: regions, singular: region, kind: Region, listKind: RegionList, shortNames: [rg]}
  scope: Cluster
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: City, type: string, jsonPath: .spec.city}
    schema:
      type: object
      properties:
        spec:
          type: object
          properties:
            city: {type: string, description: Where the region is.}
            open: {type: boolean, default: true}
`

const cachedRegions = `
apiVersion: cache.kcp.io/v1alpha1
kind: ClusterCachedResource
metadata: {name: regions}
spec:
  group: example.org
  version: v1
  resource: regions
  labelSelector: {matchLabels: {public: "yes"}}
`

const sliceOfRegions = `
apiVersion: cache.kcp.io/v1alpha1
kind: ClusterCachedResourceEndpointSlice
metadata: {name: regions}
spec:
  clusterCachedResource: {name: regions}
  export: {name: regions}
`

func exportOfRegions(identity string) string {
	return fmt.Sprintf(`
apiVersion: apis.kcp.io/v1alpha2
kind: APIExport
metadata: {name: regions}
spec:
  resources:
  - group: example.org
    name: regions
    schema: v1.regions.example.org
    storage:
      virtual:
        reference: {apiGroup: cache.kcp.io, kind: ClusterCachedResourceEndpointSlice, name: regions}
        identityHash: %q
`, identity)
}

func region(name, city, public string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.org/v1", "kind": "Region", "metadata": map[string]any{"name": name, "labels": map[string]any{"public": public}},
		"spec": map[string]any{"city": city, "cost": int64(7)},
	}}
}

// provider creates a logical cluster that publishes the region "north", and does not publish "secret".
func provider(t *testing.T) *kcptest.Cluster {
	t.Helper()
	p := server.Cluster(t)
	p.Apply(t, definition)
	p.WaitForDefinition(t, "regions.example.org")
	for _, r := range []*unstructured.Unstructured{region("north", "Oslo", "yes"), region("secret", "Area", "no")} {
		if _, err := p.Objects(t, regions).Create(kcptest.Context(t), r, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	p.Apply(t, cachedRegions)
	identity := kcptest.WaitForStatus(t, p.Objects(t, cached), "regions", "", "identityHash")
	p.Apply(t, shownSchema+"---"+sliceOfRegions+"---"+exportOfRegions(identity))
	kcptest.WaitForStatus(t, p.Objects(t, kcptest.APIExports), "regions", "", "identityHash")
	return p
}

// binding returns a binding to the export regions of a provider.
func binding(provider *kcptest.Cluster) *unstructured.Unstructured {
	return kcptest.BindingTo(provider, "regions")
}

// consumer creates a logical cluster with a binding to the regions of a provider.
func consumer(t *testing.T, provider *kcptest.Cluster) *kcptest.Cluster {
	t.Helper()
	c := server.Cluster(t)
	c.Bind(t, provider, "regions")
	return c
}

// view returns a client for the virtual workspace of the slice regions of a provider, for a logical cluster.
func view(t *testing.T, user kcptest.User, provider *kcptest.Cluster, cluster string) dynamic.Interface {
	t.Helper()
	return server.DynamicAt(t, user, "/services/replication/"+provider.Name+"/regions/clusters/"+cluster)
}
