package command

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/cli/internal/fake"
)

func TestCreateWorkspace(t *testing.T) {
	u := at(t, forest(t), "/clusters/root:org")
	before := u.file()
	u.prints("Workspace \"new\" (type root:universal) created. Waiting for it to be ready...\nWorkspace \"new\" (type root:universal) is ready.",
		"create-workspace", "new")
	if u.file() != before {
		t.Error("the kubeconfig changed")
	}
	u.prints("workspace.tenancy.kcp.io/below", "ws", "create", "below", "-w", "new", "-o", "name")
	u.fails(`workspace "new" already exists in root:org; set --ignore-existing to use it`, "create-workspace", "new")
	u.prints("Workspace \"new\" (type root:universal) already exists.\nWorkspace \"new\" (type root:universal) is ready.",
		"kcp", "workspace", "create", "new", "--ignore-existing", "--type", "root:universal")
	u.fails(`workspace "new" already exists in root:org (type root:universal), but is not of type root:team`,
		"create-workspace", "new", "--ignore-existing", "--type", "root:team")
	u.fails(`--ignore-existing requires the path of the type "team"`, "create-workspace", "new", "--ignore-existing", "--type", "team")
	u.fails(`pass the name "b", and the parent workspace as --workspace "a"`, "create-workspace", "a:b")
	for _, bad := range []string{"Bad", "a_b", "a-", "a.b", strings.Repeat("a", 64)} {
		u.fails(": must be 1 to 63 lower case letters", "create-workspace", bad)
	}
	u.fails(`requires one argument, the name of the new workspace`, "create-workspace")
	u.fails(`invalid --location-selector "a b"`, "create-workspace", "x", "--location-selector", "a b")
	u.fails(`access to workspace "root:closed" denied`, "create-workspace", "x", "-w", ":root:closed", "--ignore-existing")
	u.fails(`workspace "root:absent" not found: the workspaces in root are`, "create-workspace", "x", "-w", ":root:absent")
	stdout, _, err := u.run("create-workspace", "shown", "-o", "json")
	if err != nil || !strings.Contains(stdout, `"kind": "Workspace"`) || strings.Contains(stdout, "is ready") {
		t.Errorf("%q, %v", stdout, err)
	}
}

func TestCreateWorkspaceWithEnterAndContext(t *testing.T) {
	u := at(t, forest(t), "/clusters/root:org")
	u.prints(`Workspace "new" (type root:team) created. Waiting for it to be ready...
Workspace "new" (type root:team) is ready.
Created context "my-new".
Current workspace is "root:org:new" (type root:team).`, "create-workspace", "new", "--type", "team", "--enter", "--create-context", "my-new")
	u.isAt("/clusters/root:org:new")
	config, err := clientcmd.LoadFromFile(u.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if c := config.Contexts["my-new"]; c == nil || c.AuthInfo != "me" || config.Clusters[c.Cluster].Server != u.server.URL+"/clusters/root:org:new" {
		t.Errorf("new context is %v", c)
	}
	u.fails(`already has a context "my-new"`, "create-workspace", "other", "--create-context", "my-new")
	if _, _, err := u.run("ws", "other"); err == nil {
		t.Error("the workspace was created although its context exists already")
	}
}

func TestCreateSendsTypeAndLocation(t *testing.T) {
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
	u.fails(`creating workspace "other" in root:org: type <nil>`, "create-workspace", "other")
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
	if err != nil || !strings.HasSuffix(stdout, "is ready.\n") {
		t.Errorf("%q, %v", stdout, err)
	}
	if want := "Workspace \"new\": phase is Scheduling\nWorkspace \"new\": phase is Initializing, waiting for root:slow\n"; stderr != want {
		t.Errorf("progress is %q", stderr)
	}
}
