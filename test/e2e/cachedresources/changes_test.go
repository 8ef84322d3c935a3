package cachedresources

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/dynamicinformer"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

func TestInformersOfConsumersReceiveEveryChange(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	p := provider(t)
	c := consumer(t, p)
	factory := dynamicinformer.NewDynamicSharedInformerFactory(c.Dynamic(t, kcptest.Masters), 0)
	store := factory.ForResource(regions).Informer().GetStore()
	factory.Start(ctx.Done())
	holds := func(want string) {
		t.Helper()
		kcptest.Eventually(t, "the informer has "+want, func(context.Context) error {
			held := &unstructured.UnstructuredList{}
			for _, obj := range store.List() {
				held.Items = append(held.Items, *obj.(*unstructured.Unstructured))
			}
			if got := names(t, held, c); got != want {
				return fmt.Errorf("got %q", got)
			}
			return nil
		})
	}
	holds("north")
	relabel := func(value string) {
		t.Helper()
		if _, err := p.Objects(t, cached).Patch(ctx, "regions", types.MergePatchType,
			[]byte(fmt.Sprintf(`{"spec":{"labelSelector":{"matchLabels":{"public":%q}}}}`, value)), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	relabel("no")
	holds("secret")
	relabel("yes")
	holds("north")
	// Consumers see the schema of the export.
	p.Apply(t, strings.Replace(strings.Replace(shownSchema, "v1.regions", "v2.regions", 1), "{type: string, description", "{type: string, default: Nowhere, description", 1))
	if _, err := p.Objects(t, kcptest.APIExports).Patch(ctx, "regions", types.JSONPatchType,
		[]byte(`[{"op":"replace","path":"/spec/resources/0/schema","value":"v2.regions.example.org"}]`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Objects(t, regions).Patch(ctx, "north", types.MergePatchType, []byte(`{"spec":{"city":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "the informer has the default of the new schema", func(ctx context.Context) error {
		obj, _, _ := store.GetByKey("north")
		city, _, _ := unstructured.NestedString(obj.(*unstructured.Unstructured).Object, "spec", "city")
		if city == "Nowhere" {
			return nil
		}
		// The last change may have arrived before the schema.
		touch := []byte(`{"metadata":{"annotations":{"touched":"` + kcptest.Suffix() + `"}}}`)
		if _, err := p.Objects(t, regions).Patch(ctx, "north", types.MergePatchType, touch, metav1.PatchOptions{}); err != nil {
			return err
		}
		return fmt.Errorf("got city %q", city)
	})
}

// unavailable waits until a consumer gets an error that says why the objects are not available.
func unavailable(t *testing.T, c *kcptest.Cluster, why string) {
	t.Helper()
	kcptest.Eventually(t, "the regions are unavailable: "+why, func(context.Context) error {
		code, body := c.Raw(t, kcptest.Masters, http.MethodGet, "/clusters/"+c.Name+"/apis/example.org/v1/regions", nil, "")
		if code != http.StatusServiceUnavailable || !strings.Contains(string(body), why) {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
}

func TestProviderCanWithdrawPublishedObjects(t *testing.T) {
	t.Parallel()
	for what, take := range map[string]struct{ resource, name, why string }{
		"the slice":      {"clustercachedresourceendpointslice", "regions", "ClusterCachedResourceEndpointSlice to which the export refers does not exist"},
		"the resource":   {"clustercachedresource", "regions", "ClusterCachedResource to which the export refers does not exist"},
		"the definition": {"crd", "regions.example.org", "the provider does not serve this resource"},
		"the export":     {"apiexport", "regions", "the provider deleted the export"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			p := provider(t)
			c := consumer(t, p)
			w, err := c.Objects(t, regions).Watch(kcptest.Context(t), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			p.Kubectl(t, "delete", take.resource, take.name)
			for range w.ResultChan() { // read until the watch ends
			}
			unavailable(t, c, take.why)
			if err := c.Objects(t, kcptest.APIBindings).Delete(kcptest.Context(t), "regions", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			kcptest.WaitUntilGone(t, c.Objects(t, kcptest.APIBindings), "regions")
		})
	}
}

func TestObjectsAreServedInCachedVersion(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	p := server.Cluster(t)
	two := strings.Replace(definition, "  - name: v1\n", `  - name: v1alpha1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
  - name: v1
`, 1)
	at := strings.LastIndex(two, "storage: true")
	p.Apply(t, two[:at]+"storage: false"+two[at+len("storage: true"):])
	p.WaitForDefinition(t, "regions.example.org")
	if _, err := p.Objects(t, regions).Create(ctx, region("north", "Oslo", "yes"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p.Apply(t, cachedRegions)
	identity := kcptest.WaitForStatus(t, p.Objects(t, cached), "regions", "", "identityHash")
	p.Apply(t, shownSchema+"---"+sliceOfRegions+"---"+exportOfRegions(identity))
	c := consumer(t, p)
	list, err := c.Objects(t, regions).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := names(t, list, c); got != "north" || list.Items[0].GetAPIVersion() != "example.org/v1" {
		t.Errorf("got regions %v", list.Items)
	}
}

func TestBoundResourceCanBePublished(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	origin, p := server.Cluster(t), server.Cluster(t)
	origin.Apply(t, shownSchema+`---
apiVersion: apis.kcp.io/v1alpha2
kind: APIExport
metadata: {name: regions}
spec:
  resources: [{group: example.org, name: regions, schema: v1.regions.example.org}]
`)
	kcptest.WaitForStatus(t, origin.Objects(t, kcptest.APIExports), "regions", "", "identityHash")
	if _, err := p.Objects(t, kcptest.APIBindings).Create(ctx, binding(origin), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.WaitForStatus(t, p.Objects(t, kcptest.APIBindings), "regions", "Bound", "phase")
	kcptest.Eventually(t, "regions can be created", func(ctx context.Context) error {
		_, err := p.Objects(t, regions).Create(ctx, region("north", "Oslo", "yes"), metav1.CreateOptions{})
		return err
	})
	p.Apply(t, cachedRegions)
	identity := kcptest.WaitForStatus(t, p.Objects(t, cached), "regions", "", "identityHash")
	kcptest.WaitForStatus(t, p.Objects(t, cached), "regions", "Ready", "phase")
	p.Apply(t, shownSchema+"---"+sliceOfRegions+"---"+exportOfRegions(identity))
	c := consumer(t, p)
	got, err := c.Objects(t, regions).Get(ctx, "north", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	shownIn(t, got, c)
	// A consumer cannot publish objects that another provider publishes.
	c.Apply(t, cachedRegions)
	kcptest.WaitForCondition(t, c.Objects(t, cached), "regions", "ResourceValid", "False", "ClusterCachedResourceInvalidReference")
	// Objects that are stored elsewhere with the same names are not mixed in.
	stored := server.Cluster(t)
	if _, err := stored.Objects(t, kcptest.APIBindings).Create(ctx, binding(origin), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "the other consumer got no regions", func(ctx context.Context) error {
		list, err := stored.Objects(t, regions).List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			t.Fatalf("got %v", list.Items)
		}
		return err
	})
}

func TestStoredObjectsOfConsumerAreNotHidden(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	p := provider(t)
	identity := kcptest.WaitForStatus(t, p.Objects(t, cached), "regions", "", "identityHash")
	storage := func(value string) {
		t.Helper()
		if _, err := p.Objects(t, kcptest.APIExports).Patch(ctx, "regions", types.JSONPatchType,
			[]byte(`[{"op":"replace","path":"/spec/resources/0/storage","value":`+value+`}]`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	storage(`{"crd":{}}`)
	c := consumer(t, p)
	if _, err := c.Objects(t, regions).Create(ctx, region("own", "Here", "yes"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	storage(fmt.Sprintf(`{"virtual":{"reference":{"apiGroup":"cache.kcp.io","kind":"ClusterCachedResourceEndpointSlice","name":"regions"},"identityHash":%q}}`, identity))
	kcptest.WaitForCondition(t, c.Objects(t, kcptest.APIBindings), "regions", "BindingUpToDate", "False", "NamingConflicts")
	list, err := c.Objects(t, regions).List(ctx, metav1.ListOptions{})
	if err != nil || names(t, list, c) != "own" {
		t.Errorf("got regions %v (%v)", list, err)
	}
	if err := c.Objects(t, kcptest.APIBindings).Delete(ctx, "regions", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.WaitUntilGone(t, c.Objects(t, kcptest.APIBindings), "regions")
	if _, err := c.Objects(t, kcptest.APIBindings).Create(ctx, binding(p), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "the objects of the provider are visible", func(ctx context.Context) error {
		_, err := c.Objects(t, regions).Get(ctx, "north", metav1.GetOptions{})
		return err
	})
}
