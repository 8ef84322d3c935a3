package command

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/cli/fake"
)

func TestCreatingAWorkspace(t *testing.T) {
	u := at(t, forest(t), "/clusters/root:org")
	before := u.file()
	u.prints("Workspace \"new\" (type root:universal) created. Waiting for it to be ready...\nWorkspace \"new\" (type root:universal) is ready to use.",
		"create-workspace", "new")
	if u.file() != before {
		t.Error("the kubeconfig is changed")
	}
	u.prints("workspace.tenancy.kcp.io/below", "ws", "create", "below", "-w", "new", "-o", "name")
	u.fails(`workspace "new" already exists in root:org; --ignore-existing accepts that`, "create-workspace", "new")
	u.prints("Workspace \"new\" (type root:universal) already exists.\nWorkspace \"new\" (type root:universal) is ready to use.",
		"kcp", "workspace", "create", "new", "--ignore-existing", "--type", "root:universal")
	u.fails(`workspace "new" already exists in root:org (type root:universal), and not of the type root:team`,
		"create-workspace", "new", "--ignore-existing", "--type", "root:team")
	u.fails(`--ignore-existing needs to know which type "team" is`, "create-workspace", "new", "--ignore-existing", "--type", "team")
	u.fails(`give "b", and --workspace "a" for where it is to be`, "create-workspace", "a:b")
	for _, bad := range []string{"Bad", "a_b", "a-", "a.b", strings.Repeat("a", 64)} {
		u.fails("cannot be the name of a workspace: want 1 to 63 lower case letters", "create-workspace", bad)
	}
	u.fails(`takes the name of the new workspace and nothing else`, "create-workspace")
	u.fails(`--location-selector "a b" is no selector`, "create-workspace", "x", "--location-selector", "a b")
	u.fails(`access to workspace "root:closed" denied`, "create-workspace", "x", "-w", ":root:closed", "--ignore-existing")
	u.fails(`workspace "root:absent" not found: root has the workspaces`, "create-workspace", "x", "-w", ":root:absent")
	stdout, _, err := u.run("create-workspace", "shown", "-o", "json")
	if err != nil || !strings.Contains(stdout, `"kind": "Workspace"`) || strings.Contains(stdout, "ready to use") {
		t.Errorf("%q, %v", stdout, err)
	}
}

func TestANewWorkspaceIsEnteredAndGetsAContext(t *testing.T) {
	u := at(t, forest(t), "/clusters/root:org")
	u.prints(`Workspace "new" (type root:team) created. Waiting for it to be ready...
Workspace "new" (type root:team) is ready to use.
Created context "my-new".
Current workspace is "root:org:new" (type root:team).`, "create-workspace", "new", "--type", "team", "--enter", "--create-context", "my-new")
	u.isAt("/clusters/root:org:new")
	config, err := clientcmd.LoadFromFile(u.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if c := config.Contexts["my-new"]; c == nil || c.AuthInfo != "me" || config.Clusters[c.Cluster].Server != u.server.URL+"/clusters/root:org:new" {
		t.Errorf("the new context is %v", c)
	}
	u.fails(`already has a context "my-new"`, "create-workspace", "other", "--create-context", "my-new")
	if _, _, err := u.run("ws", "other"); err == nil {
		t.Error("the workspace was created although its context could not be")
	}
}

func TestWhatIsSentIsWhatTheFlagsSay(t *testing.T) {
	u := at(t, forest(t), "/clusters/root:org")
	u.server.Creating = func(ws *tenancyv1alpha1.Workspace) error {
		if ws.Spec.Type == nil || *ws.Spec.Type != (tenancyv1alpha1.WorkspaceTypeReference{Name: "team", Path: "root:types"}) {
			return apierrors.NewBadRequest(fmt.Sprintf("type %v", ws.Spec.Type))
		}
		if ws.Spec.Location == nil || ws.Spec.Location.Selector.MatchLabels["region"] != "eu" {
			return apierrors.NewBadRequest(fmt.Sprintf("location %v", ws.Spec.Location))
		}
		return nil
	}
	if _, _, err := u.run("create-workspace", "new", "--type", ":root:types:team", "--location-selector", "region=eu"); err != nil {
		t.Error(err)
	}
	u.fails(`workspace "other" cannot be created in root:org: type <nil>`, "create-workspace", "other")
}

func TestProgressGoesToStandardError(t *testing.T) {
	u := at(t, forest(t), "/clusters/root")
	u.server.Creating = func(ws *tenancyv1alpha1.Workspace) error {
		ws.Status.Phase = corev1alpha1.LogicalClusterPhaseScheduling
		return nil
	}
	u.server.Hold = true
	u.server.Watched = func(n int, ws *tenancyv1alpha1.Workspace) []fake.Event {
		if n == 0 {
			return []fake.Event{{Type: "MODIFIED", Object: fake.State(ws, corev1alpha1.LogicalClusterPhaseInitializing, "root:slow")}}
		}
		return []fake.Event{{Type: "MODIFIED", Object: fake.State(ws, corev1alpha1.LogicalClusterPhaseReady)}}
	}
	stdout, stderr, err := u.run("create-workspace", "new")
	if err != nil || !strings.HasSuffix(stdout, "is ready to use.\n") {
		t.Errorf("%q, %v", stdout, err)
	}
	if want := "Workspace \"new\": its phase is Scheduling\nWorkspace \"new\": its phase is Initializing, waiting for root:slow\n"; stderr != want {
		t.Errorf("progress is %q", stderr)
	}
}
