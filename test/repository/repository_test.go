// Package repository checks the rules that the repository itself keeps: what may depend on what, and under which names.
package repository

import (
	"bytes"
	"cmp"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/kcplane/kcp"

const root = "../.."

func output(t *testing.T, dir, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, stderr.String())
	}
	return out
}

// files returns the repository's files that match, vendored and ignored ones apart.
func files(t *testing.T, pattern string) []string {
	t.Helper()
	list := strings.Fields(string(output(t, root, "git", "ls-files", "--cached", "--others", "--exclude-standard", "--", pattern)))
	if len(list) == 0 {
		t.Fatalf("no file matches %s", pattern)
	}
	return list
}

// goMod is what go mod edit -json prints of a go.mod.
type goMod struct {
	Require []struct{ Path, Version string }
	Replace []struct {
		Old, New struct{ Path, Version string }
	}
}

func readGoMod(t *testing.T, file string) goMod {
	t.Helper()
	var mod goMod
	if err := json.Unmarshal(output(t, filepath.Join(root, filepath.Dir(file)), "go", "mod", "edit", "-json"), &mod); err != nil {
		t.Fatal(err)
	}
	return mod
}

// libraries are the modules in this repository that others require, by directory.
var libraries = []string{"api", "client"}

func TestReplaceLinesOnlyPinStagingModules(t *testing.T) {
	for _, file := range files(t, "*go.mod") {
		for _, r := range readGoMod(t, file).Replace {
			if library, ours := strings.CutPrefix(r.Old.Path, module+"/"); ours && slices.Contains(libraries, library) {
				if filepath.Join(filepath.Dir(file), r.New.Path) != library {
					t.Errorf("%s: %s => %s is not the directory of the module", file, r.Old.Path, r.New.Path)
				}
				continue
			}
			if r.Old.Path != r.New.Path || !strings.HasPrefix(r.Old.Path, "k8s.io/") || !strings.HasPrefix(r.New.Version, "v0.") {
				t.Errorf("%s: %s => %s %s is more than a version pin of a k8s.io staging module", file, r.Old.Path, r.New.Path, r.New.Version)
			}
		}
	}
}

// One version of grpc that differs, and all of Kubernetes is compiled once more.
func TestModulesCompileTheSameVersions(t *testing.T) {
	type use struct{ file, version string }
	seen := map[string]use{}
	for _, file := range []string{"go.mod", "api/go.mod", "client/go.mod", "tools/go.mod", "test/tools/go.mod", "test/conformance/go.mod", "test/host/node/go.mod", "test/prometheus/go.mod"} {
		mod := readGoMod(t, file)
		pinned := map[string]string{}
		for _, r := range mod.Replace {
			pinned[r.Old.Path] = r.New.Version
		}
		for _, r := range mod.Require {
			here := use{file, cmp.Or(pinned[r.Path], r.Version)}
			if before, ok := seen[r.Path]; !ok {
				seen[r.Path] = here
			} else if before.version != here.version {
				t.Errorf("%s is %s in %s and %s in %s: go get the later one in both", r.Path, before.version, before.file, here.version, file)
			}
		}
	}
}

// goPackage is what go list prints of a package.
type goPackage struct {
	ImportPath           string
	Imports, TestImports []string
}

