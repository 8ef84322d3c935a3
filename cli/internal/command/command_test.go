package command

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kcplane/kcp/cli/internal/fake"
	"github.com/kcplane/kcp/cli/internal/kubeconfig"
)

// user runs commands with a kubeconfig for a fake server.
type user struct {
	t          *testing.T
	server     *fake.Server
	kubeconfig string
}

// at returns a user whose kubeconfig has the URL of the server with the given path.
func at(t *testing.T, server *fake.Server, place string) user {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["mine"] = &clientcmdapi.Cluster{Server: server.URL + place, CertificateAuthorityData: server.CA()}
	config.AuthInfos["me"] = &clientcmdapi.AuthInfo{Token: "secret"}
	config.Contexts["mine"] = &clientcmdapi.Context{Cluster: "mine", AuthInfo: "me", Namespace: "apples"}
	config.CurrentContext = "mine"
	file := filepath.Join(t.TempDir(), "config")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return user{t, server, file}
}

// run runs a command like kubectl does, and returns its output.
func (u user) run(line ...string) (stdout, stderr string, err error) {
	u.t.Helper()
	var out, errOut bytes.Buffer
	streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut}
	cmd := Plugin(line[0], streams)
	args := line[1:]
	if len(args) > 0 && args[0] == cobra.ShellCompRequestCmd {
		args = append([]string{args[0], "--kubeconfig", u.kubeconfig}, args[1:]...)
	} else {
		args = append(args[:len(args):len(args)], "--kubeconfig", u.kubeconfig)
	}
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(u.t.Context())
	return out.String(), errOut.String(), err
}

// prints fails the test unless the command succeeds and prints want.
func (u user) prints(want string, line ...string) {
	u.t.Helper()
	stdout, stderr, err := u.run(line...)
	if err != nil || strings.TrimSpace(stdout) != strings.TrimSpace(want) {
		u.t.Errorf("%q printed %q, and %q for errors, %v; want %q", line, stdout, stderr, err, want)
	}
}

// fails fails the test unless the command fails with an error that contains want and does not change the kubeconfig.
func (u user) fails(want string, line ...string) {
	u.t.Helper()
	before := u.file()
	stdout, _, err := u.run(line...)
	if err == nil || !strings.Contains(err.Error(), want) {
		u.t.Errorf("%q: %v, and printed %q; want %q", line, err, stdout, want)
	}
	if u.file() != before {
		u.t.Errorf("%q failed, and changed the kubeconfig", line)
	}
}

func (u user) file() string {
	u.t.Helper()
	content, err := os.ReadFile(u.kubeconfig)
	if err != nil {
		u.t.Fatal(err)
	}
	return string(content)
}

// isAt fails the test unless the current context has the URL of the server with the given path.
func (u user) isAt(place string) {
	u.t.Helper()
	config, err := clientcmd.LoadFromFile(u.kubeconfig)
	if err != nil {
		u.t.Fatal(err)
	}
	if got := config.Clusters[config.Contexts[config.CurrentContext].Cluster].Server; got != u.server.URL+place {
		u.t.Errorf("current server is %s, want %s", got, place)
	}
}

func forest(t *testing.T) *fake.Server {
	server := fake.New(t, "root:org", "root:org:team-a", "root:org:team-a:app", "root:org:team-b", "root:closed", "root:homes", "root:homes:me")
	server.Forbidden["root:closed"] = true
	return server
}

