package agent

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
)

var (
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	now         = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	widgets     = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
)

func TestAWorkloadIsCreatedInAGuardedNamespace(t *testing.T) {
	r := start(t, []runtime.Object{theCluster(t), theAssignment(t), theWorkload(t, "settings")})
	if err := r.reconcileWorkload(t.Context(), "a.settings"); err != nil {
		t.Fatal(err)
	}
	u := r.configMap(t, "settings")
	if u == nil || u.GetAnnotations()[ownerAnnotation] != "east/a.settings" || u.GetLabels()[v1alpha1.ClusterLabel] != "east" {
		t.Errorf("the object is %v", u)
	}
	namespace, err := r.kube.CoreV1().Namespaces().Get(t.Context(), "w-shop", metav1.GetOptions{})
	if err != nil || namespace.Labels[podSecurityLabel] != "restricted" {
		t.Errorf("the namespace is %v: %v", namespace, err)
	}
	quotas := schema.GroupVersionResource{Version: "v1", Resource: "resourcequotas"}
	if _, err := r.cluster.Resource(quotas).Namespace("w-shop").Get(t.Context(), guard, metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

func TestAnEventThatChangesNothingCausesNoRequest(t *testing.T) {
	r := start(t, []runtime.Object{theCluster(t), theAssignment(t), theWorkload(t, "settings")})
	for range 2 { // after the second time, the cache has the object
		if err := r.reconcileWorkload(t.Context(), "a.settings"); err != nil {
			t.Fatal(err)
		}
		r.awaitCached(t, "a.settings")
	}
	before := len(r.cluster.Actions()) + len(r.kube.Actions())
	if err := r.reconcileWorkload(t.Context(), "a.settings"); err != nil {
		t.Fatal(err)
	}
	if n := len(r.cluster.Actions()) + len(r.kube.Actions()) - before; n > 0 {
		t.Errorf("%d requests", n)
	}
}

// awaitCached waits until the cache has the object of a workload.
func (r *running) awaitCached(t *testing.T, workload string) {
	t.Helper()
	cached := func(context.Context) (bool, error) { return len(r.existing(workload)) > 0, nil }
	if err := wait.PollUntilContextCancel(t.Context(), 5*time.Millisecond, true, cached); err != nil {
		t.Fatal(err)
	}
}

func TestAnObjectThatTheAgentDidNotCreateStays(t *testing.T) {
	r := start(t, []runtime.Object{theCluster(t), theAssignment(t), theWorkload(t, "settings")})
	own := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"color": "red"}}}
	own.SetName("settings")
	if _, err := r.cluster.Resource(configMaps).Namespace("w-shop").Create(t.Context(), own, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := r.reconcileWorkload(t.Context(), "a.settings"); !errors.Is(err, errForeign) {
		t.Errorf("got %v", err)
	}
	if color, _, _ := unstructured.NestedString(r.configMap(t, "settings").Object, "data", "color"); color != "red" {
		t.Errorf("the object was changed: color is %s", color)
	}
	u, err := r.fleet.Resource(workloadResource).Get(t.Context(), "a.settings", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if message, _, _ := unstructured.NestedString(u.Object, "status", "message"); !strings.Contains(message, "was not created by the fleet") {
		t.Errorf("the agent reports %q", message)
	}
}

func TestAnObjectIsDeletedOnlyWhenTheFleetConfirmsItsAbsence(t *testing.T) {
	r := start(t, []runtime.Object{theCluster(t), theAssignment(t), theWorkload(t, "settings")})
	if err := r.reconcileWorkload(t.Context(), "a.settings"); err != nil {
		t.Fatal(err)
	}
	r.awaitCached(t, "a.settings")
	if err := r.workloads.GetStore().Replace(nil, ""); err != nil { // as after a restart with an empty cache
		t.Fatal(err)
	}
	answer := error(apierrors.NewServiceUnavailable("not known yet"))
	r.fleet.PrependReactor("get", "workloads", func(clienttesting.Action) (bool, runtime.Object, error) { return answer != nil, nil, answer })
	for _, a := range []error{answer, apierrors.NewNotFound(v1alpha1.Resource("workloads"), "another"), nil} {
		answer = a
		_ = r.reconcileWorkload(t.Context(), "a.settings")
		if r.configMap(t, "settings") == nil {
			t.Fatalf("the object was deleted after the answer %v", answer)
		}
	}
	answer = apierrors.NewNotFound(v1alpha1.Resource("workloads"), "a.settings")
	if err := r.reconcileWorkload(t.Context(), "a.settings"); err != nil {
		t.Fatal(err)
	}
	if r.configMap(t, "settings") != nil {
		t.Error("the object was not deleted")
	}
}

func TestLabelsThatAnotherTenantChoosesBlockNoWorkload(t *testing.T) {
	controlled := func(u *unstructured.Unstructured) {
		yes := true
		u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "CronJob", Name: "c", UID: "1", Controller: &yes}})
	}
	for name, test := range map[string]struct {
		namespace string
		change    func(*unstructured.Unstructured)
		assigned  bool
	}{
		"a copy of a template in another namespace":                                     {"w-other", controlled, true},
		"a copy of a template in the same namespace":                                    {"w-shop", controlled, true},
		"an object in another namespace":                                                {"w-other", func(*unstructured.Unstructured) {}, true},
		"an object in another namespace, of an assignment that the agent does not know": {"w-other", func(*unstructured.Unstructured) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, []runtime.Object{theCluster(t), theAssignment(t), theWorkload(t, "settings")})
			if err := r.reconcileWorkload(t.Context(), "a.settings"); err != nil {
				t.Fatal(err)
			}
			r.awaitCached(t, "a.settings")
			other := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
			other.SetName("w-other")
			other.SetAnnotations(map[string]string{ownerAnnotation: "east/b"})
			if err := r.namespaces.GetStore().Add(other); err != nil {
				t.Fatal(err)
			}
			hostile := r.configMap(t, "settings").DeepCopy() // with all labels and annotations of the agent
			hostile.SetName("hostile")
			hostile.SetNamespace(test.namespace)
			test.change(hostile)
			if err := r.watched[configMaps].informer.GetIndexer().Add(hostile); err != nil {
				t.Fatal(err)
			}
			if !test.assigned {
				if err := r.assignments.GetStore().Replace(nil, ""); err != nil {
					t.Fatal(err)
				}
			}
			if found := r.existing("a.settings")[configMaps]; len(found) != 1 || found[0].GetName() != "settings" {
				t.Errorf("%d objects are taken for the workload", len(found))
			}
		})
	}
}

