package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

func configMaps(t *testing.T, cluster *kcptest.Cluster) typedcorev1.ConfigMapInterface {
	t.Helper()
	return cluster.Kube(t, kcptest.Masters).CoreV1().ConfigMaps("default")
}

func configMap(name string, labels map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

func TestGeneratedNamesAreUnique(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	client := configMaps(t, server.Cluster(t))
	seen := map[string]bool{}
	for range 20 {
		made, err := client.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "some-"}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(made.Name, "some-") || seen[made.Name] {
			t.Errorf("the name %q was generated", made.Name)
		}
		seen[made.Name] = true
	}
}

func TestDryRunStoresNothing(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	client := configMaps(t, server.Cluster(t))
	dry := []string{metav1.DryRunAll}
	if _, err := client.Create(ctx, configMap("dry", nil), metav1.CreateOptions{DryRun: dry}); err != nil {
		t.Fatal(err)
	}
	_, err := client.Get(ctx, "dry", metav1.GetOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonNotFound)
	if _, err := client.Create(ctx, configMap("wet", nil), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Patch(ctx, "wet", types.MergePatchType, []byte(`{"data":{"a":"b"}}`), metav1.PatchOptions{DryRun: dry}); err != nil {
		t.Fatal(err)
	}
	if err := client.Delete(ctx, "wet", metav1.DeleteOptions{DryRun: dry}); err != nil {
		t.Fatal(err)
	}
	if found, err := client.Get(ctx, "wet", metav1.GetOptions{}); err != nil || len(found.Data) > 0 {
		t.Errorf("after dry runs of a change and a deletion: %v, %v", found, err)
	}
}

func TestPagesFormOneListAtOneRevision(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	ours, theirs := server.Cluster(t), server.Cluster(t)
	label := map[string]string{"paged": "yes"}
	for i := range 25 {
		for _, c := range []*kcptest.Cluster{ours, theirs} {
			if _, err := configMaps(t, c).Create(ctx, configMap(fmt.Sprintf("page-%02d", i), label), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	var names []string
	options := metav1.ListOptions{LabelSelector: "paged=yes", Limit: 10}
	var revision string
	for pages := 1; ; pages++ {
		page, err := configMaps(t, ours).List(ctx, options)
		if err != nil {
			t.Fatal(err)
		}
		if revision != "" && page.ResourceVersion != revision {
			t.Errorf("page %d has revision %s, the first page has %s", pages, page.ResourceVersion, revision)
		}
		revision = page.ResourceVersion
		for _, item := range page.Items {
			names = append(names, item.Name)
		}
		if options.Continue = page.Continue; options.Continue == "" {
			break
		}
		if pages == 1 { // objects that are created between two pages are not in later pages
			if _, err := configMaps(t, ours).Create(ctx, configMap("page-99", label), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(names) != 25 || names[0] != "page-00" || names[24] != "page-24" {
		t.Errorf("the pages contain %v", names)
	}
}

func TestContinueTokenOfAnotherClusterReturnsNoObjectsOfThatCluster(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	ours, theirs := server.Cluster(t), server.Cluster(t)
	for i := range 5 {
		for _, c := range []*kcptest.Cluster{ours, theirs} {
			made := configMap(fmt.Sprintf("item-%d", i), nil)
			made.Data = map[string]string{"of": c.Name}
			if _, err := configMaps(t, c).Create(ctx, made, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	page, err := configMaps(t, theirs).List(ctx, metav1.ListOptions{Limit: 2})
	if err != nil {
		t.Fatal(err)
	}
	next, err := configMaps(t, ours).List(ctx, metav1.ListOptions{Limit: 10, Continue: page.Continue})
	if err != nil {
		return // the server may also refuse it
	}
	for _, item := range next.Items {
		if of := item.Data["of"]; of != "" && of != ours.Name {
			t.Errorf("an object of %s was read in %s", of, ours.Name)
		}
	}
}

func TestDeleteCollectionDeletesSelectedObjects(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	ours, theirs := server.Cluster(t), server.Cluster(t)
	for _, c := range []*kcptest.Cluster{ours, theirs} {
		for name, labels := range map[string]map[string]string{"a": {"x": "y"}, "b": {"x": "y"}, "c": nil} {
			if _, err := configMaps(t, c).Create(ctx, configMap(name, labels), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := configMaps(t, ours).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "x=y"}); err != nil {
		t.Fatal(err)
	}
	_, err := configMaps(t, ours).Get(ctx, "a", metav1.GetOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonNotFound)
	if _, err := configMaps(t, ours).Get(ctx, "c", metav1.GetOptions{}); err != nil {
		t.Errorf("an object that was not selected is deleted: %v", err)
	}
	if _, err := configMaps(t, theirs).Get(ctx, "a", metav1.GetOptions{}); err != nil {
		t.Errorf("an object of another cluster is deleted: %v", err)
	}
}

func TestPreconditionsAreChecked(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	client := configMaps(t, server.Cluster(t))
	made, err := client.Create(ctx, configMap("one", nil), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wrong := types.UID("another")
	err = client.Delete(ctx, "one", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &wrong}})
	kcptest.WantReason(t, err, metav1.StatusReasonConflict)
	made.Data = map[string]string{"a": "1"}
	if _, err := client.Update(ctx, made, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err = client.Update(ctx, made, metav1.UpdateOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonConflict)
	_, err = client.Create(ctx, configMap("one", nil), metav1.CreateOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonAlreadyExists)
}

func TestServerSideApplyTracksFieldOwnersOfBuiltInTypes(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	client := configMaps(t, server.Cluster(t))
	apply := func(manager, key, value string, force bool) error {
		_, err := client.Apply(ctx, applycorev1.ConfigMap("one", "default").WithData(map[string]string{key: value}),
			metav1.ApplyOptions{FieldManager: manager, Force: force})
		return err
	}
	for _, err := range []error{apply("first", "a", "1", false), apply("second", "b", "2", false)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	kcptest.WantReason(t, apply("second", "a", "3", false), metav1.StatusReasonConflict)
	if err := apply("second", "a", "3", true); err != nil {
		t.Fatal(err)
	}
	found, err := client.Get(ctx, "one", metav1.GetOptions{})
	if err != nil || found.Data["a"] != "3" || found.Data["b"] != "" {
		t.Errorf("got %v, %v", found.Data, err)
	}
}

// next returns the next event of a watch.
func next(t *testing.T, ctx context.Context, watcher watch.Interface) watch.Event {
	t.Helper()
	select {
	case event, open := <-watcher.ResultChan():
		if !open {
			t.Fatal("the watch ended")
		}
		return event
	case <-ctx.Done():
		t.Fatal("timed out waiting for an event")
		return watch.Event{}
	}
}

func TestWatchCanStartWithExistingObjects(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	client := configMaps(t, server.Cluster(t))
	for _, name := range []string{"a", "b"} {
		if _, err := client.Create(ctx, configMap(name, map[string]string{"x": "y"}), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	yes := true
	watcher, err := client.Watch(ctx, metav1.ListOptions{
		LabelSelector: "x=y", SendInitialEvents: &yes, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	for _, name := range []string{"a", "b"} {
		if event := next(t, ctx, watcher); event.Type != watch.Added || event.Object.(*corev1.ConfigMap).Name != name {
			t.Fatalf("got %s %v, want ADDED %s", event.Type, event.Object, name)
		}
	}
	event := next(t, ctx, watcher)
	mark, isConfigMap := event.Object.(*corev1.ConfigMap)
	if event.Type != watch.Bookmark || !isConfigMap || mark.Annotations[metav1.InitialEventsAnnotationKey] != "true" {
		t.Fatalf("got %s %v, want the bookmark at the end of the initial events", event.Type, event.Object)
	}
	if _, err := client.Create(ctx, configMap("c", map[string]string{"x": "y"}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for event = next(t, ctx, watcher); event.Type == watch.Bookmark; event = next(t, ctx, watcher) {
	}
	if event.Type != watch.Added || event.Object.(*corev1.ConfigMap).Name != "c" {
		t.Errorf("got %s %v, want ADDED c", event.Type, event.Object)
	}
}

func TestWatchResumesAtRevision(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	client := configMaps(t, server.Cluster(t))
	before, err := client.Create(ctx, configMap("before", nil), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"one", "two"} {
		if _, err := client.Create(ctx, configMap(name, nil), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	watcher, err := client.Watch(ctx, metav1.ListOptions{ResourceVersion: before.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	for _, want := range []string{"one", "two"} {
		object := next(t, ctx, watcher).Object.(*corev1.ConfigMap)
		for object.Name == "kube-root-ca.crt" { // created by the server
			object = next(t, ctx, watcher).Object.(*corev1.ConfigMap)
		}
		if object.Name != want {
			t.Errorf("got %s, want %s", object.Name, want)
		}
	}
}

func TestListHonorsRequestedResourceVersion(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	client := configMaps(t, server.Cluster(t))
	for i := range 10 {
		made, err := client.Create(ctx, configMap(fmt.Sprintf("fresh-%d", i), nil), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for name, options := range map[string]metav1.ListOptions{
			"consistent":     {},
			"not older than": {ResourceVersion: made.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan},
			"exact":          {ResourceVersion: made.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact},
		} {
			found, err := client.List(ctx, options)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			var written int
			for _, item := range found.Items {
				if strings.HasPrefix(item.Name, "fresh-") {
					written++
				}
			}
			if written != i+1 {
				t.Errorf("a list with %s has %d objects after %d were created", name, written, i+1)
			}
		}
	}
}

func TestDiscoveryListsResourcesOfControlPlaneWithoutNodes(t *testing.T) {
	t.Parallel()
	cluster := server.Cluster(t)
	_, lists, err := cluster.Kube(t, kcptest.Masters).Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	served := map[string]bool{}
	for _, list := range lists {
		for _, resource := range list.APIResources {
			served[list.GroupVersion+" "+resource.Name] = true
		}
	}
	for _, want := range []string{
		"v1 namespaces", "v1 namespaces/status", "v1 namespaces/finalize", "v1 configmaps", "v1 secrets", "v1 events", "v1 resourcequotas",
		"v1 resourcequotas/status", "v1 serviceaccounts", "v1 serviceaccounts/token", "rbac.authorization.k8s.io/v1 roles",
		"rbac.authorization.k8s.io/v1 clusterrolebindings", "authentication.k8s.io/v1 tokenreviews", "authentication.k8s.io/v1 selfsubjectreviews",
		"authorization.k8s.io/v1 subjectaccessreviews", "authorization.k8s.io/v1 selfsubjectrulesreviews",
		"admissionregistration.k8s.io/v1 validatingadmissionpolicies/status", "admissionregistration.k8s.io/v1 mutatingadmissionpolicybindings",
		"apiextensions.k8s.io/v1 customresourcedefinitions", "certificates.k8s.io/v1 certificatesigningrequests/approval",
		"coordination.k8s.io/v1 leases", "events.k8s.io/v1 events", "core.kcp.io/v1alpha1 logicalclusters",
	} {
		if !served[want] {
			t.Errorf("%s is not served", want)
		}
	}
	for absent := range served {
		for _, part := range []string{" pods", " nodes", " services", " endpoints", "apps/", "batch/", "flowcontrol", "apiregistration", "v1 limitranges"} {
			if strings.Contains(absent, part) || strings.HasPrefix(absent, part) {
				t.Errorf("%s is served", absent)
			}
		}
	}
}

func TestEveryErrorIsAStatus(t *testing.T) {
	t.Parallel()
	cluster := server.Cluster(t)
	base := "/clusters/" + cluster.Name
	for _, test := range []struct {
		method, path, contentType, body string
		code                            int
	}{
		{"GET", "/clusters/UPPER/api", "", "", 400},
		{"GET", "/clusters/" + strings.Repeat("a", 10_000) + "/api", "", "", 400},
		{"GET", "/clusters//api", "", "", 400},
		{"GET", "/clusters/a%2fb/api", "", "", 400},
		{"GET", "/clusters/a:/api", "", "", 400},
		{"GET", "/clusters/.../api", "", "", 400},
		{"GET", "/clusters/a%00b/api", "", "", 400},
		{"GET", "/clusters/root:no:such:workspace/api", "", "", 404},
		{"GET", base + "/clusters/root/api", "", "", 404},
		{"GET", base + "/api/v1//namespaces", "", "", 400},
		{"GET", base + "/api/v1/namespaces/../../../root/api", "", "", 400},
		{"GET", base + "/api/v1/namespaces%2fdefault", "", "", 400},
		{"GET", base + "/apis/absent.example.com/v1", "", "", 404},
		{"GET", base + "/apis/absent.example.com/v1/things", "", "", 404},
		{"GET", base + "/metrics", "", "", 501},
		{"GET", "/api/v1/namespaces", "", "", 404},
		{"POST", "/clusters/*/api/v1/namespaces", "application/json", "{}", 405},
		{"POST", base + "/api/v1/namespaces", "application/json", "{", 400},
		{"POST", base + "/api/v1/namespaces", "application/json", strings.Repeat("[", 100_000), 400},
		{"POST", base + "/api/v1/namespaces", "application/json", "{\"metadata\":{\"name\":\"\xff\"}}", 400},
		{"POST", base + "/api/v1/namespaces/default/configmaps", "application/json", "{\"metadata\":{\"name\":\"utf\"},\"data\":{\"a\":\"\xff\"}}", 400},
		{"POST", base + "/api/v1/namespaces", "text/plain", "{}", 415},
		{"POST", base + "/api/v1/namespaces/default/configmaps", "application/json", `{"metadata":{"name":"big"},"data":{"a":"` + strings.Repeat("x", 4<<20) + `"}}`, 413},
		{"POST", base + "/api/v1/namespaces/default/configmaps", "application/json", `{"metadata":{"name":"Not A Name"}}`, 422},
		{"PATCH", base + "/api/v1/namespaces/default", "application/json", "{}", 415},
		{"PUT", base + "/api/v1/namespaces/default", "application/json", `{"metadata":{"name":"other"}}`, 400},
		{"GET", base + "/api/v1/namespaces/default/configmaps?limit=x", "", "", 400},
		{"GET", base + "/api/v1/namespaces/default/configmaps?continue=x", "", "", 400},
		{"GET", base + "/api/v1/namespaces/default/configmaps?fieldSelector=no.such=x", "", "", 400},
	} {
		name := test.method + " " + test.path[:min(len(test.path), 80)]
		code, body := cluster.Raw(t, kcptest.Masters, test.method, test.path, http.Header{"Content-Type": {test.contentType}}, test.body)
		status := &metav1.Status{}
		if err := json.Unmarshal(body, status); err != nil || status.Kind != "Status" || status.Message == "" {
			t.Errorf("%s: %d with the body %.200q", name, code, body)
			continue
		}
		if code != test.code || int(status.Code) != test.code {
			t.Errorf("%s: %d %s (%s), want %d", name, code, status.Reason, status.Message, test.code)
		}
	}
	if _, err := cluster.Kube(t, kcptest.Masters).CoreV1().Namespaces().List(kcptest.Context(t), metav1.ListOptions{}); err != nil {
		t.Errorf("after these requests: %v", err)
	}
}

func TestForgedIdentityHeadersAreIgnored(t *testing.T) {
	t.Parallel()
	cluster := server.Cluster(t)
	for _, header := range []http.Header{
		{"X-Remote-User": {"root-of-trust"}, "X-Remote-Group": {"system:masters"}},
		{"X-Kcp-Internal-Deep-Subjectaccessreview": {"true"}},
		{"Impersonate-User": {"root-of-trust"}, "Impersonate-Group": {"system:masters"}},
		{"Authorization": {"Bearer nonsense"}},
	} {
		code, body := cluster.Raw(t, kcptest.Bob, http.MethodGet, "/clusters/"+cluster.Name+"/api/v1/secrets", header, "")
		if code != http.StatusForbidden && code != http.StatusUnauthorized {
			t.Errorf("with %v: got %d %.200s", header, code, body)
		}
	}
}