func TestSwitchWorkspaces(t *testing.T) {
	server := forest(t)
	server.Home = "root:homes:me"
	u := at(t, server, "/clusters/root")
	current := func(path string) string { return fmt.Sprintf("Current workspace is %q (type root:universal).", path) }
	for _, step := range []struct{ typed, want, place string }{
		{"org", current("root:org"), "/clusters/root:org"},
		{"team-a/app", current("root:org:team-a:app"), "/clusters/root:org:team-a:app"},
		{"..", current("root:org:team-a"), "/clusters/root:org:team-a"},
		{"../team-b", current("root:org:team-b"), "/clusters/root:org:team-b"},
		{"-", current("root:org:team-a"), "/clusters/root:org:team-a"},
		{"-", current("root:org:team-b"), "/clusters/root:org:team-b"},
		{".", current("root:org:team-b"), "/clusters/root:org:team-b"},
		{"~", current("root:homes:me"), "/clusters/root:homes:me"},
		{"-", current("root:org:team-b"), "/clusters/root:org:team-b"},
		{":root:org", current("root:org"), "/clusters/root:org"},
		{":", `Current workspace is "root" (type root:root).`, "/clusters/root"},
		{"~:..", current("root:homes"), "/clusters/root:homes"},
		{":" + server.Cluster("root:org:team-a"), current("root:org:team-a"), "/clusters/" + server.Cluster("root:org:team-a")},
		{"app", current("root:org:team-a:app"), "/clusters/root:org:team-a:app"},
		{":" + server.Cluster("root:org:team-a"), current("root:org:team-a"), "/clusters/" + server.Cluster("root:org:team-a")},
		{"..", current("root:org"), "/clusters/root:org"},
	} {
		u.prints(step.want, "ws", step.typed)
		u.isAt(step.place)
	}
	u.prints(current("root:homes:me"), "ws")
	u.prints(current("root:org"), "ws", "use", ":root:org")
	u.prints(current("root:org:team-a"), "ws", "cd", "team-a")
	u.prints(current("root:org:team-b"), "workspace", "team-b", "-w", "..")
	u.prints(current("root:org:team-a"), "kcp", "workspace", ":root:org:team-a")
	u.prints(current("root:org"), "kcp", "ws", "use", "..")
	u.prints("root:org:team-a", "ws", "team-a", "-o", "name")
	u.prints("root:org", "ws", "use", "..", "-o", "name")
	u.prints("root:org:team-a", "ws", "-", "-o", "name")
	u.isAt("/clusters/root:org:team-a")
	u.prints("root:org", "ws", "..", "--short")
	u.prints("root:org", "ws", ".", "--short")
	u.prints("root:homes:me", "ws", "--short")
	t.Setenv("HOME", "/home/me")
	for typed, want := range map[string]string{"/home/me": "root:homes:me", "/home/me/..": "root:homes", ":root:org:team-a": "root:org:team-a"} {
		u.prints(want, "ws", typed, "--short")
	}
	t.Setenv("HOME", "/root")
	for typed, want := range map[string]string{"/root": "root:homes:me", "/root/org": "root:org", ":root": "root"} {
		u.prints(want, "ws", typed, "--short")
	}
	u.prints("root:org:team-a", "ws", ":root:org:team-a", "--short")
	if stdout, _, err := u.run("ws", ".", "-o", "json"); err != nil || !strings.Contains(stdout, `"path": "root:org:team-a"`) {
		t.Errorf("%s, %v", stdout, err)
	}
}

func TestSwitchErrors(t *testing.T) {
	u := at(t, forest(t), "/clusters/root:org")
	u.fails(`no previous workspace`, "ws", "-")
	u.fails(`workspace "root:org:team-x" not found: the workspaces in root:org are team-a, team-b`, "ws", "team-x")
	u.fails(`access to workspace "root:closed" denied: `, "ws", ":root:closed")
	u.fails(`invalid path "..:..:..": root has no parent`, "ws", "..:..:..")
	u.fails(`invalid path "Team"`, "ws", "Team")
	u.fails(`has no home workspace for you`, "ws")
	u.fails(`--interactive requires a terminal`, "ws", "-i")
	u.fails(`--interactive requires a terminal`, "ws", "tree", "-i")
	u.fails(`kubectl ws accepts at most one workspace, got ["a" "b"]; see kubectl ws --help`, "ws", "a", "b")
	u.fails(`unknown flag: --bad; see kubectl kcp workspace tree --help`, "kcp", "workspace", "tree", "--bad")
	u.fails(`unknown command "bad" for "kubectl kcp"`, "kcp", "bad")
	u.fails(`workspace "root:org:x" not found: the workspaces in root:org are`, "ws", "current", "-w", "x")
	u.fails(`cannot be combined with --workspace`, "ws", "-", "-w", ":root")
	u.fails(`rejected the credentials`, "ws", "team-a", "--token", "other")
	u.fails(`loading the kubeconfig: context "absent" does not exist`, "ws", "team-a", "--context", "absent")
	_, stderr, err := u.run("ws", "root:org")
	if err == nil || !strings.Contains(stderr, `the absolute path is ":root:org"`) {
		t.Errorf("%v, with the note %q", err, stderr)
	}
}

