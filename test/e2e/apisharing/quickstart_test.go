package apisharing

import (
	"strings"
	"testing"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

func TestQuickstart(t *testing.T) {
	t.Parallel()
	here := server.Organization(t, kcptest.Alice)
	kubectl := here.Command(t, "kubectl", kcptest.Alice).WithPlugins(t)
	lines := func(text string) []string { return strings.Split(strings.TrimSpace(text), "\n") }
	expect := func(got string, suffixes ...string) {
		t.Helper()
		all := lines(got)
		if len(all) < len(suffixes) {
			t.Fatalf("got only this output:\n%s", got)
		}
		for i, want := range suffixes {
			if !strings.HasSuffix(all[i], want) {
				t.Errorf("line %d is %q, want it to end with %q", i, all[i], want)
			}
		}
	}
	const dry = ": not done (dry run)"
	expect(kubectl.Run(t, "kcp", "quickstart", "--dry-run", "--with-samples"), "-provider"+dry, "-provider"+dry, "-provider"+dry, "-consumer"+dry, "-consumer"+dry, "-consumer"+dry)
	if got := kubectl.Run(t, "get", "workspaces", "-o", "name"); got != "" {
		t.Errorf("dry run created %s", got)
	}
	made := kubectl.Run(t, "kcp", "quickstart", "--with-samples")
	expect(made, "-provider: created", ": created", ": created", "-consumer: created", ": created, bound", ": created", "", "Next steps:",
		"quickstart-consumer", "kubectl explain cowboys.spec", "kubectl get cowboys")
	expect(kubectl.Run(t, "kcp", "quickstart", "--with-samples"), ": exists", ": exists", ": exists", ": exists", ": exists, bound", ": exists")
	consumer := server.Named(strings.TrimPrefix(strings.Fields(lines(made)[8])[2], ":"))
	if got := consumer.Command(t, "kubectl", kcptest.Alice).Run(t, "get", "cowboys"); !strings.Contains(got, "draw faster than his shadow") {
		t.Errorf("unexpected content of the workspace:\n%s", got)
	}

	tree := []string{"kcp", "quickstart", "--scenario=workspaces", "--tree-count=4", "--tree-depth=2"}
	expect(kubectl.Run(t, tree...), "quickstart-tree: created", ": created", ": created", ": created", ": created")
	expect(kubectl.Run(t, tree...), "quickstart-tree: exists", ": exists", ": exists", ": exists", ": exists")

	// The cleanup deletes only what the quick start created.
	kubectl.Run(t, "create", "workspace", "own-consumer")
	if out := kubectl.Fail(t, "kcp", "quickstart", "--cleanup", "--name-prefix=own"); !strings.Contains(out, "was not created by kubectl kcp quickstart") {
		t.Errorf("deleting a workspace that the quick start did not create: got %s", out)
	}
	expect(kubectl.Run(t, "kcp", "quickstart", "--cleanup"), "-consumer: deleted", "-provider: deleted")
	expect(kubectl.Run(t, "kcp", "quickstart", "--cleanup"), "-consumer: nothing to delete", "-provider: nothing to delete")
	expect(kubectl.Run(t, "kcp", "quickstart", "--cleanup", "--scenario=workspaces"), "-tree: deleted")
	if got := kubectl.Run(t, "get", "workspaces", "-o", "name"); strings.TrimSpace(got) != "workspace.tenancy.kcp.io/own-consumer" {
		t.Errorf("remaining workspaces: %s", got)
	}
}
