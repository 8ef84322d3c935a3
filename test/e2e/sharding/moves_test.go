package sharding

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

var migrations = schema.GroupVersionResource{Group: "migration.kcp.io", Version: "v1alpha1", Resource: "logicalclustermigrations"}

// move creates the migration of a logical cluster to a shard, and returns its name.
func move(t *testing.T, cluster, shard string) (name string) {
	t.Helper()
	name = "move-" + kcptest.Suffix()
	obj := kcptest.Parse(t, fmt.Sprintf(`{apiVersion: migration.kcp.io/v1alpha1, kind: LogicalClusterMigration, metadata: {name: %s},
  spec: {logicalCluster: %s, destinationShard: %s}}`, name, cluster, shard))
	if _, err := root().Objects(t, migrations).Create(kcptest.Context(t), obj, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return name
}

// ended waits until a migration has a final phase.
func ended(t *testing.T, name, phase string) {
	t.Helper()
	kcptest.Eventually(t, "the migration has ended", func(ctx context.Context) error {
		obj, err := root().Objects(t, migrations).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		status, _ := obj.Object["status"].(map[string]any)
		if status["phase"] != "Completed" && status["phase"] != "Failed" {
			return fmt.Errorf("its status is %v", status)
		}
		if status["phase"] != phase {
			t.Fatalf("the phase is not %s: %v", phase, status)
		}
		return nil
	})
}

func TestAWorkspaceMovesToAnotherShardAndBack(t *testing.T) {
	one, two := shard(t, "shard-1"), shard(t, "shard-2")
	name, at := workspaceOn(t, one)
	at.Kubectl(t, "create", "configmap", "settings", "--namespace=default", "--from-literal=color=blue")
	path := through(0, "root:"+name)
	for _, destination := range []string{two.Name, one.Name, "root", two.Name} {
		ended(t, move(t, at.Name, destination), "Completed")
		if got := path.Kubectl(t, "get", "configmap", "settings", "--namespace=default", "--output=jsonpath={.data.color}"); got != "blue" {
			t.Errorf("on shard %s, the object has the value %q", destination, got)
		}
		ws := root().GetWorkspace(t, name)
		if got := ws.Annotations["core.kcp.io/shard"]; got != destination {
			t.Errorf("the Workspace is on shard %q, want %q", got, destination)
		}
		path.Kubectl(t, "create", "configmap", "on-"+destination+"-"+kcptest.Suffix(), "--namespace=default")
	}
}
