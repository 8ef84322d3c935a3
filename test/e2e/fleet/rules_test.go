package fleet

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

var (
	placements = v1alpha1.SchemeGroupVersion.WithResource("placements")
	workloads  = v1alpha1.SchemeGroupVersion.WithResource("workloads")
	gadgets    = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "gadgets"}
)

// awaitScheduled waits until the condition Scheduled of the placement of a workspace has a status, and a message with some text.
func awaitScheduled(t *testing.T, w *kcptest.Cluster, status, text string) {
	t.Helper()
	soon(t, "the condition Scheduled is "+status, func(ctx context.Context) error {
		u, err := w.Objects(t, placements).Get(ctx, "all", metav1.GetOptions{})
		if err != nil {
			return err
		}
		conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
		for _, c := range conditions {
			condition, _ := c.(map[string]any)
			if condition["type"] == v1alpha1.PlacementScheduled && condition["status"] == status && strings.Contains(fmt.Sprint(condition["message"]), text) {
				return nil
			}
		}
		return fmt.Errorf("conditions are %v", conditions)
	})
}

func (f *fleet) limitsSecrets(t *testing.T) {
	east := f.clusters["east"]
	config, err := clientcmd.BuildConfigFromFlags("", east.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	agent, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, namespace := range []string{"kube-system", "kcp-fleet", metav1.NamespaceAll} {
		if _, err := agent.CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("the agent lists the Secrets of namespace %q: %v", namespace, err)
		}
		if _, err := agent.CoreV1().Secrets(namespace).Watch(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("the agent watches the Secrets of namespace %q: %v", namespace, err)
		}
	}
	subject := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "kcp-fleet", Name: "agent"}}
	bind := func(namespace, role string) error {
		_, err := agent.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "attempt"}, Subjects: subject,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		}, metav1.CreateOptions{})
		return err
	}
	w := f.workspace(t, on("east"))
	w.Kubectl(t, "create", "secret", "generic", "used", "-n", "default", "--from-literal=a=b")
	w.Apply(t, strings.ReplaceAll(web, "spec:\n      containers", "spec:\n      volumes: [{name: s, secret: {secretName: used}}]\n      containers"))
	own := w.Name + "-default"
	soon(t, "the secret exists on the cluster", func(ctx context.Context) error {
		_, err := agent.CoreV1().Secrets(own).Get(ctx, "used", metav1.GetOptions{})
		return err
	})
	for _, namespace := range []string{"kube-system", "kcp-fleet", "default"} {
		if err := bind(namespace, v1alpha1.NamespaceRole); err == nil || !strings.Contains(err.Error(), "writes only to the namespaces") {
			t.Errorf("the agent gives itself access to namespace %q: %v", namespace, err)
		}
	}
	for _, role := range []string{"cluster-admin", "system:aggregate-to-admin", "system:aggregate-to-view"} {
		if err := bind(own, role); !apierrors.IsForbidden(err) {
			t.Errorf("the agent binds the role %s: %v", role, err)
		}
	}
	_, err = agent.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "attempt"}, Subjects: subject,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: v1alpha1.NamespaceRole},
	}, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("the agent gives itself access to all namespaces: %v", err)
	}
}

