package customresources

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

func widget(name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": widgets.GroupVersion().String(), "kind": "Widget", "metadata": map[string]any{"name": name}, "spec": spec,
	}}
}

func TestDefinedResourceIsServedImmediately(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	cluster := server.Cluster(t)
	began := time.Now()
	cluster.Define(t, widgetDefinition(sized()))
	t.Logf("the definition was established after %s", time.Since(began))
	client := cluster.Dynamic(t, kcptest.Masters).Resource(widgets).Namespace("default")
	created, err := client.Create(ctx, widget("one", map[string]any{"size": int64(3)}), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if color, _, _ := unstructured.NestedString(created.Object, "spec", "color"); color != "red" {
		t.Errorf("the default of the schema was not applied: %v", created.Object)
	}
	_, err = client.Create(ctx, widget("bad", map[string]any{"size": int64(0)}), metav1.CreateOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonInvalid)

	created.Object["spec"] = map[string]any{"size": int64(4), "color": "blue"}
	updated, err := client.Update(ctx, created, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if updated.GetGeneration() != 2 {
		t.Errorf("got generation %d after one change of the spec", updated.GetGeneration())
	}
	_, err = client.Update(ctx, created, metav1.UpdateOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonConflict)
	if _, err := client.Patch(ctx, "one", types.MergePatchType, []byte(`{"status":{"replicas":2}}`), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	if err := client.Delete(ctx, "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err = client.Get(ctx, "one", metav1.GetOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonNotFound)
}

func TestFeaturesOfCustomResourcesWorkWithKubectl(t *testing.T) {
	t.Parallel()
	cluster := server.Cluster(t)
	cluster.Define(t, widgetDefinition(sized()))
	cluster.Apply(t, `
apiVersion: demo.example.com/v1
kind: Widget
metadata: {name: one}
spec: {size: 7, replicas: 1}
`)
	if out := cluster.Kubectl(t, "get", "wg"); !strings.Contains(out, "SIZE") || !strings.Contains(out, "7") {
		t.Errorf("the printer column is not in the table:\n%s", out)
	}
	cluster.Kubectl(t, "scale", "widgets/one", "--replicas=5")
	if out := cluster.Kubectl(t, "get", "wg", "one", "--output=jsonpath={.spec.replicas}"); out != "5" {
		t.Errorf("after scaling to 5: got %s replicas", out)
	}
	if out := cluster.Kubectl(t, "explain", "widgets.spec.size"); !strings.Contains(out, "How large the widget is.") {
		t.Errorf("the field is missing in the output of kubectl explain:\n%s", out)
	}
	if out := cluster.Kubectl(t, "api-resources", "--api-group=demo.example.com"); !strings.Contains(out, "widgets") {
		t.Errorf("discovery does not list the resource:\n%s", out)
	}
}

func TestServerSideApplyTracksFieldOwnersOfCustomResources(t *testing.T) {
	t.Parallel()
	cluster := server.Cluster(t)
	cluster.Define(t, widgetDefinition(sized()))
	manifest := func(size int) string {
		return fmt.Sprintf("apiVersion: demo.example.com/v1\nkind: Widget\nmetadata: {name: one}\nspec: {size: %d}\n", size)
	}
	cluster.Apply(t, manifest(1), "--server-side", "--field-manager=first")
	refusal := cluster.Command(t, "kubectl", kcptest.Masters).Input(manifest(2)).
		Fail(t, "apply", "-f", "-", "--server-side", "--field-manager=second")
	if !strings.Contains(refusal, `conflict with "first"`) {
		t.Errorf("the conflict does not name the owner of the field:\n%s", refusal)
	}
	cluster.Apply(t, manifest(2), "--server-side", "--field-manager=second", "--force-conflicts")
	if out := cluster.Kubectl(t, "get", "widget", "one", "--output=jsonpath={.spec.size}"); out != "2" {
		t.Errorf("got %s after a forced apply", out)
	}
}

func TestWatchOfCustomResourceDeliversEveryChange(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	cluster := server.Cluster(t)
	cluster.Define(t, widgetDefinition(sized()))
	client := cluster.Dynamic(t, kcptest.Masters).Resource(widgets).Namespace("default")
	watcher, err := client.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	if _, err := client.Create(ctx, widget("one", map[string]any{"size": int64(1)}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Patch(ctx, "one", types.MergePatchType, []byte(`{"spec":{"size":2}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.Delete(ctx, "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted} {
		select {
		case event := <-watcher.ResultChan():
			if event.Type != want {
				t.Fatalf("got an event %s, want %s", event.Type, want)
			}
		case <-ctx.Done():
			t.Fatalf("timed out waiting for event %s", want)
		}
	}
}

func TestClustersCanDefineSameResourceDifferently(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	numbers, words := server.Cluster(t), server.Cluster(t)
	numbers.Define(t, widgetDefinition(sized()))
	words.Define(t, widgetDefinition(map[string]apiextensionsv1.JSONSchemaProps{
		"size": {Type: "string", Enum: []apiextensionsv1.JSON{{Raw: []byte(`"small"`)}, {Raw: []byte(`"large"`)}}, Description: "A word for it."},
	}))
	for _, test := range []struct {
		in      *kcptest.Cluster
		size    any
		allowed bool
	}{{numbers, int64(5), true}, {numbers, "small", false}, {words, int64(5), false}, {words, "small", true}} {
		name := strings.ToLower(fmt.Sprintf("w-%T-%v", test.size, test.size))
		_, err := test.in.Dynamic(t, kcptest.Masters).Resource(widgets).Namespace("default").
			Create(ctx, widget(name, map[string]any{"size": test.size}), metav1.CreateOptions{})
		if (err == nil) != test.allowed {
			t.Errorf("size %v: %v", test.size, err)
		}
	}
	if out := numbers.Kubectl(t, "explain", "widgets.spec"); !strings.Contains(out, "How large") || strings.Contains(out, "A word") {
		t.Errorf("kubectl explain in the first cluster:\n%s", out)
	}
	if out := words.Kubectl(t, "explain", "widgets.spec"); !strings.Contains(out, "A word") || strings.Contains(out, "How large") {
		t.Errorf("kubectl explain in the other cluster:\n%s", out)
	}
	bare := server.Cluster(t)
	_, err := bare.Dynamic(t, kcptest.Masters).Resource(widgets).List(ctx, metav1.ListOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonNotFound)
}

func TestDeletingDefinitionDeletesObjectsOnlyInItsCluster(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	ours, theirs := server.Cluster(t), server.Cluster(t)
	for _, c := range []*kcptest.Cluster{ours, theirs} {
		c.Define(t, widgetDefinition(sized()))
		if _, err := c.Dynamic(t, kcptest.Masters).Resource(widgets).Namespace("default").
			Create(ctx, widget("one", map[string]any{"size": int64(1)}), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	ours.Kubectl(t, "delete", "crd", "widgets.demo.example.com")
	kcptest.Eventually(t, "the resource is no longer served", func(ctx context.Context) error {
		_, err := ours.Dynamic(t, kcptest.Masters).Resource(widgets).List(ctx, metav1.ListOptions{})
		return kcptest.Gone(err)
	})
	if _, err := theirs.Dynamic(t, kcptest.Masters).Resource(widgets).Namespace("default").Get(ctx, "one", metav1.GetOptions{}); err != nil {
		t.Errorf("an object of another cluster is deleted: %v", err)
	}
	ours.Define(t, widgetDefinition(sized()))
	left, err := ours.Dynamic(t, kcptest.Masters).Resource(widgets).List(ctx, metav1.ListOptions{})
	if err != nil || len(left.Items) > 0 {
		t.Errorf("objects of the deleted definition exist after it was created again: %v, %v", left, err)
	}
}

func TestChangedSchemaAppliesToNextRequest(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	cluster := server.Cluster(t)
	cluster.Define(t, widgetDefinition(sized()))
	client := cluster.Dynamic(t, kcptest.Masters).Resource(widgets).Namespace("default")
	cluster.Kubectl(t, "patch", "crd", "widgets.demo.example.com", "--type=json",
		`--patch=[{"op":"replace","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size/minimum","value":10}]`)
	kcptest.Eventually(t, "the new minimum is enforced", func(ctx context.Context) error {
		_, err := client.Create(ctx, widget("w"+kcptest.Suffix(), map[string]any{"size": int64(9)}), metav1.CreateOptions{})
		if err == nil {
			return fmt.Errorf("a size of 9 was accepted")
		}
		return nil
	})
	if _, err := client.Create(ctx, widget("ten", map[string]any{"size": int64(10)}), metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
}

func TestDefinitionsInCoreAndUndottedGroupsAreServed(t *testing.T) {
	t.Parallel()
	cluster := server.Cluster(t)
	for _, group := range []string{"", "apps"} {
		definition := widgetDefinition(sized())
		definition.Spec.Group = group
		definition.Name = "widgets." + group
		definition.Annotations = map[string]string{"api-approved.kubernetes.io": "unapproved, for a test"}
		if group == "" {
			definition.Name = "widgets.core"
		}
		cluster.Define(t, definition)
		gvr := widgets
		gvr.Group = group
		object := widget("one", map[string]any{"size": int64(1)})
		object.SetAPIVersion(gvr.GroupVersion().String())
		if _, err := cluster.Dynamic(t, kcptest.Masters).Resource(gvr).Namespace("default").Create(kcptest.Context(t), object, metav1.CreateOptions{}); err != nil {
			t.Errorf("group %q: %v", group, err)
		}
	}
}

func TestWildcardListsCustomResourcesAsMetadata(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	name := "wild" + kcptest.Suffix()
	for range 2 {
		c := server.Cluster(t)
		c.Define(t, widgetDefinition(sized()))
		if _, err := c.Dynamic(t, kcptest.Masters).Resource(widgets).Namespace("default").
			Create(ctx, widget(name, map[string]any{"size": int64(1)}), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	found, err := server.Named("*").Metadata(t, kcptest.Masters).Resource(widgets).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	clusters := map[string]bool{}
	for _, object := range found.Items {
		if object.Name == name {
			clusters[object.Annotations["kcp.io/cluster"]] = true
		}
	}
	if len(clusters) != 2 {
		t.Errorf("objects were found in the clusters %v, want 2 of them", clusters)
	}
}

func TestOneOfSeveralConcurrentDefinitionsGetsName(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	cluster, neighbour := server.Cluster(t), server.Cluster(t)
	definitions := cluster.Definitions(t, kcptest.Masters).ApiextensionsV1().CustomResourceDefinitions()
	const rivals = 5
	names := make([]string, rivals)
	var creating sync.WaitGroup
	for n := range names {
		crd := widgetDefinition(sized())
		crd.Spec.Names.Plural = fmt.Sprintf("widgets%d", n)
		names[n] = crd.Spec.Names.Plural + "." + widgets.Group
		crd.Name = names[n]
		creating.Go(func() {
			if _, err := definitions.Create(ctx, crd, metav1.CreateOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	creating.Wait()
	neighbour.Define(t, widgetDefinition(sized()))
	accepted := func(ctx context.Context) (one string, err error) {
		for _, name := range names {
			crd, err := definitions.Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				continue
			}
			if err != nil {
				return "", err
			}
			condition := apiextensionshelpers.FindCRDCondition(crd, apiextensionsv1.NamesAccepted)
			switch {
			case condition == nil:
				return "", fmt.Errorf("%s has no result yet", name)
			case condition.Status == apiextensionsv1.ConditionFalse && strings.Contains(condition.Message, "already in use"):
			case one != "":
				t.Fatalf("both %s and %s have the kind", one, name)
			default:
				one = name
			}
		}
		if one == "" {
			return "", errors.New("no definition has the kind")
		}
		return one, nil
	}
	for range rivals {
		var one string
		kcptest.Eventually(t, "one of the definitions has the kind", func(ctx context.Context) (err error) {
			one, err = accepted(ctx)
			return err
		})
		if err := definitions.Delete(ctx, one, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		kcptest.Eventually(t, "the definition is deleted", func(ctx context.Context) error {
			_, err := definitions.Get(ctx, one, metav1.GetOptions{})
			return kcptest.Gone(err)
		})
	}
}

func TestApplyRemovesFieldsThatAreNoLongerInManifest(t *testing.T) {
	t.Parallel()
	c := server.Cluster(t)
	definition := widgetDefinition(nil)
	definition.TypeMeta = metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"}
	definition.Labels = map[string]string{"kept": "yes", "dropped": "soon"}
	apply := func() *apiextensionsv1.CustomResourceDefinition {
		t.Helper()
		manifest, err := json.Marshal(definition)
		if err != nil {
			t.Fatal(err)
		}
		c.Apply(t, string(manifest))
		c.WaitForDefinition(t, definition.Name)
		applied, err := c.Definitions(t, kcptest.Masters).ApiextensionsV1().CustomResourceDefinitions().Get(kcptest.Context(t), definition.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return applied
	}
	if applied := apply(); applied.Annotations["kubectl.kubernetes.io/last-applied-configuration"] == "" {
		t.Errorf("got annotations %v", applied.Annotations)
	}
	delete(definition.Labels, "dropped")
	if applied := apply(); applied.Labels["dropped"] != "" || applied.Labels["kept"] != "yes" {
		t.Errorf("got labels %v", applied.Labels)
	}
}
