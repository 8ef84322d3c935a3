package agent

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
)

// theSecret returns a Secret of the assignment.
func theSecret(t *testing.T, name string) runtime.Object {
	w := &v1alpha1.Workload{TypeMeta: metav1.TypeMeta{APIVersion: "fleet.kcp.io/v1alpha1", Kind: "Workload"},
		ObjectMeta: metav1.ObjectMeta{Name: "a." + name, Labels: map[string]string{assignmentLabel: "a"}}}
	w.Spec = v1alpha1.WorkloadSpec{Assignment: "a", Resource: "secrets", Object: runtime.RawExtension{Raw: []byte(
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"` + name + `"},"data":{"password":"aHVudGVyMg=="}}`)}}
	return object(t, w)
}

func TestSecretsAreReadOnlyInNamespacesOfTheAgent(t *testing.T) {
	r := start(t, []runtime.Object{theCluster(t), theAssignment(t), theSecret(t, "password")})
	refusals := 2 // the API server applies the RoleBinding a little later
	r.cluster.PrependReactor("list", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		refusals--
		return refusals >= 0, nil, apierrors.NewForbidden(secretResource.GroupResource(), "", errors.New("not yet"))
	})
	for range 2 {
		if err := r.reconcileWorkload(t.Context(), "a.password"); err != nil {
			t.Fatal(err)
		}
	}
	bindings := schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"}
	binding, err := r.cluster.Resource(bindings).Namespace("w-shop").Get(t.Context(), guard, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if role, _, _ := unstructured.NestedString(binding.Object, "roleRef", "name"); role != v1alpha1.NamespaceRole {
		t.Errorf("the agent binds the role %s", role)
	}
	if len(r.existing("a.password")[secretResource]) != 1 {
		t.Error("the agent does not know what it has created")
	}
	written := 0
	for _, action := range r.cluster.Actions() {
		if action.GetResource() != secretResource {
			continue
		}
		if action.GetNamespace() != "w-shop" || action.GetVerb() == "watch" {
			t.Errorf("the agent sends %s %s in namespace %q", action.GetVerb(), action.GetResource().Resource, action.GetNamespace())
		}
		if verb := action.GetVerb(); verb == "create" || verb == "patch" {
			written++
		}
	}
	if written != 1 {
		t.Errorf("the Secret was written %d times", written)
	}
	if err := r.workloads.GetStore().Replace(nil, ""); err != nil {
		t.Fatal(err)
	}
	r.fleet.PrependReactor("get", "workloads", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(v1alpha1.Resource("workloads"), "a.password")
	})
	if err := r.reconcileWorkload(t.Context(), "a.password"); err != nil {
		t.Fatal(err)
	}
	if len(r.existing("a.password")) > 0 {
		t.Error("a deleted Secret is still known")
	}
	if _, err := r.cluster.Resource(secretResource).Namespace("w-shop").Get(t.Context(), "password", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Secret is not deleted: %v", err)
	}
}

func TestAChangedOrDeletedSecretIsFoundByTheNextList(t *testing.T) {
	var s secrets
	secret := func(namespace, workload, value string) unstructured.Unstructured {
		u := unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"v": value}}}
		u.SetNamespace(namespace)
		u.SetLabels(map[string]string{workloadLabel: workload})
		return u
	}
	for _, u := range []unstructured.Unstructured{secret("one", "a.kept", "1"), secret("one", "a.deleted", "1"), secret("two", "b.other", "1")} {
		s.set(u.GetLabels()[workloadLabel], &u)
	}
	s.open("one")
	found := s.replace("one", []unstructured.Unstructured{secret("one", "a.kept", "2"), secret("one", "a.unknown", "1")})
	if len(found) != 3 || found[0] != "a.deleted" || found[1] != "a.kept" || found[2] != "a.unknown" {
		t.Errorf("reconciles %v", found)
	}
	if kept := s.at("a.kept"); kept == nil || kept.Object["data"].(map[string]any)["v"] != "2" {
		t.Errorf("the changed Secret is %v", kept)
	}
	if s.at("a.deleted") != nil || s.at("a.unknown") == nil || s.at("b.other") == nil {
		t.Errorf("known are %v", s.byWorkload)
	}
	s.forget("one")
	s.forget("two")
	if len(s.byWorkload) > 0 || len(s.accessible) > 0 || s.isOpen("one") {
		t.Errorf("of deleted namespaces, known are %v, %v", s.byWorkload, s.accessible)
	}
}

func TestASecretIsKnownWhileTheListReplacesIt(t *testing.T) {
	var s secrets
	u := unstructured.Unstructured{Object: map[string]any{}}
	u.SetNamespace("one")
	u.SetLabels(map[string]string{workloadLabel: "a.kept"})
	s.set("a.kept", &u)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 2000 {
			s.replace("one", []unstructured.Unstructured{u})
		}
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		if s.at("a.kept") == nil {
			t.Error("the Secret was not known for a moment")
			break
		}
	}
	<-done
}

func TestAnAgentThatRestartsKnowsItsSecrets(t *testing.T) {
	r := start(t, []runtime.Object{theCluster(t), theAssignment(t)})
	namespace := func(name, owner, resources string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
		u.SetName(name)
		u.SetAnnotations(map[string]string{ownerAnnotation: owner, resourcesAnnotation: resources})
		return u
	}
	for _, n := range []*unstructured.Unstructured{namespace("w-shop", "east/a", "configmaps.v1.,secrets.v1."), namespace("w-plain", "east/b", "configmaps.v1."),
		namespace("foreign", "west/c", "secrets.v1.")} {
		if err := r.namespaces.GetStore().Add(n); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"w-shop", "foreign"} {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret"}}
		u.SetName("password")
		u.SetLabels(map[string]string{workloadLabel: "a.password", v1alpha1.ClusterLabel: "east"})
		if _, err := r.cluster.Resource(secretResource).Namespace(name).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	hostile := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret"}}
	hostile.SetName("z-hostile") // a controller has copied labels that a user chose
	hostile.SetLabels(map[string]string{workloadLabel: "c.password", v1alpha1.ClusterLabel: "east"})
	if _, err := r.cluster.Resource(secretResource).Namespace("w-shop").Create(t.Context(), hostile, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.cluster.ClearActions()
	r.listSecrets(t.Context())
	if known := r.existing("c.password"); len(known) > 0 {
		t.Errorf("a Secret of another namespace is taken for that of a workload: %v", known)
	}
	if known := r.existing("a.password")[secretResource]; len(known) != 1 || known[0].GetNamespace() != "w-shop" {
		t.Errorf("known are %v", known)
	}
	for _, action := range r.cluster.Actions() {
		if action.GetNamespace() != "w-shop" {
			t.Errorf("the agent sends %s %s in namespace %q", action.GetVerb(), action.GetResource().Resource, action.GetNamespace())
		}
	}
}
