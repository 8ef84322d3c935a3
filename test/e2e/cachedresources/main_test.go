// Package cachedresources proves that providers can show objects of their own to all who bind an export, and to nobody else.
package cachedresources

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

var server *kcptest.Server

func TestMain(m *testing.M) {
	kcptest.Main(m, &server)
}

var (
	bindings = schema.GroupVersionResource{Group: "apis.kcp.io", Version: "v1alpha2", Resource: "apibindings"}
	exports  = schema.GroupVersionResource{Group: "apis.kcp.io", Version: "v1alpha2", Resource: "apiexports"}
	cached   = schema.GroupVersionResource{Group: "cache.kcp.io", Version: "v1alpha1", Resource: "clustercachedresources"}
	slices   = schema.GroupVersionResource{Group: "cache.kcp.io", Version: "v1alpha1", Resource: "clustercachedresourceendpointslices"}
	regions  = schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "regions"}
)

// definition of regions, as their provider has them: with a field that others are not shown.
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

// shownSchema is what others are shown of regions.
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

func masters(t *testing.T, c *kcptest.Cluster, resource schema.GroupVersionResource) dynamic.ResourceInterface {
	t.Helper()
	return c.Dynamic(t, kcptest.Masters).Resource(resource)
}

// status reads a field of the status of an object, empty while it is not there.
func status(ctx context.Context, client dynamic.ResourceInterface, name string, field ...string) (string, error) {
	obj, err := client.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	value, _, err := unstructured.NestedFieldNoCopy(obj.Object, append([]string{"status"}, field...)...)
	if value == nil {
		value = ""
	}
	return fmt.Sprint(value), err
}

// eventually waits until a field of the status of an object has a value, and returns it; any value if want is empty.
func eventually(t *testing.T, client dynamic.ResourceInterface, name, want string, field ...string) string {
	t.Helper()
	var got string
	kcptest.Eventually(t, fmt.Sprintf("status%v of %s is %q", field, name, want), func(ctx context.Context) (err error) {
		if got, err = status(ctx, client, name, field...); err == nil && (got == "" || (want != "" && got != want)) {
			err = fmt.Errorf("it is %q", got)
		}
		return err
	})
	return got
}

// condition waits until a condition of an object has a status and reason.
func condition(t *testing.T, client dynamic.ResourceInterface, name, kind, want, reason string) {
	t.Helper()
	kcptest.Eventually(t, fmt.Sprintf("%s of %s is %s %s", kind, name, want, reason), func(ctx context.Context) error {
		obj, err := client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		all, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
		for _, c := range all {
			c := c.(map[string]any)
			if got, _ := c["reason"].(string); c["type"] == kind && c["status"] == want && got == reason {
				return nil
			}
		}
		return fmt.Errorf("the conditions are %v", all)
	})
}

// provider is a logical cluster that shows regions: "north", and not "secret".
func provider(t *testing.T) *kcptest.Cluster {
	t.Helper()
	p := server.Cluster(t)
	p.Apply(t, definition)
	p.WaitForDefinition(t, "regions.example.org")
	for _, r := range []*unstructured.Unstructured{region("north", "Oslo", "yes"), region("secret", "Area", "no")} {
		if _, err := masters(t, p, regions).Create(kcptest.Context(t), r, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	p.Apply(t, cachedRegions)
	identity := eventually(t, masters(t, p, cached), "regions", "", "identityHash")
	p.Apply(t, shownSchema+"---"+sliceOfRegions+"---"+exportOfRegions(identity))
	eventually(t, masters(t, p, exports), "regions", "", "identityHash")
	return p
}

// binding to the export regions of a provider.
func binding(provider *kcptest.Cluster) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": map[string]any{"name": "regions"},
		"spec": map[string]any{"reference": map[string]any{"export": map[string]any{"path": provider.Name, "name": "regions"}}},
	}}
}

// consumer is a logical cluster that has bound the regions of a provider, and reads them.
func consumer(t *testing.T, provider *kcptest.Cluster) *kcptest.Cluster {
	t.Helper()
	c := server.Cluster(t)
	if _, err := masters(t, c, bindings).Create(kcptest.Context(t), binding(provider), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, masters(t, c, bindings), "regions", "Bound", "phase")
	kcptest.Eventually(t, "the regions are readable", func(ctx context.Context) error {
		_, err := masters(t, c, regions).List(ctx, metav1.ListOptions{})
		return err
	})
	return c
}

// view is the virtual workspace of the slice regions of a provider, on a logical cluster.
func view(t *testing.T, user kcptest.User, provider *kcptest.Cluster, cluster string) dynamic.Interface {
	t.Helper()
	config := server.Config(user)
	config.Host = server.URL + "/services/replication/" + provider.Name + "/regions/clusters/" + cluster
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func parse(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}