func packages(t *testing.T) (list []goPackage) {
	t.Helper()
	patterns := []string{"list", "-json=ImportPath,Imports,TestImports", "./..."}
	for _, library := range libraries {
		patterns = append(patterns, module+"/"+library+"/...")
	}
	decoder := json.NewDecoder(bytes.NewReader(output(t, root, "go", patterns...)))
	for decoder.More() {
		var p goPackage
		if err := decoder.Decode(&p); err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
	if len(list) < 10 {
		t.Fatalf("only %d packages were looked at", len(list))
	}
	return list
}

func TestPackagesImportDownwardOnly(t *testing.T) {
	forbidden := map[string][]string{
		"api":      {""},
		"internal": {"server", "operator", "cli", "client", "fleet", "test"},
		"server":   {"operator", "cli", "client", "fleet", "test", "api/fleet"},
		"operator": {"server", "cli", "client", "fleet", "test", "api/fleet"},
		"cli":      {"server", "operator", "client", "fleet", "test"},
		"client":   {"server", "operator", "cli", "fleet", "test", "api/fleet"},
		"fleet":    {"server/internal", "server/cmd", "server/options", "operator", "cli", "test"},
	}
	for _, p := range packages(t) {
		layer, _, _ := strings.Cut(strings.TrimPrefix(p.ImportPath, module+"/"), "/")
		if strings.HasSuffix(p.ImportPath, "/e2e") {
			layer = "test"
		}
		for _, imported := range append(p.Imports, p.TestImports...) {
			below, ours := strings.CutPrefix(imported, module+"/")
			if !ours || (layer == "api" && strings.HasPrefix(below, "api/")) {
				continue
			}
			for _, f := range forbidden[layer] {
				if f == "" || strings.HasPrefix(below, f+"/") {
					t.Errorf("%s imports %s", p.ImportPath, imported)
				}
			}
		}
	}
}

// serverOrder lists the groups of the server: a package imports packages of its own line and of lines below. The longest name that
// contains a package decides; "server" stands for the composition only.
var serverOrder = [][]string{
	{"server/cmd"},
	{"server"},
	{"server/options", "server/internal/bootstrap", "server/virtual/program"},
	{"server/internal/frontproxy"},
	{"server/internal/request"},
	{"server/internal/controllers"},
	{"server/internal/cacheserver", "server/internal/shards"},
	{"server/internal/views"},
	{"server/internal/admission"},
	{"server/virtual/resources"},
	{"server/internal/apis"},
	{"server/internal/auth"},
	{"server/internal/request/path", "server/internal/request/mount"},
	{"server/internal/tenancy"},
	{"server/internal/objecttest"},
	{"server/internal/storage"},
	{"server/internal/controllers/runner"},
	{"server/internal/process", "server/internal/request/cancellation",
		"server/internal/apis/conditions", "server/internal/apis/derived", "server/internal/apis/expressions"},
	{"server/internal/informers"},
	{"server/internal/shards/peers"},
	{"server/virtual"},
	{"server/internal/process/decisionlog"},
	{"server/logicalcluster"},
}

// lineOf returns the line of a package in serverOrder, -1 without one.
func lineOf(pkg string) int {
	line, longest := -1, ""
	for i, groups := range serverOrder {
		for _, group := range groups {
			inside := pkg == group || (group != "server" && strings.HasPrefix(pkg, group+"/"))
			if inside && len(group) > len(longest) {
				line, longest = i, group
			}
		}
	}
	return line
}

func TestGroupsOfTheServerAreImportedInOrder(t *testing.T) {
	for _, p := range packages(t) {
		pkg := strings.TrimPrefix(p.ImportPath, module+"/")
		if pkg != "server" && !strings.HasPrefix(pkg, "server/") {
			continue
		}
		line := lineOf(pkg)
		if line < 0 {
			t.Errorf("%s belongs to no group", pkg)
		}
		for _, imported := range p.Imports {
			if below, ours := strings.CutPrefix(imported, module+"/"); ours && strings.HasPrefix(below, "server") && lineOf(below) < line {
				t.Errorf("%s imports %s, which stands above it", pkg, below)
			}
		}
	}
}

// Other repositories may import these packages of the server and none of the operator and the plugins, but for programs.
func TestTheRestIsInternal(t *testing.T) {
	public := []string{"server", "server/cmd", "server/options", "server/logicalcluster", "server/virtual", "server/virtual/program", "server/virtual/resources", "server/virtual/stream",
		"operator", "operator/cmd", "operator/e2e"}
	for _, p := range packages(t) {
		pkg := strings.TrimPrefix(p.ImportPath, module+"/")
		layer, _, _ := strings.Cut(pkg, "/")
		if !slices.Contains([]string{"server", "operator", "cli", "fleet"}, layer) || slices.Contains(public, pkg) {
			continue
		}
		if !strings.Contains(pkg, "/internal/") && !strings.HasPrefix(pkg, layer+"/cmd/") {
			t.Errorf("%s is not internal", pkg)
		}
	}
}

// Images have nothing but programs, and none of the files that other systems have.
func TestProgramsBringAlongWhatImagesLack(t *testing.T) {
	const timeZones, authorities = "time/tzdata", "golang.org/x/crypto/x509roots/fallback"
	for program, needed := range map[string][]string{
		"./server/cmd/kcp":             {timeZones, authorities},
		"./fleet/cmd/kcp-fleet":        {authorities},
		"./fleet/cmd/kcp-fleet-agent":  {authorities},
		"./operator/cmd/kcp-operator":  {timeZones},
		"./operator/cmd/etcd-snapshot": {authorities},
	} {
		packages := strings.Fields(string(output(t, root, "go", "list", "-deps", program)))
		for _, n := range needed {
			if !slices.Contains(packages, n) {
				t.Errorf("%s lacks %s", program, n)
			}
		}
	}
}

func TestPackagesAreNamedAfterWhatTheyServe(t *testing.T) {
	meaningless := regexp.MustCompile(`/(util|utils|common|helper|helpers|misc|manager|shared)/[^/]+\.go$`)
	for _, file := range files(t, "*.go") {
		if meaningless.MatchString("/" + file) {
			t.Errorf("%s: the name of its package says nothing", file)
		}
	}
}

func TestTheTextIsOursAndFinished(t *testing.T) {
	unfinished := regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b|t\.Sk` + `ip\w*\(`)
	foreign := regexp.MustCompile(`Copy` + `right .*(Kubernetes|kcp|KCP|etcd|cert-manager|CoreOS)`)
	for _, file := range files(t, "*.go") {
		content, err := os.ReadFile(filepath.Join(root, file))
		if os.IsNotExist(err) {
			continue // deleted, not yet committed
		}
		if err != nil {
			t.Fatal(err)
		}
		if found := unfinished.Find(content); found != nil {
			t.Errorf("%s: contains %q", file, found)
		}
		if found := foreign.Find(content); found != nil {
			t.Errorf("%s: has the licence header of another project: %q", file, found)
		}
	}
}

// A time in nanoseconds of the epoch, or without its monotonic part, is that of the machine, which may be set an hour back or forth. How long
// something has taken or waited must not be computed from it.
func TestWaitingIsMeasuredWithoutTheClockOfTheMachine(t *testing.T) {
	settable := regexp.MustCompile(`\.Unix(Nano|Micro|Milli)\(\)|\btime\.Now\(\)\.(Round|Truncate)\(`)
	for _, file := range files(t, "*.go") {
		if layer, _, _ := strings.Cut(file, "/"); !slices.Contains([]string{"server", "client", "cli"}, layer) || strings.HasSuffix(file, "_test.go") {
			continue
		}
		content, err := os.ReadFile(filepath.Join(root, file))
		if err != nil && !os.IsNotExist(err) { // deleted, not yet committed
			t.Fatal(err)
		}
		if found := settable.Find(content); found != nil {
			t.Errorf("%s: contains %q; measure with time.Since of a time.Time", file, found)
		}
	}
}

// Every row of the threat model names the tests that prove it, as `package` `Test`, `Test`; `package` …
func TestTheThreatModelNamesTestsThatExist(t *testing.T) {
	quoted := regexp.MustCompile("`([^`]+)`")
	headings := []string{" boundary ", " attack "}
	for _, file := range []string{"docs/isolation.md", "SECURITY.md"} {
		content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
		if err != nil {
			t.Fatal(err)
		}
		rows := 0
		for _, line := range strings.Split(string(content), "\n") {
			cells := strings.Split(line, "|")
			if len(cells) != 5 || strings.HasPrefix(cells[1], "---") || slices.Contains(headings, cells[1]) {
				continue
			}
			rows++
			if !strings.Contains(cells[3], "`Test") && !strings.Contains(cells[3], "`Fuzz") {
				t.Errorf("%s: %s: no test proves it", file, strings.TrimSpace(cells[1]))
			}
			pkg, source := "", ""
			for _, found := range quoted.FindAllStringSubmatch(cells[3], -1) {
				name := found[1]
				if !strings.HasPrefix(name, "Test") && !strings.HasPrefix(name, "Fuzz") {
					pkg, source = name, testSource(t, name)
				} else if !strings.Contains(source, "func "+name+"(") {
					t.Errorf("%s: %s: %s is not in %s", file, strings.TrimSpace(cells[1]), name, pkg)
				}
			}
		}
		if rows == 0 {
			t.Errorf("%s: the threat model has no rows", file)
		}
	}
}

// testSource returns the tests of a package, given by its directory.
func testSource(t *testing.T, pkg string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pkg), "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var source strings.Builder
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		source.Write(content)
	}
	return source.String()
}
