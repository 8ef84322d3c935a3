package command

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	migrationv1alpha1 "github.com/kcplane/kcp/api/migration/v1alpha1"
)

func TestMoveWorkspaces(t *testing.T) {
	server := forest(t)
	u := at(t, server, "/clusters/root:org")
	u.fails("workspaces move only in an installation of several shards", "kcp", "move", "team-a", "--to", "west")
	var moved []string
	server.Migrating = func(m *migrationv1alpha1.LogicalClusterMigration) {
		if m.Status.Phase == migrationv1alpha1.PhaseMigrating {
			moved = append(moved, m.Spec.LogicalCluster)
			m.Status.Phase, m.Status.EntriesCopied = migrationv1alpha1.PhaseCompleted, 7
			return
		}
		m.Status.Phase, m.Status.EntriesCopied = migrationv1alpha1.PhaseMigrating, 3
	}
	u.fails("set either --to with the name of a shard, or --cancel", "kcp", "move", "team-a")
	u.fails("requires one argument, the workspace", "kcp", "move", "--to", "west")
	u.fails("has no parent, and does not move", "kcp", "move", ":root", "--to", "west")
	u.prints("Workspace root:org:team-a:app would move from shard east to west (dry run).\nWorkspace root:org:team-a would move from shard east to west (dry run).",
		"kcp", "move", "team-a", "--to", "west", "--recursive", "--dry-run")
	for _, flags := range [][]string{{"--dry-run"}, {}} {
		u.fails(`there is no shard "nowhere"`, append([]string{"kcp", "move", "team-a", "--to", "nowhere"}, flags...)...)
	}
	if len(moved) > 0 {
		t.Errorf("a dry run moved %v", moved)
	}
	stdout, stderr, err := u.run("kcp", "move", "team-a", "--to", "west", "-R")
	if want := "Workspace root:org:team-a:app moved from shard east to west: 7 objects.\nWorkspace root:org:team-a moved from shard east to west: 7 objects.\n"; err != nil ||
		stdout != want {
		t.Errorf("printed %q, %v; want %q", stdout, err, want)
	}
	if want := "Workspace root:org:team-a: Migrating, 3 objects copied\n"; !strings.Contains(stderr, want) {
		t.Errorf("progress is %q", stderr)
	}
	if want := fmt.Sprint([]string{server.Cluster("root:org:team-a:app"), server.Cluster("root:org:team-a")}); fmt.Sprint(moved) != want {
		t.Errorf("moved %v, want %s: the leaves first", moved, want)
	}
	stdout, _, err = u.run("kcp", "move", "team-b", "--to", "west", "-o", "json")
	if err != nil || !strings.Contains(stdout, `"phase": "Completed"`) || strings.Contains(stdout, "moved from") {
		t.Errorf("printed %q, %v", stdout, err)
	}
}

func TestAMoveThatFailsSaysWhy(t *testing.T) {
	server := forest(t)
	u := at(t, server, "/clusters/root:org")
	server.Migrating = func(m *migrationv1alpha1.LogicalClusterMigration) {
		m.Status.Phase = migrationv1alpha1.PhaseFailed
		m.Status.Conditions = []corev1alpha1.Condition{
			{Type: migrationv1alpha1.Completed, Status: metav1.ConditionFalse, Message: "there is no shard west"},
		}
	}
	u.fails("failed: there is no shard west", "kcp", "move", "team-a", "--to", "west")
	u.prints("Workspace root:org:team-b has no running migration.", "kcp", "move", "team-b", "--cancel")
}
