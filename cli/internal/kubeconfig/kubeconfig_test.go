package kubeconfig

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

var update = flag.Bool("update", false, "write the golden files")

const host = "https://kcp.example.com:6443/clusters/"

// apply changes a copy of testdata/<start>.yaml and returns the content.
func apply(t *testing.T, start string, change func(*clientcmdapi.Config) (*clientcmdapi.Config, error)) (string, error) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", start+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	access := &clientcmd.PathOptions{GlobalFile: file, LoadingRules: &clientcmd.ClientConfigLoadingRules{ExplicitPath: file}}
	access.LoadingRules.Precedence = []string{file}
	config, err := access.GetStartingConfig()
	if err != nil {
		t.Fatal(err)
	}
	before := config.DeepCopy()
	changed, err := change(config)
	if diff := cmp.Diff(before, config); diff != "" {
		t.Errorf("the input was modified:\n%s", diff)
	}
	if err != nil {
		return "", err
	}
	if err := Save(access, changed); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(after), nil
}

func TestChangesMatchGoldenFiles(t *testing.T) {
	enter := func(o Overrides, server string) func(*clientcmdapi.Config) (*clientcmdapi.Config, error) {
		return func(c *clientcmdapi.Config) (*clientcmdapi.Config, error) { return Enter(c, o, server) }
	}
	add := func(name, server string, overwrite, use bool) func(*clientcmdapi.Config) (*clientcmdapi.Config, error) {
		return func(c *clientcmdapi.Config) (*clientcmdapi.Config, error) {
			return Add(c, Overrides{}, name, server, overwrite, use)
		}
	}
	for _, test := range []struct {
		name, start, want string
		change            func(*clientcmdapi.Config) (*clientcmdapi.Config, error)
	}{
		{"from the user's context", "own", "own-enter", enter(Overrides{}, host+"root:team")},
		{"from one workspace to the next", "own-enter", "own-enter-twice", enter(Overrides{}, host+"root:team:app")},
		{"to where one is", "own-enter", "own-enter", enter(Overrides{}, host+"root:team")},
		{"from another context", "own-enter", "own-enter-context", enter(Overrides{Context: "other"}, host+"root:shop")},
		{"as another user", "own", "own-enter-user", enter(Overrides{AuthInfo: "bob"}, host+"root:team")},
		{"back", "own-enter", "own-enter-back", Return},
		{"forth again", "own-enter-back", "own-enter-forth", Return},
		{"with a new context", "own", "own-add", add("team", host+"root:team", false, false)},
		{"with a new context to use", "own-enter", "own-enter-add", add("root:team", host+"root:team", false, true)},
		{"with a context replaced", "own", "own-replace", add("other", host+"root:team", true, true)},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := apply(t, test.start, test.change)
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", test.want+".yaml")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("differs from %s (-want +got):\n%s", golden, diff)
			}
		})
	}
}

func TestReturnTwiceRestoresTheKubeconfig(t *testing.T) {
	config, err := clientcmd.LoadFromFile("testdata/own-enter-twice.yaml")
	if err != nil {
		t.Fatal(err)
	}
	back, err := Return(config)
	if err != nil {
		t.Fatal(err)
	}
	if got := back.Clusters[Current].Server; got != host+"root:team" {
		t.Errorf("returned to %s", got)
	}
	forth, err := Return(back)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(config, forth); diff != "" {
		t.Errorf("returning twice changes the kubeconfig:\n%s", diff)
	}
}

func TestInvalidChangesAreRefused(t *testing.T) {
	for _, test := range []struct {
		start, want string
		change      func(*clientcmdapi.Config) (*clientcmdapi.Config, error)
	}{
		{"own", `no previous workspace: kubeconfig has no context "workspace.kcp.io/previous"`, Return},
		{"own", `kubeconfig already has a context "other"; set --overwrite to replace it`,
			func(c *clientcmdapi.Config) (*clientcmdapi.Config, error) {
				return Add(c, Overrides{}, "other", host+"root", false, true)
			}},
		{"own", `kubeconfig already has a cluster "kcp"; set --overwrite`,
			func(c *clientcmdapi.Config) (*clientcmdapi.Config, error) {
				return Add(c, Overrides{}, "kcp", host+"root", false, true)
			}},
		{"own", `kubeconfig has no context "absent"; it has mine, other`,
			func(c *clientcmdapi.Config) (*clientcmdapi.Config, error) {
				return Enter(c, Overrides{Context: "absent"}, host+"root")
			}},
		{"own", `no cluster "absent", which context "mine" refers to`,
			func(c *clientcmdapi.Config) (*clientcmdapi.Config, error) {
				return Enter(c, Overrides{Cluster: "absent"}, host+"root")
			}},
		{"empty", `kubeconfig has no current context; set one with kubectl config use-context; it has no contexts`,
			func(c *clientcmdapi.Config) (*clientcmdapi.Config, error) { return Enter(c, Overrides{}, host+"root") }},
	} {
		if got, err := apply(t, test.start, test.change); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v, want %q\n%s", err, test.want, got)
		}
	}
}

func TestSaveKeepsEntriesInTheirFiles(t *testing.T) {
	dir := t.TempDir()
	first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
	if err := os.WriteFile(first, []byte("apiVersion: v1\nkind: Config\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile("testdata/own.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(second, content, 0o600); err != nil {
		t.Fatal(err)
	}
	access := &clientcmd.PathOptions{EnvVar: "KUBECONFIG_OF_THIS_TEST", GlobalFile: first, LoadingRules: &clientcmd.ClientConfigLoadingRules{Precedence: []string{first, second}}}
	t.Setenv("KUBECONFIG_OF_THIS_TEST", first+string(filepath.ListSeparator)+second)
	config, err := access.GetStartingConfig()
	if err != nil {
		t.Fatal(err)
	}
	changed, err := Enter(config, Overrides{}, host+"root:team")
	if err != nil {
		t.Fatal(err)
	}
	if err := Save(access, changed); err != nil {
		t.Fatal(err)
	}
	again, err := access.GetStartingConfig()
	if err != nil {
		t.Fatal(err)
	}
	if again.CurrentContext != Current || again.Clusters[Current].Server != host+"root:team" || again.Clusters["kcp"].Server != host+"root" {
		t.Errorf("files contain %+v", again)
	}
	if got, want := again.Clusters[Current].CertificateAuthority, again.Clusters["kcp"].CertificateAuthority; got != want || got != filepath.Join(dir, "ca.crt") {
		t.Errorf("certificate authority of the new cluster is %q, of the old one %q", got, want)
	}
}
