package main

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func TestImagesOfAnArchiveShareTheirFilesAndStartDifferently(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	if err := os.WriteFile(program, []byte("static"), 0o755); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "image.tar")
	images := []string{"localhost/a:v1=/bin/program a", "localhost/b:v1=/bin/program b"}
	if err := write(out, "65532", "arm64", images, []string{program + "=/bin/program"}); err != nil {
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
			t.Errorf("%s starts %q", part, got)
		}
		if config.Config.User != "65532" || config.Architecture != "arm64" {
			t.Errorf("%s is for user %q on %q", part, config.Config.User, config.Architecture)
		}
		files := map[string]int64{}
		content := mutate.Extract(image)
		for r := tar.NewReader(content); ; {
			header, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			files[header.Name] = header.Mode
		}
		if err := content.Close(); err != nil {
			t.Fatal(err)
		}
		if files["bin/program"] != 0o755 || files["tmp"] != 0o1777 || files["etc/passwd"] != 0o644 {
			t.Errorf("%s has the files %v", part, files)
		}
	}
}

func TestTheSameFilesMakeTheSameLayer(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("static"), 0o755); err != nil {
		t.Fatal(err)
	}
	first, err := pack([]string{program + "=/program"})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(program, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	second, err := pack([]string{program + "=/program"})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, second) {
		t.Error("the layer depends on when its files were written")
	}
}
