package sharding

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/test/e2e/kcptest"
	"github.com/kcplane/kcp/test/sharded"
)

// contentOf returns the objects in the namespace default of a cluster as they are stored.
func contentOf(t *testing.T, cluster *kcptest.Cluster) []map[string]any {
	t.Helper()
	var all []map[string]any
	for _, resource := range []schema.GroupVersionResource{
		corev1.SchemeGroupVersion.WithResource("configmaps"), corev1.SchemeGroupVersion.WithResource("serviceaccounts"), widgets,
	} {
		list, err := cluster.Objects(t, resource).Namespace("default").List(kcptest.Context(t), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range list.Items {
			if object.GetName() != "kube-root-ca.crt" { // the server derives it from --root-ca-file
				all = append(all, object.Object)
			}
		}
	}
	return all
}

// A server that is not sharded becomes the root shard by its flags. What it has stored stays as it is: workspaces, tokens, roles, homes, and
// exports with their consumers. Then other shards have a part in it.
func TestAServerWithDataBecomesTheRootShard(t *testing.T) {
	o := sharded.Options{Shards: 1, Proxies: 1}
	o.Users, o.ProxyUsers = sharded.TestUsers()
	i, err := sharded.Prepare(t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(i.Root().Directory, filepath.Join(dir, "kcp")); err != nil {
		t.Fatal(err)
	}
	alone := kcptest.StartIn(t, dir)
	org := alone.Organization(t, kcptest.Alice)
	exporting(t, org)
	team := org.CreateWorkspace(t, kcptest.Alice, kcptest.Workspace("team", "", ""))
	team.Bind(t, org, "widgets")
	if _, err := team.Objects(t, widgets).Namespace("default").Create(kcptest.Context(t), widget(t, "first", 7), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	team.Kubectl(t, "create", "configmap", "settings", "--from-literal=color=blue")
	team.Kubectl(t, "create", "clusterrolebinding", "robots", "--clusterrole=view", "--serviceaccount=default:default")
	token, err := team.Kube(t, kcptest.Masters).CoreV1().ServiceAccounts("default").CreateToken(kcptest.Context(t), "default",
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	home, err := homeOf(kcptest.Context(t), alone.Named("root").Config(kcptest.Alice))
	if err != nil {
		t.Fatal(err)
	}
	before := contentOf(t, team)
	if len(before) < 3 {
		t.Fatalf("the server has only %v", before)
	}
	if err := alone.Stop(); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := i.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := i.Begin(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, contentOf(t, i.Root().Server().Named(team.Name))); diff != "" {
		t.Errorf("the root shard has other objects than the server before: %s", diff)
	}
	proxy := i.Proxies[0].Server()
	robot := kcptest.User{Name: "system:serviceaccount:default:default", Token: token.Status.Token}
	for _, user := range []kcptest.User{kcptest.Alice, robot} {
		read, err := proxy.Named(team.Name).Kube(t, user).CoreV1().ConfigMaps("default").Get(kcptest.Context(t), "settings", metav1.GetOptions{})
		if err != nil || read.Data["color"] != "blue" {
			t.Errorf("%s reads %v, %v", user.Name, read, err)
		}
	}
	if found, err := homeOf(kcptest.Context(t), proxy.Named("root").Config(kcptest.Alice)); err != nil || found.Spec.Cluster != home.Spec.Cluster {
		t.Errorf("the home of Alice is %v, %v, and was %s", found, err, home.Spec.Cluster)
	}
	useFrom(t, i, org.Name)
}

// useFrom creates a workspace on the other shard in an organization that was there before, and uses an export of the organization in it.
func useFrom(t *testing.T, i *sharded.Installation, organization string) {
	t.Helper()
	org := i.Proxies[0].Server().Named(organization)
	kcptest.WaitForCondition(t, i.Root().Server().Named("root").Objects(t, shards), i.Shards[1].Name, "Ready", "True", "")
	far := org.CreateWorkspace(t, kcptest.Alice, kcptest.On(i.Shards[1].Name, kcptest.Workspace("far", "", "")))
	if got := org.GetWorkspace(t, "far").Annotations["core.kcp.io/shard"]; got != i.Shards[1].Name {
		t.Errorf("the new workspace is on shard %q", got)
	}
	far.Bind(t, org, "widgets")
	kcptest.Eventually(t, "Alice creates a widget on the other shard", func(ctx context.Context) error {
		objects := far.Dynamic(t, kcptest.Alice).Resource(widgets).Namespace("default")
		_, err := objects.Create(ctx, widget(t, "far", 7), metav1.CreateOptions{})
		return err
	})
}