func (f *fleet) replacesAgent(t *testing.T) {
	former := f.as(t, "west", "west")
	list, err := former.Resource(workloads).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	events, err := former.Resource(workloads).Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	f.fleetctl(t).Run(t, "fleet", "join", "west", "--url", f.url, "--ca-file", f.caFile(), "--replace")
	soon(t, "the open watch of the former agent ends", func(context.Context) error {
		for {
			select {
			case _, ok := <-events.ResultChan():
				if !ok {
					return nil
				}
			default:
				return errors.New("it is open")
			}
		}
	})
	refused := func(what string) {
		t.Helper()
		if _, err := former.Resource(workloads).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("%s, the former certificate lists workloads: %v", what, err)
		}
		u, err := f.provider.Objects(t, clusters).Get(t.Context(), "west", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := unstructured.SetNestedField(u.Object, anotherRequest(t), "status", "request"); err != nil {
			t.Fatal(err)
		}
		if _, err := former.Resource(clusters).UpdateStatus(t.Context(), u, metav1.UpdateOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("%s, the former certificate requests another one: %v", what, err)
		}
	}
	refused("before the approval")
	// The agent has the same token still, and requests a certificate with it.
	soon(t, "the agent requests another certificate", func(ctx context.Context) error {
		u, err := f.provider.Objects(t, clusters).Get(ctx, "west", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if key, _, _ := unstructured.NestedString(u.Object, "status", "requestedKey"); key == "" {
			return errors.New("no key is requested")
		}
		return nil
	})
	f.fleetctl(t).Run(t, "fleet", "approve", "west")
	soon(t, "the agent uses another certificate", func(ctx context.Context) error {
		_, err := f.as(t, "west", "west").Resource(workloads).List(ctx, metav1.ListOptions{})
		return err
	})
	refused("after the approval")
	w := f.workspace(t, on("west"))
	w.Apply(t, web)
	soon(t, "the agent works", func(ctx context.Context) error {
		found, err := f.copies(ctx, w, "web")
		if err == nil && names(found) != "west" {
			err = fmt.Errorf("it runs on %q", names(found))
		}
		return err
	})
}

// gadget is a definition whose objects have a size up to a limit.
const gadget = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Gadget, listKind: GadgetList, plural: gadgets, singular: gadget}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {size: {type: integer, maximum: MOST}}}
          status: {type: object, properties: {MOSTFIELD: {type: string}}}
