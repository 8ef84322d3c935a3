package sharding

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// A workspace moves while it waits for the controller of its type, which then sees it at the destination only.
func TestAnInitializingWorkspaceMoves(t *testing.T) {
	exporter, provider := workspaceOn(t, shard(t, "shard-2"))
	exporting(t, provider)
	name, holder := workspaceOn(t, shard(t, "shard-1"))
	holder.Apply(t, stepped)
	holder.Kubectl(t, "patch", "workspacetype", "stepped", "--type=merge", "--patch",
		fmt.Sprintf(`{"spec": {"defaultAPIBindings": [{"path": "root:%s", "export": "widgets"}]}}`, exporter))
	id := holder.Name + ":stepped"
	for _, c := range [][2]string{{"shard-1", "shard-2"}, {"root", "shard-1"}, {"shard-2", "root"}} {
		t.Run(c[0]+" to "+c[1], func(t *testing.T) {
			from, to := shard(t, c[0]), shard(t, c[1])
			ws := kcptest.Workspace("stepped-"+kcptest.Suffix(), "root:"+name, "stepped")
			cluster := created(t, from, ws)
			waits := func() {
				t.Helper()
				kcptest.WaitForStatus(t, root().Objects(t, kcptest.Workspaces), ws.GetName(), "Initializing", "phase")
			}
			waits()
			ended(t, move(t, cluster, to.Name), "Completed")
			isOn(t, ws.GetName(), to.Name)
			waits()
			seesNone(t, from.Server(), "initializingworkspaces", id)
			step{"initializingworkspaces", "initializers"}.finish(t, to, id, cluster)
			kcptest.WaitForStatus(t, root().Objects(t, kcptest.Workspaces), ws.GetName(), "Ready", "phase")
			inside := through(0, "root:"+ws.GetName())
			_, err := inside.Objects(t, widgets).Namespace("default").Create(kcptest.Context(t), widget(t, "first", 7), metav1.CreateOptions{})
			if err != nil {
				t.Errorf("creating an object of the default binding: %v", err)
			}

			ended(t, move(t, cluster, from.Name), "Completed")
			workspaces := root().Objects(t, kcptest.Workspaces)
			if err := workspaces.Delete(kcptest.Context(t), ws.GetName(), metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			step{"terminatingworkspaces", "terminators"}.finish(t, from, id, cluster)
			kcptest.WaitUntilGone(t, workspaces, ws.GetName())
		})
	}
}

// seesNone waits until the controller of a type sees no logical cluster at a server.
func seesNone(t *testing.T, server *kcptest.Server, view, id string) {
	t.Helper()
	all := server.DynamicAt(t, kcptest.Alice, "/services/"+view+"/"+id+"/clusters/*").Resource(kcptest.LogicalClusters)
	kcptest.Eventually(t, "the origin shows no waiting workspace", func(ctx context.Context) error {
		list, err := all.List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("it shows %d", len(list.Items))
		}
		return err
	})
}

// The Workspace object of a mount moves with its parent. What is behind it can move, too.
func TestAMountMovesWithItsParent(t *testing.T) {
	name, parent := workspaceOn(t, shard(t, "shard-1"))
	behindName, behind := workspaceOn(t, shard(t, "shard-2"))
	parent.Grant(t, kcptest.Alice, "view")
	behind.Grant(t, kcptest.Alice, "cluster-admin")
	mounted(t, parent, root().GetWorkspace(t, behindName).Spec.URL)
	path := "root:" + name + ":mounted"
	serves := func() {
		t.Helper()
		for n := range installation.Proxies {
			kcptest.Eventually(t, "the mount is served", func(ctx context.Context) error {
				_, err := through(n, path).Kube(t, kcptest.Alice).CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
				return err
			})
		}
	}
	serves()
	refuses(t, path)
	ended(t, move(t, parent.Name, "shard-2"), "Completed")
	isOn(t, name, "shard-2")
	serves()
	ended(t, move(t, behind.Name, "root"), "Completed")
	serves()
	another, at := workspaceOn(t, shard(t, "shard-1"))
	at.Grant(t, kcptest.Alice, "view")
	lead(t, through(0, "root:"+name), root().GetWorkspace(t, another).Spec.URL)
	at.Kubectl(t, "create", "configmap", "sign")
	kcptest.Eventually(t, "the mount follows its object after the move", func(ctx context.Context) error {
		_, err := through(1, path).Kube(t, kcptest.Alice).CoreV1().ConfigMaps("default").Get(ctx, "sign", metav1.GetOptions{})
		return err
	})
}

// refuses checks that a mount itself cannot be moved.
func refuses(t *testing.T, path string) {
	t.Helper()
	kubectl := through(0, "root").Command(t, "kubectl", kcptest.Masters).WithPlugins(t)
	want := "workspace " + path + ": it is a mount: it has no logical cluster, and moves with its parent workspace."
	if out := kubectl.Fail(t, "kcp", "move", ":"+path, "--to=shard-2"); !strings.Contains(out, want) {
		t.Errorf("got %q, want %q", out, want)
	}
}
