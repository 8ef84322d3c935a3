package sharding

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// baseType is a workspace type that alice may use; derivedType extends it from another workspace, and binds an export of its own workspace.
const (
	baseType = `
apiVersion: tenancy.kcp.io/v1alpha1
kind: WorkspaceType
metadata: {name: base}
spec:
  extend: {with: [{name: universal, path: root}]}
  limitAllowedParents: {types: [{name: universal, path: root}]}
`
	derivedType = `
apiVersion: tenancy.kcp.io/v1alpha1
kind: WorkspaceType
metadata: {name: derived}
spec:
  extend: {with: [{name: base, path: "root:%s"}]}
  defaultAPIBindings: [{path: "root:%s", export: widgets}]
`
	useOfBase = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: use}
rules: [{apiGroups: [tenancy.kcp.io], resources: [workspacetypes], resourceNames: [base], verbs: [use]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: use}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: use}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]
`
)

// absences are the responses 403 and 404 to the requests of a client.
type absences struct {
	mu       sync.Mutex
	requests []string
}

// client returns a client of alice in a cluster. It retries 429 and 503 as clients of Kubernetes do.
func (a *absences) client(t *testing.T, c *kcptest.Cluster) dynamic.Interface {
	t.Helper()
	config := c.Config(kcptest.Alice)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(r)
			if err == nil && (response.StatusCode == http.StatusForbidden || response.StatusCode == http.StatusNotFound) {
				a.mu.Lock()
				defer a.mu.Unlock()
				a.requests = append(a.requests, fmt.Sprintf("%d: %s %s", response.StatusCode, r.Method, r.URL))
			}
			return response, err
		})
	})
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// create creates the objects of a manifest.
func create(t *testing.T, client dynamic.Interface, manifests string) {
	t.Helper()
	for _, manifest := range strings.Split(manifests, "\n---\n") {
		obj := kcptest.Parse(t, manifest)
		kind := obj.GroupVersionKind()
		resource := kind.GroupVersion().WithResource(strings.ToLower(kind.Kind) + "s")
		if _, err := client.Resource(resource).Create(kcptest.Context(t), obj, metav1.CreateOptions{}); err != nil {
			t.Errorf("creating %s %s: %v", kind.Kind, obj.GetName(), err)
		}
	}
}

// What is created on one shard is used on another one by the next request: workspaces by their path, exports, workspace types, and types
// that those extend on a third shard.
func TestWhatAnotherShardHasJustCreatedIsFound(t *testing.T) {
	for _, c := range [][3]string{{"root", "shard-1", "shard-2"}, {"shard-1", "shard-2", "root"}, {"shard-2", "root", "shard-1"}} {
		t.Run(strings.Join(c[:], " to "), func(t *testing.T) {
			t.Parallel()
			_, consumer := workspaceOn(t, shard(t, c[2]))
			consumer.Grant(t, kcptest.Alice, "cluster-admin")
			seen := &absences{}
			for n := range 10 {
				seen.useAtOnce(t, [2]string{c[0], c[1]}, consumer, n)
			}
			for _, request := range seen.requests {
				t.Errorf("a request got %s", request)
			}
		})
	}
}

// useAtOnce creates workspaces on two shards, a type on each and an export, and uses them in a consumer on the third.
func (a *absences) useAtOnce(t *testing.T, on [2]string, consumer *kcptest.Cluster, n int) {
	t.Helper()
	baseName, base := workspaceOn(t, shard(t, on[0]))
	providerName, provider := workspaceOn(t, shard(t, on[1]))
	provider.Grant(t, kcptest.Alice, "cluster-admin")
	inBase, inProvider, inConsumer := base.Dynamic(t, kcptest.Masters), a.client(t, provider), a.client(t, consumer)

	create(t, inBase, baseType+"---"+useOfBase)
	create(t, inProvider, kcptest.WidgetsExport+"---"+fmt.Sprintf(derivedType, baseName, providerName))

	name := fmt.Sprintf("user-%d", n)
	ws := kcptest.Workspace(name, "root:"+providerName, "derived")
	if _, err := inConsumer.Resource(kcptest.Workspaces).Create(kcptest.Context(t), ws, metav1.CreateOptions{}); err != nil {
		t.Fatalf("creating a workspace of the type: %v", err)
	}
	binding := kcptest.BindingTo(kcptest.At("", nil).Named("root:"+providerName), "widgets")
	binding.SetName(name)
	bindings := inConsumer.Resource(kcptest.APIBindings)
	if _, err := bindings.Create(kcptest.Context(t), binding, metav1.CreateOptions{}); err != nil {
		t.Fatalf("creating a binding to the export: %v", err)
	}
	kcptest.Eventually(t, "the binding finds the export", func(ctx context.Context) error {
		found, err := bindings.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if in, _, _ := unstructured.NestedString(found.Object, "status", "apiExportClusterName"); in != provider.Name {
			return fmt.Errorf("got %v", found.Object["status"])
		}
		return nil
	})
	if err := bindings.Delete(kcptest.Context(t), name, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	a.enterAtOnce(t, consumer, name)
}

// enterAtOnce uses the API that a new workspace binds by default.
func (a *absences) enterAtOnce(t *testing.T, parent *kcptest.Cluster, name string) {
	t.Helper()
	kcptest.WaitForStatus(t, parent.Objects(t, kcptest.Workspaces), name, "Ready", "phase")
	ws := parent.GetWorkspace(t, name)
	child := shard(t, ws.Annotations["core.kcp.io/shard"]).Server().Named(ws.Spec.Cluster)
	made := widget(t, "first", 7)
	if _, err := a.client(t, child).Resource(widgets).Namespace("default").Create(kcptest.Context(t), made, metav1.CreateOptions{}); err != nil {
		t.Errorf("creating an object of the default binding: %v", err)
	}
	bound, err := a.client(t, child).Resource(kcptest.APIBindings).List(kcptest.Context(t), metav1.ListOptions{})
	if err != nil || len(bound.Items) == 0 {
		t.Errorf("the workspace has the bindings %v, %v", bound, err)
	}
}

// The issuer of a type that was created a moment ago on another shard authenticates users in a new workspace: their tokens are not invalid.
func TestAnIssuerThatAnotherShardHasJustConfiguredIsTrusted(t *testing.T) {
	issuer, err := kcptest.NewIssuer(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(issuer.Close)
	token, err := issuer.Token(issuer.Claims(nil))
	if err != nil {
		t.Fatal(err)
	}
	jane := kcptest.User{Name: "jane", Token: token}
	for _, c := range [][2]string{{"root", "shard-1"}, {"shard-1", "shard-2"}, {"shard-2", "root"}} {
		t.Run(c[0]+" to "+c[1], func(t *testing.T) {
			t.Parallel()
			for range 5 {
				name, holder := workspaceOn(t, shard(t, c[0]))
				create(t, holder.Dynamic(t, kcptest.Masters), strings.TrimPrefix(issuer.TrustedBy("tenanted", issuer.CA()), "---\n"))
				ws := kcptest.Workspace("tenanted-"+kcptest.Suffix(), "root:"+name, "tenanted")
				cluster := shard(t, c[1]).Server().Named(created(t, shard(t, c[1]), ws))
				_, err := cluster.Kube(t, jane).CoreV1().ConfigMaps("default").List(kcptest.Context(t), metav1.ListOptions{})
				kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
			}
		})
	}
}

// While the cache server is down, what another shard has is not absent: the answer is 503, or that of the shard that holds it.
func TestWhatDoesNotArriveIsUnavailableAndNotAbsent(t *testing.T) {
	one := shard(t, "shard-1")
	name, holder := workspaceOn(t, one)
	_, consumer := workspaceOn(t, shard(t, "shard-2"))
	holder.Grant(t, kcptest.Alice, "cluster-admin")
	consumer.Grant(t, kcptest.Alice, "cluster-admin")
	startCache := stop(t, installation.Cache)
	create(t, holder.Dynamic(t, kcptest.Masters), baseType+"---"+kcptest.WidgetsExport)
	consumer.Grant(t, kcptest.Bob, "cluster-admin")
	// Requests are raw, because client-go retries 503.
	want := func(user kcptest.User, typed string, code int, text string) {
		t.Helper()
		body := fmt.Sprintf(`{"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": "user-%s"},
			"spec": {"type": {"path": "root:%s", "name": %q}}}`, kcptest.Suffix(), name, typed)
		header := http.Header{"Content-Type": {"application/json"}}
		got, answer := consumer.Raw(t, user, http.MethodPost, "/clusters/"+consumer.Name+"/apis/tenancy.kcp.io/v1alpha1/workspaces", header, body)
		if got != code || !strings.Contains(string(answer), text) {
			t.Errorf("a workspace of type %s for %s: got %d %s, want %d %s", typed, user.Name, got, answer, code, text)
		}
	}
	want(kcptest.Alice, "base", http.StatusServiceUnavailable, "has not received it yet")
	want(kcptest.Alice, "absent", http.StatusForbidden, "no such type")
	want(kcptest.Bob, "base", http.StatusForbidden, "missing verb='use'")
	alice, binding := consumer.Dynamic(t, kcptest.Alice), kcptest.BindingTo(kcptest.At("", nil).Named("root:"+name), "widgets")
	if _, err := alice.Resource(kcptest.APIBindings).Create(kcptest.Context(t), binding, metav1.CreateOptions{}); err != nil {
		t.Errorf("a binding waits for its export: %v", err)
	}
	startShard := stop(t, one)
	want(kcptest.Alice, "base", http.StatusServiceUnavailable, "does not respond")
	startShard()
	startCache()
	kcptest.Eventually(t, "the type arrives", func(ctx context.Context) error {
		_, err := alice.Resource(kcptest.Workspaces).Create(ctx, kcptest.Workspace("user", "root:"+name, "base"), metav1.CreateOptions{})
		return err
	})
	kcptest.WaitForStatus(t, consumer.Objects(t, kcptest.APIBindings), "widgets", "Bound", "phase")
}