`

func (f *fleet) comparesSchemas(t *testing.T) {
	for name, most := range map[string]string{"east": "10", "west": "5"} {
		manifest := strings.NewReplacer("MOSTFIELD", "only"+name, "MOST", most).Replace(gadget)
		admin := filepath.Join(f.dir, name+".admin")
		kcptest.CommandAt(t, "kubectl", admin).Input(manifest).Run(t, "apply", "-f", "-")
		kcptest.CommandAt(t, "kubectl", admin).Run(t, "wait", "--for=condition=Established", "crd/gadgets.example.com", "--timeout=60s")
	}
	f.fleetctl(t).Run(t, "fleet", "import", "gadgets.example.com", "--from-kubeconfig", filepath.Join(f.dir, "east.admin"))
	for name := range f.clusters {
		manifest := f.fleetctl(t).Run(t, "fleet", "join", name, "--url", f.url, "--ca-file", f.caFile(), "--update")
		kcptest.CommandAt(t, "kubectl", filepath.Join(f.dir, name+".admin")).Input(manifest).Run(t, "apply", "-f", "-")
	}
	f.awaitStates(t, "east", "gadgets", "Accepted  ", "deployments", "Accepted  ", "services", "Accepted  ", "jobs", "Accepted  ")
	f.awaitStates(t, "west", "gadgets", "Incompatible spec.size maximum changes from 10 to 5", "deployments", "Accepted  ")
	w := f.workspace(t, on("west"))
	soon(t, "gadgets are served", func(ctx context.Context) error {
		_, err := w.Objects(t, gadgets).Namespace("default").List(ctx, metav1.ListOptions{})
		return err
	})
	w.Apply(t, "apiVersion: example.com/v1\nkind: Gadget\nmetadata: {name: g, namespace: default}\nspec: {size: 7}\n")
	awaitScheduled(t, w, "False", "west does not accept gadgets.example.com: spec.size: maximum changes from 10 to 5")
	w.Kubectl(t, "patch", "placement", "all", "--type=merge", "-p", `{"spec":{"clusterSelector":null}}`)
	awaitScheduled(t, w, "True", "")
	soon(t, "the gadget is on east only", func(ctx context.Context) error {
		_, err := f.clusters["east"].dynamic.Resource(gadgets).Namespace(w.Name+"-default").Get(ctx, "g", metav1.GetOptions{})
		return err
	})
	// When the cluster accepts them, it is used.
	wider := strings.NewReplacer("MOSTFIELD", "onlywest", "MOST", "11").Replace(gadget)
	kcptest.CommandAt(t, "kubectl", filepath.Join(f.dir, "west.admin")).Input(wider).Run(t, "apply", "-f", "-")
	f.awaitStates(t, "west", "gadgets", "Accepted  ")
	w.Apply(t, "apiVersion: fleet.kcp.io/v1alpha1\nkind: Placement\nmetadata: {name: all}\nspec: "+on("west"))
	soon(t, "the gadget is on west", func(ctx context.Context) error {
		_, err := f.clusters["west"].dynamic.Resource(gadgets).Namespace(w.Name+"-default").Get(ctx, "g", metav1.GetOptions{})
		return err
	})
}

// awaitStates waits until a cluster reports states of resources: pairs of a resource, and its state with the path and the message.
func (f *fleet) awaitStates(t *testing.T, cluster string, want ...string) {
	t.Helper()
	soon(t, "the cluster "+cluster+" reports the states of resources", func(ctx context.Context) error {
		u, err := f.provider.Objects(t, clusters).Get(ctx, cluster, metav1.GetOptions{})
		if err != nil {
			return err
		}
		listed, _, _ := unstructured.NestedSlice(u.Object, "status", "resources")
		found := map[string]string{}
		for _, r := range listed {
			entry, _ := r.(map[string]any)
			text := func(field string) string {
				value, _ := entry[field].(string)
				return value
			}
			found[text("resource")] = text("state") + " " + text("field") + " " + text("message")
		}
		for i := 0; i < len(want); i += 2 {
			if found[want[i]] != want[i+1] {
				return fmt.Errorf("%s: got %q, want %q; all are %q", want[i], found[want[i]], want[i+1], found)
			}
		}
		return nil
	})
}

func (f *fleet) respectsRoom(t *testing.T) {
	west := f.clusters["west"].kube
	node, err := west.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "small"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("8Gi"),
		corev1.ResourcePods: resource.MustParse("1000")}
	if _, err := west.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	deleted := false
	remove := func(ctx context.Context) {
		if err := west.CoreV1().Nodes().Delete(ctx, "small", metav1.DeleteOptions{}); err != nil && !deleted {
			t.Error(err)
		}
		deleted = true
	}
	defer func() {
		if !deleted {
			remove(kcptest.Context(t))
		}
	}()
	capacity := func(want string) {
		t.Helper()
		soon(t, "west has "+want+" processors", func(ctx context.Context) error {
			u, err := f.provider.Objects(t, clusters).Get(ctx, "west", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if cpu, _, _ := unstructured.NestedString(u.Object, "status", "capacity", "cpu"); cpu != want {
				return fmt.Errorf("it has %q", cpu)
			}
			return nil
		})
	}
	capacity("2")
	w := f.workspace(t, "{clusterSelector: {matchLabels: {region: none}}}")
	w.Apply(t, strings.ReplaceAll(web, `ports: [{containerPort: 80}]`, `resources: {requests: {cpu: "1"}}`))
	awaitScheduled(t, w, "False", "no cluster matches")
	w.Apply(t, "apiVersion: fleet.kcp.io/v1alpha1\nkind: Placement\nmetadata: {name: all}\nspec: "+on("west"))
	awaitScheduled(t, w, "False", "west has no room: the namespace requests 3 of cpu, and 2 is free")
	w.Kubectl(t, "scale", "deployment/web", "--replicas=2")
	soon(t, "two replicas fit", func(ctx context.Context) error {
		found, err := f.copies(ctx, w, "web")
		if err == nil && names(found) != "west" {
			err = fmt.Errorf("it runs on %q", names(found))
		}
		return err
	})
	remove(t.Context())
	capacity("")
}
