package apisharing

import (
	"context"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

func TestBoundAPIIsServedOnlyInItsConsumers(t *testing.T) {
	t.Parallel()
	p, consumer, stranger := provider(t), server.Cluster(t), server.Cluster(t)
	bind(t, consumer, p)
	if out := consumer.Kubectl(t, "explain", "widgets.spec.size"); !strings.Contains(out, "How large it is.") {
		t.Errorf("unexpected output of kubectl explain:\n%s", out)
	}
	consumer.Apply(t, "apiVersion: example.org/v1\nkind: Widget\nmetadata: {name: one}\nspec: {size: 3}\n", "--server-side")
	if out := consumer.Kubectl(t, "get", "wdg", "one", "-o", "jsonpath={.spec.size}"); out != "3" {
		t.Errorf("got size %q", out)
	}
	_, err := consumer.Objects(t, widgets).Namespace("default").Create(kcptest.Context(t), widget("large", 101), metav1.CreateOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonInvalid)
	for what, c := range map[string]*kcptest.Cluster{"another workspace": stranger, "the provider": p} {
		_, err := c.Objects(t, widgets).List(kcptest.Context(t), metav1.ListOptions{})
		if !apierrors.IsNotFound(err) {
			t.Errorf("%s without binding: got %v", what, err)
		}
	}
}

func TestProviderReachesAllConsumersThroughOneURL(t *testing.T) {
	t.Parallel()
	p := provider(t)
	ctx := kcptest.Context(t)
	consumers := []*kcptest.Cluster{server.Cluster(t), server.Cluster(t), server.Cluster(t)}
	for _, c := range consumers {
		bind(t, c, p)
		create(t, c, "of-"+c.Name)
	}
	var url string
	kcptest.Eventually(t, "the endpoint slice has the URL", func(ctx context.Context) error {
		slice, err := p.Objects(t, endpoints).Get(ctx, "widgets", metav1.GetOptions{})
		if err != nil {
			return err
		}
		listed, _, _ := unstructured.NestedSlice(slice.Object, "status", "endpoints")
		if len(listed) != 1 {
			return fmt.Errorf("got endpoints %v", listed)
		}
		url, _, _ = unstructured.NestedString(listed[0].(map[string]any), "url")
		return nil
	})
	if !strings.HasSuffix(url, "/services/apiexport/"+p.Name+"/widgets") {
		t.Errorf("got URL %s", url)
	}
	everywhere := view(t, kcptest.Masters, p, "*").Resource(widgets)
	list, err := everywhere.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range list.Items {
		if cluster := item.GetAnnotations()["kcp.io/cluster"]; item.GetName() != "of-"+cluster {
			t.Errorf("widget %s has the cluster %s", item.GetName(), cluster)
		}
	}
	if len(list.Items) != len(consumers) {
		t.Errorf("listed %d widgets of %d consumers", len(list.Items), len(consumers))
	}
	watching, err := everywhere.Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer watching.Stop()
	for _, c := range consumers {
		inside := view(t, kcptest.Masters, p, c.Name).Resource(widgets).Namespace("default")
		if _, err := inside.Patch(ctx, "of-"+c.Name, types.MergePatchType, []byte(`{"status":{"ready":true}}`), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
		event := <-watching.ResultChan()
		if changed, ok := event.Object.(*unstructured.Unstructured); !ok || changed.GetName() != "of-"+c.Name {
			t.Errorf("the watch delivered %v", event)
		}
		seen, err := c.Objects(t, widgets).Namespace("default").Get(ctx, "of-"+c.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if ready, _, _ := unstructured.NestedBool(seen.Object, "status", "ready"); !ready {
			t.Errorf("the consumer does not get the status: %v", seen.Object)
		}
	}
	if _, err := everywhere.Namespace("default").Create(ctx, widget("nowhere", 1), metav1.CreateOptions{}); err == nil {
		t.Error("a widget was created in all logical clusters")
	}
}

func TestViewOfExportRequiresPermission(t *testing.T) {
	t.Parallel()
	p, consumer, stranger := provider(t), server.Cluster(t), server.Cluster(t)
	ctx := kcptest.Context(t)
	bind(t, consumer, p)
	create(t, consumer, "one")
	list := func(cluster string) error {
		_, err := view(t, kcptest.Alice, p, cluster).Resource(widgets).Namespace("default").List(ctx, metav1.ListOptions{})
		return err
	}
	kcptest.WantReason(t, list("*"), metav1.StatusReasonForbidden)
	kcptest.WantReason(t, list(consumer.Name), metav1.StatusReasonForbidden)
	p.Apply(t, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: content}
rules:
- {apiGroups: [apis.kcp.io], resources: [apiexports/content], resourceNames: [widgets], verbs: [list, watch, create]}
`)
	p.Kubectl(t, "create", "clusterrolebinding", "content", "--clusterrole=content", "--user="+kcptest.Alice.Name)
	p.Kubectl(t, "create", "clusterrolebinding", "access", "--clusterrole="+kcptest.EntryRole, "--user="+kcptest.Alice.Name)
	kcptest.Eventually(t, "the user can list the content", func(context.Context) error { return list("*") })
	if err := list(consumer.Name); err != nil {
		t.Errorf("in one consumer: %v", err)
	}
	// Alice has no permissions in the consumer's cluster, only those that she has for the export.
	client := view(t, kcptest.Alice, p, consumer.Name).Resource(widgets).Namespace("default")
	if _, err := client.Create(ctx, widget("made", 1), metav1.CreateOptions{}); err != nil {
		t.Errorf("creating was allowed: %v", err)
	}
	kcptest.WantReason(t, client.Delete(ctx, "made", metav1.DeleteOptions{}), metav1.StatusReasonForbidden)
	kcptest.WantReason(t, list(stranger.Name), metav1.StatusReasonForbidden)
	_, err := view(t, kcptest.Alice, p, stranger.Name).Resource(widgets).Namespace("default").Create(ctx, widget("planted", 1), metav1.CreateOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	_, err = view(t, kcptest.Masters, p, stranger.Name).Resource(widgets).Namespace("default").Create(ctx, widget("planted", 1), metav1.CreateOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	if _, err := view(t, kcptest.Masters, p, consumer.Name).Resource(kcptest.APIBindings).Get(ctx, "widgets", metav1.GetOptions{}); err != nil {
		t.Errorf("the provider cannot read the binding: %v", err)
	}
	err = view(t, kcptest.Masters, p, consumer.Name).Resource(kcptest.APIBindings).Delete(ctx, "widgets", metav1.DeleteOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	for _, resource := range []string{"secrets", "configmaps"} {
		_, err := view(t, kcptest.Masters, p, consumer.Name).Resource(widgets.GroupVersion().WithResource(resource)).List(ctx, metav1.ListOptions{})
		if err == nil {
			t.Errorf("%s of a consumer were listed", resource)
		}
	}
}

func TestBindingRequiresPermissionOfProvider(t *testing.T) {
	t.Parallel()
	p, consumer := provider(t), server.Cluster(t)
	consumer.Grant(t, kcptest.Alice, "cluster-admin")
	try := func() error {
		_, err := consumer.Dynamic(t, kcptest.Alice).Resource(kcptest.APIBindings).Create(kcptest.Context(t), binding(p), metav1.CreateOptions{})
		return err
	}
	err := try()
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	want := fmt.Sprintf("unable to create APIBinding: no permission to bind to export %s:widgets", p.Name)
	if err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("got error %q, want %q", err, want)
	}
	missing := binding(server.Named("nowhere"))
	_, err = consumer.Dynamic(t, kcptest.Alice).Resource(kcptest.APIBindings).Create(kcptest.Context(t), missing, metav1.CreateOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	p.Apply(t, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: bind}
rules:
- {apiGroups: [apis.kcp.io], resources: [apiexports], resourceNames: [widgets], verbs: [bind]}
`)
	p.Kubectl(t, "create", "clusterrolebinding", "bind", "--clusterrole=bind", "--user="+kcptest.Alice.Name)
	kcptest.Eventually(t, "the user can bind the export", func(context.Context) error { return try() })
	waitForPhase(t, consumer, "Bound")
}

func TestUnbindingDeletesObjects(t *testing.T) {
	t.Parallel()
	p, consumer, other := provider(t), server.Cluster(t), server.Cluster(t)
	ctx := kcptest.Context(t)
	bind(t, consumer, p)
	bind(t, other, p)
	create(t, consumer, "plain")
	create(t, other, "kept")
	held := widget("held", 1)
	held.SetFinalizers([]string{"example.org/held"})
	client := consumer.Dynamic(t, kcptest.Masters)
	if _, err := client.Resource(widgets).Namespace("default").Create(ctx, held, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.Resource(kcptest.APIBindings).Delete(ctx, "widgets", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "the status of the binding says what blocks its deletion", func(ctx context.Context) error {
		b, err := client.Resource(kcptest.APIBindings).Get(ctx, "widgets", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if text := fmt.Sprint(b.Object["status"]); !strings.Contains(text, "1 widgets.example.org") {
			return fmt.Errorf("got status %s", text)
		}
		return nil
	})
	_, err := client.Resource(widgets).Namespace("default").Create(ctx, widget("late", 1), metav1.CreateOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	if _, err := client.Resource(widgets).Namespace("default").Patch(ctx, "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "the binding is deleted", func(ctx context.Context) error {
		_, err := client.Resource(kcptest.APIBindings).Get(ctx, "widgets", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("it still exists: %v", err)
		}
		return nil
	})
	kcptest.Eventually(t, "the resource is no longer served", func(ctx context.Context) error {
		_, err := client.Resource(widgets).List(ctx, metav1.ListOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is still served: %v", err)
		}
		return nil
	})
	bind(t, consumer, p)
	list, err := client.Resource(widgets).List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 0 {
		t.Errorf("after binding again: got %v, %v", list, err)
	}
	if _, err := other.Objects(t, widgets).Namespace("default").Get(ctx, "kept", metav1.GetOptions{}); err != nil {
		t.Errorf("the object of another consumer: %v", err)
	}
}

func TestProvidersOfSameResourceAreSeparate(t *testing.T) {
	t.Parallel()
	org := child(t, server.Named("root"), "org-"+kcptest.Suffix())
	one, two := exporting(t, child(t, org, "one")), exporting(t, child(t, org, "two"))
	of := map[*kcptest.Cluster]*kcptest.Cluster{child(t, org, "team"): one, child(t, two, "team"): two}
	ctx := kcptest.Context(t)
	for consumer, p := range of {
		bind(t, consumer, p)
		create(t, consumer, "of-"+p.Name)
	}
	for _, p := range []*kcptest.Cluster{one, two} {
		list, err := view(t, kcptest.Masters, p, "*").Resource(widgets).List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Items) != 1 || list.Items[0].GetName() != "of-"+p.Name {
			t.Errorf("%s got %v", p.Name, list.Items)
		}
		identified := widgets
		identified.Resource += ":" + identityOf(t, ctx, p)
		list, err = server.Named("*").Dynamic(t, kcptest.Masters).Resource(identified).List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 || list.Items[0].GetName() != "of-"+p.Name {
			t.Errorf("with the identity of %s: got %v, %v", p.Name, list, err)
		}
	}
	// A cluster cannot bind both.
	for consumer, p := range of {
		other := two
		if p == two {
			other = one
		}
		second := binding(other)
		second.SetName("second")
		if _, err := consumer.Objects(t, kcptest.APIBindings).Create(ctx, second, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		kcptest.Eventually(t, "the status of the second binding reports the conflict", func(ctx context.Context) error {
			b, err := consumer.Objects(t, kcptest.APIBindings).Get(ctx, "second", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if text := fmt.Sprint(b.Object["status"]); !strings.Contains(text, "bound by other APIBindings or CRDs: widgets.example.org") {
				return fmt.Errorf("got status %s", text)
			}
			return nil
		})
		if list, err := consumer.Objects(t, widgets).List(ctx, metav1.ListOptions{}); err != nil || len(list.Items) != 1 {
			t.Errorf("the resource that was bound first is no longer served: %v, %v", list, err)
		}
	}
}

func TestNewSchemaAppliesToAllConsumers(t *testing.T) {
	t.Parallel()
	p := provider(t)
	consumers := sets.New[*kcptest.Cluster](server.Cluster(t), server.Cluster(t))
	for c := range consumers {
		bind(t, c, p)
		create(t, c, "before")
	}
	p.Apply(t, widgetSchema("v2", 1000)+"---"+export("v2"))
	for c := range consumers {
		kcptest.Eventually(t, "the new schema applies", func(ctx context.Context) error {
			_, err := c.Objects(t, widgets).Namespace("default").Create(ctx, widget("large-"+kcptest.Suffix(), 500), metav1.CreateOptions{})
			return err
		})
		if _, err := c.Objects(t, widgets).Namespace("default").Get(kcptest.Context(t), "before", metav1.GetOptions{}); err != nil {
			t.Errorf("reading an existing object: %v", err)
		}
	}
}

func TestConsumersKeepObjectsWhenExportIsDeleted(t *testing.T) {
	t.Parallel()
	p, consumer := provider(t), server.Cluster(t)
	ctx := kcptest.Context(t)
	bind(t, consumer, p)
	create(t, consumer, "one")
	client := p.Dynamic(t, kcptest.Masters)
	if err := client.Resource(kcptest.APIExports).Delete(ctx, "widgets", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.Resource(schemas).Delete(ctx, "v1.widgets.example.org", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "the status of the binding says that the export does not exist", func(ctx context.Context) error {
		b, err := consumer.Objects(t, kcptest.APIBindings).Get(ctx, "widgets", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if text := fmt.Sprint(b.Object["status"]); !strings.Contains(text, "APIExportNotFound") {
			return fmt.Errorf("got status %s", text)
		}
		return nil
	})
	waitForPhase(t, consumer, "Bound")
	create(t, consumer, "two")
	list, err := consumer.Objects(t, widgets).List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 2 {
		t.Errorf("listed %v, %v", list, err)
	}
	_, err = view(t, kcptest.Masters, p, "*").Resource(widgets).List(ctx, metav1.ListOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
}

func TestAnnotationsOfExportAreCopiedToBindings(t *testing.T) {
	t.Parallel()
	p, consumer := provider(t), server.Cluster(t)
	p.Kubectl(t, "annotate", "apiexport", "widgets", "extra.apis.kcp.io/contact=us", "private=yes")
	bind(t, consumer, p)
	has := func(want string) {
		t.Helper()
		kcptest.Eventually(t, "the binding has the annotations", func(ctx context.Context) error {
			b, err := consumer.Objects(t, kcptest.APIBindings).Get(ctx, "widgets", metav1.GetOptions{})
			if err != nil {
				return err
			}
			a := b.GetAnnotations()
			if a["extra.apis.kcp.io/contact"] != want || a["private"] != "" || a["own"] != "kept" {
				return fmt.Errorf("got annotations %v", a)
			}
			return nil
		})
	}
	consumer.Kubectl(t, "annotate", "apibinding", "widgets", "own=kept")
	has("us")
	p.Kubectl(t, "annotate", "apiexport", "widgets", "extra.apis.kcp.io/contact=them", "--overwrite")
	has("them")
	consumer.Kubectl(t, "annotate", "apibinding", "widgets", "extra.apis.kcp.io/contact=forged", "--overwrite")
	has("them")
	p.Kubectl(t, "annotate", "apiexport", "widgets", "extra.apis.kcp.io/contact-")
	has("")
}
