package sharding

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/test/e2e/kcptest"
	"github.com/kcplane/kcp/test/sharded"
)

var (
	cachedResources = schema.GroupVersionResource{Group: "cache.kcp.io", Version: "v1alpha1", Resource: "clustercachedresources"}
	regions         = schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "regions"}
)

const regionDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: regions.example.org}
spec:
  group: example.org
  names: {plural: regions, singular: region, kind: Region, listKind: RegionList}
  scope: Cluster
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

func region(name, public string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.org/v1", "kind": "Region", "metadata": map[string]any{"name": name, "labels": map[string]any{"public": public}},
	}}
}

func TestPublishedObjectsAreOfferedUnderTheirIdentity(t *testing.T) {
	ctx := kcptest.Context(t)
	reader := peer(t, sharded.KindShard, installation.Shards[1].Name)
	p := installation.Root().Server().Cluster(t)
	p.Apply(t, regionDefinition)
	p.WaitForDefinition(t, "regions.example.org")
	for _, r := range []*unstructured.Unstructured{region("north", "yes"), region("secret", "no")} {
		if _, err := p.Objects(t, regions).Create(ctx, r, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	p.Apply(t, `
apiVersion: cache.kcp.io/v1alpha1
kind: ClusterCachedResource
metadata: {name: regions}
spec: {group: example.org, version: v1, resource: regions, labelSelector: {matchLabels: {public: "yes"}}}
`)
	identity := kcptest.WaitForStatus(t, p.Objects(t, cachedResources), "regions", "", "identityHash")
	resource := "example.org/v1/regions:" + identity
	reader.eventuallyOffers(true, sharded.Root, resource, p.Name, "north")
	kcptest.WaitForStatus(t, p.Objects(t, cachedResources), "regions", "1", "resourceCounts", "cache")
	if all, err := reader.inFeed(sharded.Root, resource); err != nil || len(all) != 1 {
		t.Errorf("got %v (%v), want the public region only", all, err)
	}
	if err := p.Objects(t, cachedResources).Delete(ctx, "regions", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	reader.eventuallyOffers(false, sharded.Root, resource, p.Name, "north")
}

func TestRolesOfProvidersAreOffered(t *testing.T) {
	reader := peer(t, sharded.KindShard, installation.Shards[1].Name)
	p := installation.Root().Server().Cluster(t)
	const rbac = "rbac.authorization.k8s.io/v1/"
	p.Apply(t, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: consumers}
rules: [{apiGroups: [example.org], resources: [regions], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: private}
rules: [{apiGroups: [example.org], resources: [regions], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: consumers}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: consumers}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "apis.kcp.io:binding:system:authenticated"}]
`)
	reader.eventuallyOffers(true, sharded.Root, rbac+"clusterrolebindings", p.Name, "consumers")
	reader.eventuallyOffers(true, sharded.Root, rbac+"clusterroles", p.Name, "consumers")
	if all, err := reader.inFeed(sharded.Root, rbac+"clusterroles"); err != nil || all[p.Name+"/private"].Name != "" {
		t.Errorf("a role that no other shard needs is offered (%v)", err)
	}
	p.Kubectl(t, "delete", "clusterrolebinding", "consumers")
	reader.eventuallyOffers(false, sharded.Root, rbac+"clusterrolebindings", p.Name, "consumers")
	reader.eventuallyOffers(false, sharded.Root, rbac+"clusterroles", p.Name, "consumers")
}