func TestADrainingAssignmentRemovesOnlyTheNamespaceThatTheAgentCreated(t *testing.T) {
	draining := func(a *v1alpha1.Assignment) { a.Spec.Draining = true }
	own := foreignNamespace("w-shop")
	own.Annotations = map[string]string{ownerAnnotation: "east/a"}
	r := start(t, []runtime.Object{theCluster(t), theAssignment(t, draining)}, foreignNamespace("other"), own)
	phase := func() string {
		t.Helper()
		if err := r.reconcileAssignment(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		u, err := r.fleet.Resource(assignmentResource).Get(t.Context(), "a", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		phase, _, _ := unstructured.NestedString(u.Object, "status", "phase")
		return phase
	}
	if got := phase(); got != "Placing" {
		t.Errorf("while the namespace is deleted, the phase is %s", got)
	}
	if got := phase(); got != "Gone" {
		t.Errorf("after that, it is %s", got)
	}
	if _, err := r.kube.CoreV1().Namespaces().Get(t.Context(), "other", metav1.GetOptions{}); err != nil {
		t.Errorf("the other namespace: %v", err)
	}
}

func TestAResourceThatTheClusterDoesNotServeHoldsBackNothingElse(t *testing.T) {
	r := start(t, []runtime.Object{theCluster(t), theAssignment(t), theWorkload(t, "settings")})
	r.patience = time.Hour
	listing := make(chan struct{}, 1)
	r.cluster.PrependReactor("list", "widgets", func(clienttesting.Action) (bool, runtime.Object, error) {
		select {
		case listing <- struct{}{}:
		default:
		}
		return true, nil, apierrors.NewNotFound(widgets.GroupResource(), "")
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- r.watch(ctx, widgets) }()
	<-listing
	if err := r.reconcileWorkload(t.Context(), "a.settings"); err != nil { // does not wait for the widgets
		t.Error(err)
	}
	cancel()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "does not serve widgets.example.com") {
		t.Errorf("got %v", err)
	}
}

func TestNamesOfNamespacesAreShortAndDoNotCollide(t *testing.T) {
	long := strings.Repeat("n", 60)
	seen := map[string]string{}
	for _, n := range [][2]string{{"w", "shop"}, {"w", long}, {"w", long + "x"}, {"w1", long}, {"w2", long}} {
		a := &v1alpha1.Assignment{Spec: v1alpha1.AssignmentSpec{Workspace: n[0], Namespace: n[1]}}
		name := namespaceName(a)
		if former, ok := seen[name]; ok || len(name) > longestName {
			t.Errorf("the name %q of %v has %d characters, and is also that of %q", name, n, len(name), former)
		}
		seen[name] = n[0] + "/" + n[1]
	}
}

func TestHealthFollowsTheConventionsOfKubernetes(t *testing.T) {
	deployment := func(observed, available int64) map[string]any {
		return map[string]any{"observedGeneration": observed, "replicas": int64(2), "readyReplicas": int64(2), "updatedReplicas": int64(2),
			"availableReplicas": available}
	}
	condition := func(kind, state string) map[string]any {
		return map[string]any{"conditions": []any{map[string]any{"type": kind, "status": state, "message": "no"}}}
	}
	for _, test := range []struct {
		name, version, kind string
		status              map[string]any
		why                 string
	}{
		{"no status", "v1", "ConfigMap", nil, ""},
		{"a Deployment without a status", "apps/v1", "Deployment", nil, "has not seen"},
		{"an old observation", "apps/v1", "Deployment", deployment(1, 2), "has not seen"},
		{"a replica that is not available", "apps/v1", "Deployment", deployment(2, 1), "availableReplicas is 1, want 2"},
		{"all replicas", "apps/v1", "Deployment", deployment(2, 2), ""},
		{"a failed Job", "batch/v1", "Job", condition("Failed", "True"), "failed: no"},
		{"a custom resource that is not ready", "example.com/v1", "Widget", condition("Ready", "False"), "condition Ready is False"},
		{"a custom resource that is ready", "example.com/v1", "Widget", condition("Ready", "True"), ""},
	} {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": test.version, "kind": test.kind}}
		u.SetGeneration(2)
		if test.status != nil {
			u.Object["status"] = test.status
		}
		if got := unhealthy(u, 2); (got == "") != (test.why == "") || !strings.Contains(got, test.why) {
			t.Errorf("%s: got %q, want %q", test.name, got, test.why)
		}
	}
}

func TestAStatusHasTheGenerationOfTheWorkspace(t *testing.T) {
	live := func(generation, observed int64, applied string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"observedGeneration": observed}}}
		u.SetGeneration(generation)
		u.SetAnnotations(map[string]string{generationAnnotation: applied})
		return u
	}
	for _, test := range []struct {
		u    *unstructured.Unstructured
		want int64
	}{{live(3, 3, "7"), 7}, {live(3, 2, "7"), 6}, {live(3, 3, "6"), 6}} {
		if got := statusOf(test.u, 7)["observedGeneration"]; got != test.want {
			t.Errorf("observed generation %v, want %d: %v", got, test.want, test.u)
		}
	}
}

func TestGuardRailsAreAppliedAgainWhenTheyChange(t *testing.T) {
	g, quota := guards{}, defaultQuota()
	g.remember("uid", quota, now)
	if !g.are("uid", quota, now) {
		t.Error("they are applied again at once")
	}
	if g.are("uid", quota, now.Add(guardPeriod)) || g.are("uid", corev1.ResourceList{}, now) || g.are("other", quota, now) {
		t.Error("a changed quota, another namespace or an old guard rail counts as applied")
	}
	g.forget("uid")
	if len(g.byNamespace) > 0 {
		t.Error("a deleted namespace is remembered")
	}
}
