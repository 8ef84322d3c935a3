package main

import (
	"archive/tar"
	"bytes"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// built compiles a minimal program for an architecture into <dir>/linux-<arch>/program.
func built(t *testing.T, dir, arch string) string {
	t.Helper()
	source := filepath.Join(dir, "main.go")
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() { println(\"here\") }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "linux-"+arch, "program")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", program, source)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// content returns the files of an image with their modes.
func content(t *testing.T, image v1.Image) map[string]int64 {
	t.Helper()
	files := map[string]int64{}
	extracted := mutate.Extract(image)
	defer extracted.Close()
	for r := tar.NewReader(extracted); ; {
		header, err := r.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimSuffix(header.Name, "/")] = header.Mode
	}
}

func TestImagesOfAnArchiveDifferOnlyInTheirCommands(t *testing.T) {
	dir := t.TempDir()
	program := built(t, dir, "amd64")
	out := filepath.Join(dir, "image.tar")
	err := run([]string{"-o", out, "-arch=amd64", "-user=65532", "-image=localhost/a:v1=/bin/program a", "-image=localhost/b:v1=/bin/program b",
		program + "=/bin/program"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"a", "b"} {
		tag, err := name.NewTag("localhost/" + part + ":v1")
		if err != nil {
			t.Fatal(err)
		}
		image, err := tarball.ImageFromPath(out, &tag)
		if err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if got := config.Config.Entrypoint; len(got) != 2 || got[0] != "/bin/program" || got[1] != part {
			t.Errorf("image %s has command %q", part, got)
		}
		if config.Config.User != "65532" || config.Architecture != "amd64" {
			t.Errorf("image %s has user %q and architecture %q", part, config.Config.User, config.Architecture)
		}
		files := content(t, image)
		if files["bin/program"] != 0o755 || files["tmp"] != 0o1777 || files["etc/passwd"] != 0o644 {
			t.Errorf("image %s has files %v", part, files)
		}
	}
}

func TestPushCopiesImagesForEveryArchitecture(t *testing.T) {
	dir := t.TempDir()
	for _, arch := range []string{"amd64", "arm64"} {
		built(t, dir, arch)
	}
	var made, pushed bytes.Buffer
	for _, tag := range []string{"v0", "v1"} { // the second run replaces the images of the first
		made.Reset()
		err := run([]string{"-layout", dir + "/layout", "-arch=amd64,arm64", "-user=65532", "-label=org.opencontainers.image.version=" + tag,
			"-image=example.com/team/one:v1=/program serve", dir + "/linux-{arch}/program=/program"}, &made)
		if err != nil {
			t.Fatal(err)
		}
	}
	server := httptest.NewServer(registry.New())
	defer server.Close()
	to := strings.TrimPrefix(server.URL, "http://") + "/mirror"
	if err := run([]string{"-push", dir + "/layout", "-registry", to}, &pushed); err != nil {
		t.Fatal(err)
	}
	_, digest, _ := strings.Cut(strings.TrimSpace(made.String()), "@")
	if got, want := pushed.String(), to+"/one:v1@"+digest+"\n"; got != want || !strings.HasPrefix(digest, "sha256:") {
		t.Errorf("pushed %q, made %q", got, made.String())
	}
	reference, err := name.ParseReference(to + "/one@" + digest)
	if err != nil {
		t.Fatal(err)
	}
	index, err := remote.Index(reference)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var archs []string
	for _, descriptor := range manifest.Manifests {
		archs = append(archs, descriptor.Platform.String())
		image, err := remote.Image(reference, remote.WithPlatform(*descriptor.Platform))
		if err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if config.Architecture != descriptor.Platform.Architecture || config.Config.User != "65532" ||
			strings.Join(config.Config.Entrypoint, " ") != "/program serve" || config.Config.Labels["org.opencontainers.image.version"] != "v1" {
			t.Errorf("%s: %+v", descriptor.Platform, config.Config)
		}
		var files []string
		for file := range content(t, image) {
			files = append(files, file)
		}
		slices.Sort(files)
		if got := strings.Join(files, " "); got != "etc etc/passwd program tmp" {
			t.Errorf("%s has files %s", descriptor.Platform, got)
		}
	}
	if strings.Join(archs, " ") != "linux/amd64 linux/arm64" {
		t.Errorf("got architectures %v", archs)
	}
}

func TestProgramsThatCannotRunInTheImageAreRefused(t *testing.T) {
	dir := t.TempDir()
	program := built(t, dir, "amd64")
	for _, test := range []struct{ why, file, arch, want string }{
		{"a program for another architecture", program, "arm64", "not for arm64"},
		{"a program that needs a loader", "/bin/sh", runtime.GOARCH, "CGO_ENABLED=0"},
		{"a missing file", dir + "/missing", "amd64", "no such file"},
	} {
		err := run([]string{"-o", dir + "/image.tar", "-arch", test.arch, "-image=localhost/a:v1=/program", test.file + "=/program"}, io.Discard)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", test.why, err)
		}
	}
}

func TestImagesAreReproducible(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("content"), 0o644); err != nil {
		t.Fatal(err)
	}
	var digests [2]bytes.Buffer
	for i := range digests {
		err := run([]string{"-layout", filepath.Join(dir, "layout", string(rune('a'+i))), "-arch=amd64,arm64", "-user=65532", "-label=b=1", "-label=a=2",
			"-image=example.com/one:v1=/file", "-image=example.com/two:v1=/file", file + "=/file"}, &digests[i])
		if err != nil {
			t.Fatal(err)
		}
	}
	if first, second := digests[0].String(), digests[1].String(); first != second || strings.Count(first, "@sha256:") != 2 {
		t.Errorf("got different images:\n%s\nand\n%s", first, second)
	}
}

func TestLayersAreReproducible(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "below", "file")
	if err := os.Mkdir(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	first, err := pack([]string{dir + "=/all"}, "amd64")
	if err != nil {
		t.Fatal(err)
	}
	if end := make([]byte, 1024); len(first)%512 != 0 || !bytes.HasSuffix(first, end) {
		t.Error("the archive has no end marker, without which tar fails to read it")
	}
	if !bytes.Contains(first, []byte("all/below/file")) {
		t.Error("files below a directory are missing")
	}
	if err := os.Chtimes(file, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	second, err := pack([]string{dir + "=/all"}, "amd64")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, second) {
		t.Error("the layer depends on the modification times of its files")
	}
}
