package sharding

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/test/e2e/kcptest"
	"github.com/kcplane/kcp/test/sharded"
)

// plugin returns kubectl with the plugins, at the root shard of an installation as an administrator.
func plugin(t *testing.T, i *sharded.Installation) kcptest.Command {
	t.Helper()
	return i.Root().Server().Named("root").Command(t, "kubectl", kcptest.Masters).WithPlugins(t)
}

// finding is what kubectl kcp check prints.
type finding struct {
	Kind, Cluster, Shard, Workspace, ClusterUID string
}

// check returns what kubectl kcp check finds.
func check(t *testing.T, i *sharded.Installation) []finding {
	t.Helper()
	var found []finding
	if err := json.Unmarshal([]byte(plugin(t, i).Try(t, "kcp", "check", "--output=json")), &found); err != nil {
		t.Fatal(err)
	}
	return found
}

// wantFindings fails the test unless kubectl kcp check finds something of a kind for each Workspace, and nothing else.
func wantFindings(t *testing.T, i *sharded.Installation, want map[string]string) (found []finding) {
	t.Helper()
	found = check(t, i)
	for _, f := range found {
		if want[f.Workspace] != f.Kind {
			t.Errorf("found %+v", f)
		}
	}
	if len(found) != len(want) {
		t.Errorf("found %+v, want %v", found, want)
	}
	return found
}

// copyDirectory copies the data of a stopped process.
func copyDirectory(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "--archive", from, to).CombinedOutput(); err != nil {
		t.Fatalf("copying %s: %v: %s", from, err, out)
	}
}

func TestAShardWithLogicalClustersIsNotDeleted(t *testing.T) {
	t.Parallel()
	s := shard(t, "shard-1")
	workspaceOn(t, s)
	err := root().Objects(t, shards).Delete(kcptest.Context(t), s.Name, metav1.DeleteOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	if err == nil || !strings.Contains(err.Error(), "logical clusters: delete or move them first") {
		t.Errorf("got %v", err)
	}
}

// A shard is restored from an earlier state: the others go on, what is lost is unavailable, what was deleted does not come back, and nothing
// is deleted on its word until kubectl kcp check finds nothing.
func TestARestoredShardIsComparedBeforeItIsTrusted(t *testing.T) {
	s, workspaces := shard(t, "shard-2"), root().Objects(t, kcptest.Workspaces)
	undisturbed := settled(t, shard(t, "shard-1"))
	_, kept := workspaceOn(t, s)
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}}
	if _, err := kept.Kube(t, kcptest.Masters).CoreV1().ConfigMaps("default").Create(kcptest.Context(t), settings, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	deleted, _ := workspaceOn(t, s)
	wantFindings(t, installation, nil)

	start := stop(t, s)
	backup := filepath.Join(t.TempDir(), "backup")
	copyDirectory(t, s.Directory, backup)
	start()
	lost, _ := workspaceOn(t, s)
	if err := workspaces.Delete(kcptest.Context(t), deleted, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.WaitUntilGone(t, workspaces, deleted)
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	if err := os.RemoveAll(s.Directory); err != nil {
		t.Fatal(err)
	}
	copyDirectory(t, backup, s.Directory)
	if err := s.StartWith("--adopt-shard"); err != nil {
		t.Fatal(err)
	}

	kcptest.WaitForCondition(t, root().Objects(t, shards), s.Name, "Trusted", "False", "Restored")
	kcptest.WaitForStatus(t, workspaces, lost, "Unavailable", "phase")
	wantLostAndDeleted(t, lost, deleted)
	if _, err := kept.Kube(t, kcptest.Masters).CoreV1().ConfigMaps("default").Get(kcptest.Context(t), settings.Name, metav1.GetOptions{}); err != nil {
		t.Errorf("a restored workspace: %v", err)
	}
	found := wantFindings(t, installation, map[string]string{"root|" + lost: "Lost", "root|" + deleted: "Orphaned"})

	if err := workspaces.Delete(kcptest.Context(t), lost, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.WaitForCondition(t, workspaces, lost, "WorkspaceContentDeleted", "False", "WaitingForShard")
	for _, f := range found {
		if f.Kind == "Orphaned" {
			plugin(t, installation).Run(t, "kcp", "orphans", "--delete="+f.ClusterUID, "--yes")
		}
	}
	kcptest.Eventually(t, "kubectl kcp check finds nothing", func(context.Context) error {
		if found := check(t, installation); len(found) > 0 {
			return fmt.Errorf("found %+v", found)
		}
		return nil
	})
	kcptest.WaitForCondition(t, root().Objects(t, shards), s.Name, "Trusted", "True", "")
	undisturbed.undisturbed("another shard restored")
}

// wantLostAndDeleted checks what users see of a lost workspace, and of one that was deleted after the snapshot.
func wantLostAndDeleted(t *testing.T, lost, deleted string) {
	t.Helper()
	for name, reason := range map[string]metav1.StatusReason{lost: metav1.StatusReasonServiceUnavailable, deleted: metav1.StatusReasonForbidden} {
		kcptest.Eventually(t, "requests for "+name+" are refused with "+string(reason), func(ctx context.Context) error {
			_, err := through(0, "root:"+name).Kube(t, kcptest.Alice).CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
			return wantReason(err, reason)
		})
	}
}
