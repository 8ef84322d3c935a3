package sharding

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/test/e2e/kcptest"
	"github.com/kcplane/kcp/test/sharded"
)

func TestATreeOverThreeShardsIsDeletedAsAWhole(t *testing.T) {
	fresh(t)
	path := "root"
	top := ""
	var clusters []*kcptest.Cluster
	for _, s := range []*sharded.Process{shard(t, "shard-1"), shard(t, "shard-2"), installation.Root()} {
		name := "level-" + kcptest.Suffix()
		through(0, path).CreateWorkspace(t, kcptest.Masters, kcptest.On(s.Name, kcptest.Workspace(name, "", "")))
		cluster := s.Server().Named(through(0, path).GetWorkspace(t, name).Spec.Cluster)
		cluster.Kubectl(t, "create", "configmap", "settings", "--from-literal=color=blue")
		clusters = append(clusters, cluster)
		if top == "" {
			top = name
		}
		path += ":" + name
	}
	workspaces := through(0, "root").Objects(t, kcptest.Workspaces)
	if err := workspaces.Delete(kcptest.Context(t), top, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.WaitUntilGone(t, workspaces, top)
	for _, cluster := range clusters {
		kcptest.Eventually(t, "logical cluster "+cluster.Name+" is gone", func(ctx context.Context) error {
			_, err := cluster.Objects(t, kcptest.LogicalClusters).Get(ctx, "cluster", metav1.GetOptions{})
			return kcptest.Gone(err)
		})
	}
}
