// Command image packs static binaries into the archive of an image, without a container engine. An archive has several
// images if they differ in what they start only; these share their files.
//
//	image -o cert-manager.tar -user 65532 \
//		-image 'localhost/webhook:v1=/certmanager webhook' -image 'localhost/controller:v1=/certmanager controller' \
//		bin/certmanager=/certmanager
package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"path"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func main() {
	log.SetFlags(0)
	out := flag.String("o", "image.tar", "archive to write")
	user := flag.String("user", "", "number of the user that the images run as; root if it is empty")
	arch := flag.String("arch", runtime.GOARCH, "architecture of the binaries")
	var images []string
	flag.Func("image", "an image, as REFERENCE=COMMAND, with spaces between the words of the command; may be repeated", func(v string) error {
		images = append(images, v)
		return nil
	})
	flag.Parse()
	if len(images) == 0 || flag.NArg() == 0 {
		log.Fatal("usage: image -o ARCHIVE [-user UID] -image REFERENCE=COMMAND... FILE=/PATH...")
	}
	if err := write(*out, *user, *arch, images, flag.Args()); err != nil {
		log.Fatal(err)
	}
}

func write(out, user, arch string, images, files []string) error {
	content, err := pack(files)
	if err != nil {
		return err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}, tarball.WithCompressionLevel(1))
	if err != nil {
		return err
	}
	byTag := map[name.Tag]v1.Image{}
	for _, image := range images {
		reference, command, ok := strings.Cut(image, "=")
		if !ok || command == "" {
			return fmt.Errorf("-image %s: it has the form REFERENCE=COMMAND", image)
		}
		tag, err := name.NewTag(reference, name.StrictValidation)
		if err != nil {
			return err
		}
		made, err := mutate.AppendLayers(empty.Image, layer)
		if err != nil {
			return err
		}
		config, err := made.ConfigFile()
		if err != nil {
			return err
		}
		config = config.DeepCopy()
		config.OS, config.Architecture = "linux", arch
		config.Config = v1.Config{Entrypoint: strings.Fields(command), User: user, Env: []string{"PATH=/"}}
		if byTag[tag], err = mutate.ConfigFile(made, config); err != nil {
			return err
		}
	}
	return tarball.MultiWriteToFile(out, byTag)
}

// pack makes the one layer: the files, and what programs expect of any system. The same files make the same layer.
func pack(files []string) ([]byte, error) {
	var content bytes.Buffer
	w := tar.NewWriter(&content)
	err := errors.Join(
		addDir(w, "etc", 0o755), addDir(w, "tmp", 0o1777),
		addFile(w, "etc/passwd", 0o644, []byte("root:x:0:0::/:\nnonroot:x:65532:65532::/:\n")),
	)
	if err != nil {
		return nil, err
	}
	added := map[string]bool{"etc": true, "tmp": true}
	for _, file := range files {
		source, target, ok := strings.Cut(file, "=")
		if !ok || !path.IsAbs(target) {
			return nil, fmt.Errorf("%s: a file has the form FILE=/PATH", file)
		}
		target = strings.TrimPrefix(path.Clean(target), "/")
		for i, char := range target {
			if dir := target[:i]; char == '/' && !added[dir] {
				added[dir] = true
				if err := addDir(w, dir, 0o755); err != nil {
					return nil, err
				}
			}
		}
		info, err := os.Stat(source)
		if err != nil {
			return nil, err
		}
		data, err := os.ReadFile(source)
		if err != nil {
			return nil, err
		}
		if err := addFile(w, target, int64(info.Mode().Perm()), data); err != nil {
			return nil, err
		}
	}
	return content.Bytes(), w.Close()
}

func addDir(w *tar.Writer, name string, mode int64) error {
	return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode})
}

func addFile(w *tar.Writer, name string, mode int64, data []byte) error {
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(data))}); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}
