package feed

import (
	"context"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
)

var (
	home        = Namespace{"https://shard", "w1", "default"}
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	secretsV1   = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
)

func newTestIndex() *Index {
	x := NewIndex(1000, nil)
	x.SetReady()
	x.SetSynced(home.Endpoint, true)
	return x
}

func assignment(n Namespace, cluster string, change ...func(*v1alpha1.Assignment)) *v1alpha1.Assignment {
	a := &v1alpha1.Assignment{ObjectMeta: metav1.ObjectMeta{Name: AssignmentName(n.Workspace, n.Name, cluster)}}
	a.Spec = v1alpha1.AssignmentSpec{Workspace: n.Workspace, Namespace: n.Name, Cluster: cluster, Endpoint: n.Endpoint}
	for _, c := range change {
		c(a)
	}
	return a
}

func deployment(name, secret string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1",
		"kind":       "Deployment",
		"metadata": map[string]any{
			"name":        name,
			"namespace":   "default",
			"uid":         name,
			"generation":  int64(1),
			"finalizers":  []any{"example.com/x"},
			"annotations": map[string]any{"kcp.io/cluster": "w1", "example.com/a": "b"},
		},
		"spec": map[string]any{"replicas": int64(5), "template": map[string]any{"spec": map[string]any{
			"volumes": []any{map[string]any{"secret": map[string]any{"secretName": secret}}}}}},
		"status": map[string]any{"replicas": int64(9)},
	}}
}

func secret(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": name, "namespace": "default", "uid": name}, "type": "Opaque",
	}}
}

// seen returns resource/name of the workloads of a cluster.
func seen(t *testing.T, x *Index, cluster string) []string {
	t.Helper()
	list, err := x.Feed(cluster).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for i := range list.Items {
		resource, _, _ := unstructured.NestedString(list.Items[i].Object, "spec", "resource")
		name, _, _ := unstructured.NestedString(list.Items[i].Object, "spec", "object", "metadata", "name")
		all = append(all, resource+"/"+name)
	}
	slices.Sort(all)
	return all
}

func TestAClusterSeesOnlyWhatIsAssignedToIt(t *testing.T) {
	x := newTestIndex()
	other := Namespace{home.Endpoint, "w2", "default"}
	x.SetObject(home, Key{deployments, "mine"}, deployment("mine", ""))
	x.SetObject(other, Key{deployments, "theirs"}, deployment("theirs", ""))
	if got := seen(t, x, "east"); len(got) > 0 {
		t.Errorf("without an assignment, east sees %v", got)
	}
	x.SetAssignment(assignment(home, "east"))
	x.SetAssignment(assignment(other, "west"))
	if got := strings.Join(seen(t, x, "east"), " "); got != "deployments/mine" {
		t.Errorf("east sees %s", got)
	}
	if got := strings.Join(seen(t, x, "west"), " "); got != "deployments/theirs" {
		t.Errorf("west sees %s", got)
	}
	x.SetAssignment(assignment(home, "east", func(a *v1alpha1.Assignment) { a.Spec.Draining = true }))
	if got := seen(t, x, "east"); len(got) > 0 {
		t.Errorf("while it drains, east sees %v", got)
	}
}

func TestSecretsAreSeenWhileAnObjectRefersToThem(t *testing.T) {
	x := newTestIndex()
	x.SetAssignment(assignment(home, "east"))
	x.SetObject(home, Key{secretsV1, "used"}, secret("used"))
	x.SetObject(home, Key{secretsV1, "private"}, secret("private"))
	if got := seen(t, x, "east"); len(got) > 0 {
		t.Errorf("without a reference, east sees %v", got)
	}
	x.SetObject(home, Key{deployments, "d"}, deployment("d", "used"))
	if got := strings.Join(seen(t, x, "east"), " "); got != "deployments/d secrets/used" {
		t.Errorf("east sees %s", got)
	}
	x.SetObject(home, Key{deployments, "d"}, nil)
	if got := seen(t, x, "east"); len(got) > 0 {
		t.Errorf("without the object, east sees %v", got)
	}
}

