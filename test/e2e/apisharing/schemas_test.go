package apisharing

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// boundSchemas returns a client of a user for the schemas of a cluster's bindings.
func boundSchemas(t *testing.T, user kcptest.User, consumer, suffix string) dynamic.ResourceInterface {
	t.Helper()
	return server.DynamicAt(t, user, "/services/apiresourceschema/"+consumer+suffix).Resource(schemas)
}

func TestConsumerReadsSchemasOfItsBindings(t *testing.T) {
	t.Parallel()
	p, consumer := provider(t), server.Cluster(t)
	ctx := kcptest.Context(t)
	p.Apply(t, strings.ReplaceAll(widgetSchema("unused", 1), "widgets", "others"))
	consumer.Apply(t, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: bindings}
rules: [{apiGroups: [apis.kcp.io], resources: [apibindings], verbs: [get]}]
`)
	consumer.Kubectl(t, "create", "clusterrolebinding", "bindings", "--clusterrole=bindings", "--user="+kcptest.Alice.Name)
	consumer.Kubectl(t, "create", "clusterrolebinding", "access", "--clusterrole="+kcptest.EntryRole, "--user="+kcptest.Alice.Name)
	for _, suffix := range []string{"", "/clusters/" + consumer.Name, "/clusters/*"} {
		kcptest.Eventually(t, "Alice has permission, and the list is empty", func(ctx context.Context) error {
			list, err := boundSchemas(t, kcptest.Alice, consumer.Name, suffix).List(ctx, metav1.ListOptions{})
			if err == nil && len(list.Items) > 0 {
				t.Fatalf("got %v", list.Items)
			}
			return err
		})
	}
	client := boundSchemas(t, kcptest.Alice, consumer.Name, "")
	watching, err := client.Watch(ctx, metav1.ListOptions{
		SendInitialEvents: ptr.To(true), AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
	if err != nil {
		t.Fatal(err)
	}
	defer watching.Stop()
	if e := <-watching.ResultChan(); e.Type != watch.Bookmark {
		t.Errorf("the watch starts with %v", e)
	}
	bind(t, consumer, p)
	const name = "v1.widgets.example.org"
	next := func() string {
		for e := range watching.ResultChan() {
			if e.Type != watch.Bookmark {
				return fmt.Sprintf("%s %s", e.Type, e.Object.(*unstructured.Unstructured).GetName())
			}
		}
		return "the end"
	}
	if got := next(); got != "ADDED "+name {
		t.Errorf("the watch got %s", got)
	}
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].GetName() != name {
		t.Fatalf("got list %v, %v", list, err)
	}
	before := list.GetResourceVersion()
	shown, err := client.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	original, err := p.Objects(t, schemas).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if shown.GetUID() != original.GetUID() || fmt.Sprint(shown.Object["spec"]) != fmt.Sprint(original.Object["spec"]) {
		t.Errorf("got schema %v, want %v", shown.Object, original.Object)
	}
	through := "--server=" + server.URL + "/services/apiresourceschema/" + consumer.Name
	if out := consumer.Command(t, "kubectl", kcptest.Alice).Run(t, through, "api-resources", "--no-headers", "-o", "wide"); len(strings.Split(strings.TrimSpace(out), "\n")) != 1 || !strings.Contains(out, "get,list,watch") || strings.Contains(out, "create") {
		t.Errorf("unexpected API resources of the view:\n%s", out)
	}
	// When the provider deletes the schema, consumers that have bound it can still read it.
	if err := consumer.Objects(t, kcptest.APIBindings).Delete(ctx, "widgets", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := next(); got != "DELETED "+name {
		t.Errorf("the watch got %s", got)
	}
	again, err := client.Watch(ctx, metav1.ListOptions{ResourceVersion: before})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Stop()
	if e := <-again.ResultChan(); e.Type != watch.Deleted {
		t.Errorf("a watch from the resource version of the list got %v", e)
	}
	_, err = client.Get(ctx, name, metav1.GetOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonNotFound)
}

func TestReadingSchemasRequiresPermissionToReadBindings(t *testing.T) {
	t.Parallel()
	p, consumer, other := provider(t), server.Cluster(t), server.Cluster(t)
	ctx := kcptest.Context(t)
	bind(t, consumer, p)
	bind(t, other, p)
	consumer.Grant(t, kcptest.Alice, "view")
	list := func(user kcptest.User, cluster, suffix string) error {
		_, err := boundSchemas(t, user, cluster, suffix).List(ctx, metav1.ListOptions{})
		return err
	}
	kcptest.WantReason(t, list(kcptest.Alice, consumer.Name, ""), metav1.StatusReasonForbidden) // without permission to read bindings
	consumer.Kubectl(t, "create", "clusterrolebinding", "all", "--clusterrole=cluster-admin", "--user="+kcptest.Alice.Name)
	kcptest.Eventually(t, "Alice has permission", func(context.Context) error { return list(kcptest.Alice, consumer.Name, "") })
	kcptest.WantReason(t, list(kcptest.Alice, other.Name, ""), metav1.StatusReasonForbidden)
	kcptest.WantReason(t, list(kcptest.Alice, p.Name, ""), metav1.StatusReasonForbidden)
	kcptest.WantReason(t, list(kcptest.Alice, "absent", ""), metav1.StatusReasonForbidden)
	kcptest.WantReason(t, list(kcptest.Alice, "system:bound-crds", ""), metav1.StatusReasonBadRequest)
	kcptest.WantReason(t, list(kcptest.Alice, consumer.Name, "/clusters/"+other.Name), metav1.StatusReasonBadRequest)
	kcptest.WantReason(t, list(kcptest.Stranger, consumer.Name, ""), metav1.StatusReasonForbidden)
	kcptest.WantReason(t, list(kcptest.Anonymous, consumer.Name, ""), metav1.StatusReasonForbidden)
	const name = "v1.widgets.example.org"
	client := boundSchemas(t, kcptest.Alice, consumer.Name, "")
	shown, err := client.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.Create(ctx, shown, metav1.CreateOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonMethodNotAllowed)
	_, err = client.Update(ctx, shown, metav1.UpdateOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonMethodNotAllowed)
	_, err = client.Apply(ctx, "v2.widgets.example.org", shown, metav1.ApplyOptions{FieldManager: "x", Force: true})
	kcptest.WantReason(t, err, metav1.StatusReasonMethodNotAllowed)
	kcptest.WantReason(t, client.Delete(ctx, name, metav1.DeleteOptions{}), metav1.StatusReasonMethodNotAllowed)
	kcptest.WantReason(t, client.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}), metav1.StatusReasonMethodNotAllowed)
	for _, path := range []string{"/apis/apis.kcp.io/v1alpha2/apibindings", "/api/v1/secrets", "/apis/apis.kcp.io/v1alpha1/logicalclusters"} {
		code, body := consumer.Raw(t, kcptest.Masters, http.MethodGet, "/services/apiresourceschema/"+consumer.Name+path, nil, "")
		if code != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
}