func TestSwitchFromOtherURLs(t *testing.T) {
	u := at(t, forest(t), "/services/something")
	u.prints(fmt.Sprintf("Current workspace is the URL %q.", u.server.URL+"/services/something"), "ws", ".")
	u.fails(`is not a workspace (the URL has no /clusters/ path), so the relative path "org" cannot be resolved`, "ws", "org")
	u.fails(`is not a workspace (the URL has no /clusters/ path); switch to a workspace`, "ws", "tree")
	u.fails(`is not a workspace (the URL has no /clusters/ path); switch to a workspace`, "create-workspace", "new")
	u.prints(`Current workspace is "root:org" (type root:universal).`, "ws", ":root:org")
	u.isAt("/clusters/root:org")
	u.prints(fmt.Sprintf("Current workspace is the URL %q.", u.server.URL+"/services/something"), "ws", "-")
}

func TestNamespaceIsResetInAnotherWorkspace(t *testing.T) {
	u := at(t, forest(t), "/clusters/root")
	u.prints(`Current workspace is "root:org" (type root:universal).`, "ws", "org")
	namespace := func() string {
		config, err := clientcmd.LoadFromFile(u.kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		return config.Contexts[kubeconfig.Current].Namespace
	}
	if got := namespace(); got != "" {
		t.Errorf("namespace %q was kept", got)
	}
	u.prints(`Current workspace is "root" (type root:root).`, "ws", "-")
	if got := namespace(); got != "apples" {
		t.Errorf("namespace is %q", got)
	}
}

func TestCurrent(t *testing.T) {
	server := forest(t)
	u := at(t, server, "/clusters/root:org")
	before := u.file()
	u.prints("root:org", "ws", "current", "--short")
	u.prints("root:org", "ws", "current", "-o", "name")
	if asked := server.Requests(); len(asked) > 0 {
		t.Errorf("printing only the path sent requests: %q", asked)
	}
	u.prints(`Current workspace is "root:org" (type root:universal).`, "ws", "current")
	u.prints("root:org:team-a", "ws", "current", "--short", "-w", "team-a")
	u.prints("URL: "+server.URL+"/clusters/root:org\ncluster: c0\npath: root:org\nphase: Ready\ntype: root:universal", "ws", "current", "-o", "yaml")
	u.prints("{\n  \"path\": \"root:org\",\n  \"type\": \"root:universal\",\n  \"cluster\": \"c0\",\n  \"phase\": \"Ready\",\n  \"URL\": \""+server.URL+
		"/clusters/root:org\"\n}", "ws", "current", "-o", "json")
	stdout, _, err := u.run("ws", "current", "-o", "wide")
	if err != nil || !strings.Contains(strings.Join(strings.Fields(stdout), " "), "PATH TYPE PHASE CLUSTER URL root:org root:universal Ready c0 http") {
		t.Errorf("%q, %v", stdout, err)
	}
	u.fails("must be one of name, json, yaml, wide", "ws", "current", "-o", "xml")
	if u.file() != before {
		t.Error("the kubeconfig changed")
	}
	byName := at(t, server, "/clusters/"+server.Cluster("root:org:team-a"))
	byName.prints("root:org:team-a", "ws", "current", "--short")
}

func TestTree(t *testing.T) {
	server := forest(t)
	u := at(t, server, "/clusters/root")
	u.prints(`
root
├── closed (no access)
├── homes
│   └── me
└── org
    ├── team-a
    │   └── app
    └── team-b`, "ws", "tree")
	u.prints("root:org\n├── root:org:team-a\n│   └── root:org:team-a:app\n└── root:org:team-b", "ws", "tree", "--full", "-w", "org")
	u.prints("root:org\nroot:org:team-a\nroot:org:team-a:app\nroot:org:team-b", "kcp", "workspace", "tree", "-o", "name", "-w", ":root:org")
	u.prints("root:homes  type: root:universal  logical cluster: Ready\n└── me  type: root:universal  workspace: Ready  logical cluster: Ready",
		"ws", "tree", "--wide", "-w", ":"+server.Cluster("root:homes"))
	u.prints(fmt.Sprintf("URL: %s/clusters/root:homes\nchildren:\n- URL: https://kcp.example.com/clusters/root:homes:me\n  cluster: %s\n  name: me\n"+
		"  path: root:homes:me\n  phase: Ready\n  type: root:universal\nname: root:homes\npath: root:homes", server.URL, server.Cluster("root:homes:me")),
		"ws", "tree", "-o", "yaml", "-w", "homes")
	u.fails(`you may not list the workspaces of root:closed: `, "ws", "tree", "-w", "closed")
	u.fails(`accepts no arguments; set --workspace to start at another workspace`, "ws", "tree", "org")
}

func TestCreateContext(t *testing.T) {
	server := forest(t)
	u := at(t, server, "/clusters/root:org")
	u.prints(`Created context "root:org" and switched to it.`, "ws", "create-context")
	u.isAt("/clusters/root:org")
	u.fails(`kubeconfig already has a context "root:org"; set --overwrite to replace it`, "ws", "create-context")
	u.prints(`Created context "a" and switched to it.`, "ws", "create-context", "a", "-w", "team-a")
	u.isAt("/clusters/root:org:team-a")
	u.prints(`Replaced context "a" and switched to it.`, "kcp", "workspace", "create-context", "a", "--overwrite", "-w", ":root:homes")
	u.isAt("/clusters/root:homes")
	u.fails(`workspace "root:homes:x" not found`, "ws", "create-context", "x", "-w", "x")
	byName := at(t, server, "/clusters/"+server.Cluster("root:org:team-b"))
	byName.prints(`Created context "root:org:team-b" and switched to it.`, "ws", "create-context")
}

// completes fails the test unless completing the line offers want.
func (u user) completes(want []string, line ...string) {
	u.t.Helper()
	stdout, _, err := u.run(append([]string{line[0], cobra.ShellCompRequestCmd}, line[1:]...)...)
	var got []string
	for _, l := range strings.Split(strings.TrimSpace(stdout), "\n") {
		if name, _, _ := strings.Cut(l, "\t"); !strings.HasPrefix(name, ":") || strings.HasPrefix(name, ":root") {
			got = append(got, name)
		}
	}
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		u.t.Errorf("%q is completed to %q, %v; want %q", line, got, err, want)
	}
}