func TestWorkloadsHaveNothingThatBelongsToTheWorkspace(t *testing.T) {
	x := newTestIndex()
	x.SetAssignment(assignment(home, "east", func(a *v1alpha1.Assignment) { a.Spec.Share = &v1alpha1.Share{Offset: 1, Weight: 1, Total: 2} }))
	original := deployment("d", "")
	x.SetObject(home, Key{deployments, "d"}, original)
	list, err := x.Feed("east").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("got %v, %v", list, err)
	}
	object, _, _ := unstructured.NestedMap(list.Items[0].Object, "spec", "object")
	u := unstructured.Unstructured{Object: object}
	if n := len(
		u.GetAnnotations(),
	); n != 1 || len(u.GetFinalizers()) > 0 || u.GetUID() != "" || u.GetNamespace() != "" ||
		object["status"] != nil {
		t.Errorf("the workload is %v", object)
	}
	if n, _, _ := unstructured.NestedInt64(object, "spec", "replicas"); n != 3 {
		t.Errorf("the second half of 5 replicas is %d", n)
	}
	if n, _, _ := unstructured.NestedInt64(original.Object, "spec", "replicas"); n != 5 {
		t.Errorf("the original has %d replicas now", n)
	}
}

func TestAbsenceIsReportedOnlyWhenItIsCertain(t *testing.T) {
	x := NewIndex(1000, nil)
	a := assignment(home, "east")
	name := nameOf(a, Key{deployments, "d"})
	get := func() error { _, err := x.Feed("east").Get(t.Context(), name, metav1.GetOptions{}); return err }
	if err := get(); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("before the Assignments are known: %v", err)
	}
	if _, err := x.Feed("east").List(t.Context(), metav1.ListOptions{}); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("a list before the Assignments are known: %v", err)
	}
	x.SetAssignment(a)
	x.SetReady()
	if err := get(); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("before the objects of the endpoint are known: %v", err)
	}
	x.SetSynced(home.Endpoint, true)
	if err := get(); !apierrors.IsNotFound(err) {
		t.Errorf("when all is known: %v", err)
	}
	x.SetObject(home, Key{deployments, "d"}, deployment("d", ""))
	if err := get(); err != nil {
		t.Errorf("when it exists: %v", err)
	}
}

func TestWatchResumesAndExpires(t *testing.T) {
	x := newTestIndex()
	x.SetAssignment(assignment(home, "east"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	list, err := x.Feed("east").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	x.SetObject(home, Key{deployments, "d"}, deployment("d", ""))
	x.SetObject(home, Key{deployments, "d"}, nil)
	w, err := x.Feed("east").Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []watch.EventType{watch.Added, watch.Deleted} {
		if e := <-w.ResultChan(); e.Type != want {
			t.Errorf("got %v, want %s", e, want)
		}
	}
	w.Stop()
	for range w.ResultChan() { // ends with the watch
	}
	for _, version := range []string{"7", "99999999"} {
		w, err := x.Feed("east").Watch(ctx, metav1.ListOptions{ResourceVersion: version})
		if err != nil {
			t.Fatal(err)
		}
		e := <-w.ResultChan()
		if status, ok := e.Object.(*metav1.Status); !ok || status.Reason != metav1.StatusReasonExpired {
			t.Errorf("a watch from version %s begins with %v", version, e)
		}
	}
}

func TestReportsBelongToTheClusterOfTheFeed(t *testing.T) {
	x := newTestIndex()
	x.SetAssignment(assignment(home, "east"))
	x.SetAssignment(assignment(home, "west"))
	key := Key{deployments, "d"}
	x.SetObject(home, key, deployment("d", ""))
	list, err := x.Feed("east").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	u := &list.Items[0]
	u.Object["status"] = map[string]any{"object": map[string]any{"replicas": int64(2)}}
	if _, err := x.Feed("west").Update(t.Context(), u, metav1.UpdateOptions{}, "status"); !apierrors.IsNotFound(err) {
		t.Errorf("west reports a workload of east: %v", err)
	}
	if _, err := x.Feed("east").Update(t.Context(), u, metav1.UpdateOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	if _, err := x.Feed("east").Update(t.Context(), u, metav1.UpdateOptions{}, "status"); !apierrors.IsConflict(err) {
		t.Errorf("a report for an older version: %v", err)
	}
	_, _, reports := x.Reports(home, key)
	if len(reports) != 1 || reports["east"].Status["replicas"] != int64(2) {
		t.Errorf("reports are %v", reports)
	}
}
