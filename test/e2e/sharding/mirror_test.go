package sharding

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// publishing is an export of regions whose objects are those of the ClusterCachedResource regions, with an identity.
const publishing = `
apiVersion: apis.kcp.io/v1alpha1
kind: APIResourceSchema
metadata: {name: v1.regions.example.org}
spec:
  group: example.org
  names: {plural: regions, singular: region, kind: Region, listKind: RegionList}
  scope: Cluster
  versions:
  - {name: v1, served: true, storage: true, schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: cache.kcp.io/v1alpha1
kind: ClusterCachedResourceEndpointSlice
metadata: {name: regions}
spec: {clusterCachedResource: {name: regions}, export: {name: regions}}
---
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
`

// publish makes a cluster publish its regions with the label public=yes: north.
func publish(t *testing.T, provider *kcptest.Cluster) {
	t.Helper()
	provider.Apply(t, regionDefinition)
	provider.WaitForDefinition(t, "regions.example.org")
	for _, r := range []*unstructured.Unstructured{region("north", "yes"), region("secret", "no")} {
		if _, err := provider.Objects(t, regions).Create(kcptest.Context(t), r, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	provider.Apply(t, `
apiVersion: cache.kcp.io/v1alpha1
kind: ClusterCachedResource
metadata: {name: regions}
spec: {group: example.org, version: v1, resource: regions, labelSelector: {matchLabels: {public: "yes"}}}
`)
	identity := kcptest.WaitForStatus(t, provider.Objects(t, cachedResources), "regions", "", "identityHash")
	provider.Apply(t, fmt.Sprintf(publishing, identity))
	kcptest.WaitForStatus(t, provider.Objects(t, kcptest.APIExports), "regions", "", "identityHash")
}

// eventuallyHas waits until a client lists these regions, as objects of a cluster.
func eventuallyHas(t *testing.T, what string, client dynamic.ResourceInterface, cluster string, want ...string) {
	t.Helper()
	kcptest.Eventually(t, what, func(ctx context.Context) error {
		list, err := client.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var got []string
		for _, item := range list.Items {
			got = append(got, item.GetName())
			for key := range item.GetAnnotations() {
				if key != "kcp.io/cluster" {
					t.Errorf("%s: %s has the annotation %s", what, item.GetName(), key)
				}
			}
			if of := item.GetAnnotations()["kcp.io/cluster"]; of != cluster {
				t.Errorf("%s: %s is of cluster %q, want %q", what, item.GetName(), of, cluster)
			}
		}
		if !slices.Equal(got, want) {
			err = fmt.Errorf("got %q", got)
		}
		return err
	})
}

func TestPublishedObjectsAreReadOnOtherShards(t *testing.T) {
	for _, c := range []struct{ provider, consumer string }{{"shard-1", "shard-2"}, {"shard-1", "root"}, {"root", "shard-1"}} {
		t.Run(c.provider+" to "+c.consumer, func(t *testing.T) {
			t.Parallel()
			ctx := kcptest.Context(t)
			name, provider := workspaceOn(t, shard(t, c.provider))
			publish(t, provider)
			at := shard(t, c.consumer)
			_, consumer := workspaceOn(t, at)
			consumer.Bind(t, kcptest.At("", nil).Named("root:"+name), "regions")
			read := consumer.Objects(t, regions)
			eventuallyHas(t, "the consumer lists", read, consumer.Name, "north")
			if got, err := read.Get(ctx, "north", metav1.GetOptions{}); err != nil || got.GetKind() != "Region" || got.GetUID() == "" {
				t.Errorf("got %v, %v", got, err)
			}
			_, err := read.Get(ctx, "secret", metav1.GetOptions{})
			kcptest.WantReason(t, err, metav1.StatusReasonNotFound)
			_, err = read.Create(ctx, region("mine", "yes"), metav1.CreateOptions{})
			kcptest.WantReason(t, err, metav1.StatusReasonMethodNotAllowed)

			view := at.Server().DynamicAt(t, kcptest.Masters, "/services/replication/"+provider.Name+"/regions/clusters/"+consumer.Name)
			eventuallyHas(t, "the view of the slice lists", view.Resource(regions), consumer.Name, "north")
			_, other := workspaceOn(t, at)
			unbound := at.Server().DynamicAt(t, kcptest.Masters, "/services/replication/"+provider.Name+"/regions/clusters/"+other.Name)
			_, err = unbound.Resource(regions).List(ctx, metav1.ListOptions{})
			kcptest.WantReason(t, err, metav1.StatusReasonForbidden)

			list, err := read.List(ctx, metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			events, err := read.Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
			if err != nil {
				t.Fatal(err)
			}
			defer events.Stop()
			patch := func(body string) {
				t.Helper()
				if _, err := provider.Objects(t, regions).Patch(ctx, "secret", types.MergePatchType, []byte(body), metav1.PatchOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			for _, step := range []struct {
				patch string
				want  watch.EventType
			}{
				{`{"metadata":{"labels":{"public":"yes"}}}`, watch.Added}, {`{"spec":{"city":"Oslo"}}`, watch.Modified},
				{`{"metadata":{"labels":{"public":"no"}}}`, watch.Deleted},
			} {
				patch(step.patch)
				select {
				case e := <-events.ResultChan():
					if u, ok := e.Object.(*unstructured.Unstructured); !ok || e.Type != step.want || u.GetName() != "secret" {
						t.Errorf("after %s: got %s %v", step.patch, e.Type, e.Object)
					}
				case <-ctx.Done():
					t.Fatalf("no event after %s", step.patch)
				}
			}
			if text := consumer.Kubectl(t, "get", "regions", "--output=name"); strings.TrimSpace(text) != "region.example.org/north" {
				t.Errorf("kubectl lists %q", text)
			}
			if err := provider.Objects(t, cachedResources).Delete(ctx, "regions", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			kcptest.Eventually(t, "what is no longer published is not read", func(ctx context.Context) error {
				_, err := read.List(ctx, metav1.ListOptions{})
				if err == nil {
					return fmt.Errorf("it is read")
				}
				return nil
			})
		})
	}
}

func TestPublishedObjectsAreReadWithoutTheCacheServer(t *testing.T) {
	name, provider := workspaceOn(t, shard(t, "shard-1"))
	publish(t, provider)
	_, consumer := workspaceOn(t, shard(t, "shard-2"))
	consumer.Bind(t, kcptest.At("", nil).Named("root:"+name), "regions")
	read := consumer.Objects(t, regions)
	eventuallyHas(t, "before", read, consumer.Name, "north")
	start := stop(t, installation.Cache)
	eventuallyHas(t, "while the cache server is down", read, consumer.Name, "north")
	start()
	if _, err := provider.Objects(t, regions).Create(kcptest.Context(t), region("south", "yes"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventuallyHas(t, "after the cache server is back", read, consumer.Name, "north", "south")
}
