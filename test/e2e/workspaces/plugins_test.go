package workspaces

import (
	"strings"
	"testing"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// TestPluginsFollowDocumentation runs the commands of the documentation with kubectl and its plugins.
func TestPluginsFollowDocumentation(t *testing.T) {
	t.Parallel()
	org := server.Organization(t, kcptest.Alice)
	kubectl := org.Command(t, "kubectl", kcptest.Alice).WithPlugins(t)
	contains := func(text string, wanted ...string) {
		t.Helper()
		for _, want := range wanted {
			if !strings.Contains(text, want) {
				t.Errorf("%q is not in:\n%s", want, text)
			}
		}
	}
	contains(kubectl.Run(t, "create", "workspace", "team-a", "--enter"), `Workspace "team-a"`, `Current workspace is "`+org.Name+`:team-a"`)
	kubectl.Run(t, "create", "workspace", "staging")
	kubectl.Run(t, "create", "workspace", "production")
	contains(kubectl.Run(t, "get", "namespaces"), "default")
	contains(kubectl.Run(t, "ws", "staging"), org.Name+":team-a:staging")
	contains(kubectl.Run(t, "ws", ".."), org.Name+":team-a")
	contains(kubectl.Run(t, "ws", "-"), org.Name+":team-a:staging")
	contains(kubectl.Run(t, "ws", ":"+org.Name+":team-a:production"), org.Name+":team-a:production")
	contains(kubectl.Run(t, "ws", "."), org.Name+":team-a:production")
	contains(kubectl.Run(t, "ws", ":"+org.Name), org.Name)
	contains(kubectl.Run(t, "ws", "tree"), "team-a", "├── production", "└── staging")
	contains(kubectl.Run(t, "ws", "~"), "user:"+kcptest.Alice.Name)
	contains(kubectl.Fail(t, "ws", ":"+org.Name+":missing"), "missing")
	contains(kubectl.Fail(t, "create", "workspace", "Bad_Name"), "Bad_Name")

	// The same program does shell completion, under names that kubectl looks up.
	contains(kubectl.Run(t, "__complete", "ws", ":"+org.Name+":team-a:s"), ":"+org.Name+":team-a:staging")
	contains(kubectl.Run(t, "__complete", "workspace", "use", ":"+org.Name+":te"), ":"+org.Name+":team-a")
	contains(kubectl.Run(t, "__complete", "kcp", "workspace", "tree", "-w", ":"+org.Name+":te"), ":"+org.Name+":team-a")
	contains(kubectl.Run(t, "workspace", "current", "--short", "-w", ":"+org.Name), org.Name)
	contains(kubectl.Run(t, "kcp", "workspace", "current", "--short", "-w", ":"+org.Name), org.Name)

	// Another user is refused, and gets no information about what exists.
	stranger := org.Command(t, "kubectl", kcptest.Stranger).WithPlugins(t)
	if text := stranger.Fail(t, "get", "workspaces"); strings.Contains(text, "team-a") {
		t.Errorf("output for a user without access: %s", text)
	}
	stranger.Fail(t, "ws", "team-a")
}
