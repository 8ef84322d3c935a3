package sharding

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/test/e2e/kcptest"
	"github.com/kcplane/kcp/test/sharded"
)

// definition is the definition of a resource in a workspace.
const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: books.example.org}
spec:
  group: example.org
  names: {plural: books, singular: book, kind: Book, listKind: BookList}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {title: {type: string}}}}}}
`

const book = `
apiVersion: example.org/v1
kind: Book
metadata: {name: first, namespace: demo}
spec: {title: Shards}
`

// workspaceOn creates a workspace in root on a shard, and returns its name and its logical cluster at that shard.
func workspaceOn(t *testing.T, s *sharded.Process) (name string, cluster *kcptest.Cluster) {
	t.Helper()
	name = "ws-" + kcptest.Suffix()
	root().CreateWorkspace(t, kcptest.Masters, kcptest.On(s.Name, kcptest.Workspace(name, "", "")))
	ws := root().GetWorkspace(t, name)
	if got := ws.Annotations["core.kcp.io/shard"]; got != s.Name {
		t.Errorf("workspace %s is on shard %q, want %q", name, got, s.Name)
	}
	return name, s.Server().Named(ws.Spec.Cluster)
}

func TestWorkspacesAreUsedOnTheShardThatTheySelect(t *testing.T) {
	for _, s := range installation.Shards {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			name, cluster := workspaceOn(t, s)
			cluster.Kubectl(t, "create", "namespace", "demo")
			cluster.Kubectl(t, "create", "configmap", "settings", "--namespace=demo", "--from-literal=color=blue")
			cluster.Apply(t, definition)
			cluster.WaitForDefinition(t, "books.example.org")
			cluster.Apply(t, book)
			if title := cluster.Kubectl(t, "get", "book", "first", "--namespace=demo", "--output=jsonpath={.spec.title}"); title != "Shards" {
				t.Errorf("the title of the book is %q", title)
			}
			if _, err := cluster.Kube(t, kcptest.Alice).CoreV1().ConfigMaps("demo").List(kcptest.Context(t), metav1.ListOptions{}); err == nil {
				t.Error("a user without a role reads ConfigMaps")
			}
			cluster.Grant(t, kcptest.Alice, "view")

			workspaces := root().Objects(t, kcptest.Workspaces)
			if err := workspaces.Delete(kcptest.Context(t), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			kcptest.WaitUntilGone(t, workspaces, name)
			kcptest.Eventually(t, "the logical cluster is gone", func(ctx context.Context) error {
				_, err := cluster.Dynamic(t, kcptest.Masters).Resource(kcptest.LogicalClusters).Get(ctx, "cluster", metav1.GetOptions{})
				return kcptest.Gone(err)
			})
		})
	}
}
