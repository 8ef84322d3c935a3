package plugin

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"text/template"

	"sigs.k8s.io/yaml"
)

func TestProgramNameSelectsThePlugin(t *testing.T) {
	for program, want := range map[string]struct {
		name string
		args []string
	}{
		"/usr/bin/kubectl-ws":                             {"ws", []string{"a"}},
		"kubectl-workspace.exe":                           {"workspace", []string{"a"}},
		"/usr/bin/kubectl_complete-ws":                    {"ws", []string{"__complete", "a"}},
		"./kubectl_complete-create-workspace":             {"create-workspace", []string{"__complete", "a"}},
		"/usr/bin/kubectl_complete-somewhere/kubectl-kcp": {"kcp", []string{"a"}},
		"/home/me/.krew/bin/kubectl-create_workspace":     {"create-workspace", []string{"a"}}, // as krew names the link
		"elsewhere": {"elsewhere", []string{"a"}},
	} {
		if name, args := Name(program), Arguments(program, []string{"a"}); name != want.name || !reflect.DeepEqual(args, want.args) {
			t.Errorf("%s is %s with %q", program, name, args)
		}
	}
}

// manifest contains the fields of a krew manifest that the test checks.
type manifest struct {
	APIVersion, Kind string
	Metadata         struct{ Name string }
	Spec             struct {
		Version, ShortDescription, Description, Homepage, Caveats string
		Platforms                                                 []struct {
			URI, Sha256, Bin string
			Selector         struct{ MatchLabels map[string]string }
			Files            []struct{ From, To string }
		}
	}
}

func TestKrewManifestsReferToTheReleasedProgram(t *testing.T) {
	files, err := filepath.Glob("../../krew/*.yaml")
	if err != nil || len(files) != 3 {
		t.Fatalf("%q, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		release := template.FuncMap{"addURIAndSha": func(uri, tag string) string {
			return "uri: " + strings.ReplaceAll(uri, "{{ .TagName }}", tag) + "\n    sha256: " /* the indentation is what krew-release-bot writes */ + strings.Repeat("0", 64)
		}}
		var rendered strings.Builder
		parsed, err := template.New(file).Funcs(release).Parse(string(text))
		if err == nil {
			err = parsed.Execute(&rendered, map[string]string{"TagName": "v1.2.3"})
		}
		var m manifest
		if err == nil {
			err = yaml.UnmarshalStrict([]byte(rendered.String()), &m)
		}
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if m.Kind != "Plugin" || m.Metadata.Name != strings.TrimSuffix(filepath.Base(file), ".yaml") || m.Spec.Version != "v1.2.3" || len(m.Spec.ShortDescription) > 50 {
			t.Errorf("%s is %+v", file, m)
		}
		platforms := map[string]bool{}
		for _, p := range m.Spec.Platforms {
			platform := p.Selector.MatchLabels["os"] + "_" + p.Selector.MatchLabels["arch"]
			platforms[platform] = true
			program := strings.TrimSuffix(p.Bin, ".exe")
			if _, err := os.Stat("../../cmd/" + program); err != nil {
				t.Errorf("%s: bin for %s is %s: %v", file, platform, p.Bin, err)
			}
			if !strings.HasSuffix(p.URI, "/v1.2.3/"+program+"_v1.2.3_"+platform+".tar.gz") {
				t.Errorf("%s: uri for %s is %s", file, platform, p.URI)
			}
		}
		for _, platform := range []string{"linux_amd64", "linux_arm64", "darwin_amd64", "darwin_arm64", "windows_amd64"} {
			if !platforms[platform] {
				t.Errorf("%s: no platform %s", file, platform)
			}
		}
	}
}
