package repository

import (
	"archive/zip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// packed is a module of this repository in a file-system proxy, as go get finds a release.
type packed struct{ path, version string }

// pack writes the libraries into a proxy. Their versions are computed from their contents: Go keeps modules in its cache by version.
func pack(t *testing.T, proxy string) (list []packed) {
	t.Helper()
	contents := map[string][]byte{}
	sum := sha256.New()
	for _, library := range libraries {
		for _, file := range files(t, library+"/*") {
			content, err := os.ReadFile(filepath.Join(root, file))
			if os.IsNotExist(err) {
				continue // deleted, not yet committed
			}
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(sum, "%s %d\n%s", file, len(content), content)
			contents[file] = content
		}
	}
	version := "v0.1.1-0.20060102150405-" + hex.EncodeToString(sum.Sum(nil))[:12]
	// The modules require each other in the version of a release, which is the one that is packed.
	required := regexp.MustCompile(`(` + module + `/[a-z]+) v\S+`)
	for _, library := range libraries {
		m := packed{module + "/" + library, version}
		mod := required.ReplaceAll(contents[library+"/go.mod"], []byte("$1 "+version))
		contents[library+"/go.mod"] = mod
		dir := filepath.Join(proxy, filepath.FromSlash(m.path), "@v")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "list"), version)
		write(t, filepath.Join(dir, version+".info"), fmt.Sprintf(`{"Version":%q}`, version))
		write(t, filepath.Join(dir, version+".mod"), string(mod))
		archive, err := os.Create(filepath.Join(dir, version+".zip"))
		if err != nil {
			t.Fatal(err)
		}
		w := zip.NewWriter(archive)
		for file, content := range contents {
			name, inside := strings.CutPrefix(file, library+"/")
			if !inside {
				continue
			}
			entry, err := w.Create(m.path + "@" + version + "/" + name)
			if err == nil {
				_, err = entry.Write(content)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := archive.Close(); err != nil {
			t.Fatal(err)
		}
		list = append(list, m)
	}
	return list
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A controller of the docs, and a test of one, are a module in another place: it requires our libraries, and replaces nothing.
func TestOtherModulesRequireTheLibraries(t *testing.T) {
	proxy, dir := t.TempDir(), t.TempDir()
	modules := pack(t, proxy)
	environment := strings.Split(strings.TrimSpace(string(output(t, root, "go", "env", "GOMODCACHE", "GOPROXY"))), "\n")
	cache, upstream := environment[0], environment[1]
	outside := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOPROXY="+strings.Join([]string{"file://" + proxy, "file://" + cache + "/cache/download", upstream}, ","),
			"GOFLAGS=-buildvcs=false -modcacherw", "GOWORK=off", "GONOSUMDB="+module+"/*", "GONOPROXY=none", "GOPRIVATE=")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	t.Cleanup(func() {
		for _, m := range modules {
			_ = os.RemoveAll(filepath.Join(cache, m.path+"@"+m.version))
			versions := filepath.Join(cache, "cache", "download", m.path, "@v")
			for _, suffix := range []string{".info", ".lock", ".mod", ".zip", ".ziphash"} {
				_ = os.Remove(filepath.Join(versions, m.version+suffix))
			}
			_ = os.Remove(filepath.Join(versions, "list"))
		}
	})
	outside("mod", "init", "example.com/controller")
	for _, m := range modules {
		outside("mod", "edit", "-require="+m.path+"@"+m.version)
	}
	if err := os.Mkdir(filepath.Join(dir, "widgets"), 0o755); err != nil {
		t.Fatal(err)
	}
	for to, from := range map[string]string{
		"main.go": "test/e2e/tutorial/controller/main.go", "widgets/widgets_test.go": "client/kcptest/widgets_test.go",
	} {
		content, err := os.ReadFile(filepath.Join(root, from))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, to), string(content))
	}
	outside("mod", "tidy")
	for line := range strings.Lines(outside("list", "-m", "all")) {
		if strings.HasPrefix(line, module+" ") || strings.HasPrefix(line, "k8s.io/kubernetes ") || strings.Contains(line, "=>") {
			t.Errorf("the module of a controller has %s", line)
		}
	}
	for line := range strings.Lines(outside("list", "-deps", "-test", "./...")) {
		for _, server := range []string{"k8s.io/apiserver/", "k8s.io/apiextensions-apiserver/pkg/apiserver", "go.etcd.io/etcd/server/"} {
			if strings.HasPrefix(line, server) {
				t.Errorf("a controller is built with the package %s of a server", line)
			}
		}
	}
	outside("vet", "./...")
}