func TestCompletion(t *testing.T) {
	server := forest(t)
	server.Home = "root:homes:me"
	u := at(t, server, "/clusters/root")
	u.completes([]string{"closed", "homes", "org"}, "ws", "use", "")
	u.completes([]string{"org"}, "ws", "o")
	u.completes([]string{"org:team-a", "org:team-b"}, "ws", "org:t")
	u.completes([]string{"org/team-a/app"}, "ws", "org/team-a/")
	u.completes([]string{":root"}, "ws", ":")
	u.completes([]string{":root:org"}, "ws", ":root:o")
	u.completes([]string{"~:..:me"}, "ws", "~:..:")
	at(t, server, "/clusters/root:org:team-a").completes([]string{"..:team-a", "..:team-b"}, "ws", "..")
	u.completes([]string{"team-a", "team-b"}, "kcp", "workspace", "use", "-w", "org", "")
	u.completes([]string{"homes"}, "ws", "tree", "-w", "ho")
	u.completes([]string{"homes"}, "create-workspace", "new", "--workspace", "ho")
	u.completes(nil, "ws", "use", "org", "")
	u.completes(nil, "ws", "use", ":root:absent:")
	u.completes([]string{"root:organization"}, "create-workspace", "--type", "root:o")
	u.completes([]string{"name", "json", "yaml", "wide"}, "ws", "tree", "-o", "")
	u.completes([]string{"mine"}, "ws", "--context", "")
	u.completes([]string{"create", "create-context", "current", "closed"}, "ws", "c")
}

func TestHelpHasExamplesForEveryCommand(t *testing.T) {
	u := at(t, forest(t), "/clusters/root")
	for _, line := range []string{"ws", "ws use", "ws current", "ws tree", "ws create", "ws create-context", "create-workspace",
		"kcp workspace", "kcp workspace use", "kcp workspace tree", "kcp crd pull", "kcp crd compat", "kcp crd snapshot",
		"kcp bind", "kcp bind apiexport", "kcp claims", "kcp claims get apibinding", "kcp claims accept", "kcp claims reject", "kcp claims update",
		"kcp get", "kcp get apis"} {
		stdout, _, err := u.run(append(strings.Fields(line), "--help")...)
		invocation := "  kubectl " + strings.ReplaceAll(line, "create-workspace", "create workspace")
		_, examples, found := strings.Cut(stdout, "Examples:\n")
		if err != nil || !found || !strings.Contains(examples, "\n"+invocation+" ") || !strings.Contains(stdout, "--workspace") {
			t.Errorf("%s: %v\n%s", line, err, stdout)
		}
		if strings.Contains(stdout, "--as-group") {
			t.Errorf("the help of %s lists the global kubectl flags", line)
		}
	}
}
