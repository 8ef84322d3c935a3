package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// packed is the common content of images, and their commands.
type packed struct {
	user   string
	labels map[string]string
	images []string // REFERENCE=COMMAND
	files  []string // FILE=/PATH
}

// write writes an archive of the images of one architecture, with fast compression.
func (p *packed) write(archive, arch string) error {
	_, made, err := p.make(arch, tarball.WithCompressionLevel(gzip.BestSpeed))
	if err != nil {
		return err
	}
	return tarball.MultiWriteToFile(archive, made)
}

// make returns the images of one architecture, and their names in the order of the flags.
func (p *packed) make(arch string, options ...tarball.LayerOption) ([]name.Tag, map[name.Tag]v1.Image, error) {
	content, err := pack(p.files, arch)
	if err != nil {
		return nil, nil, err
	}
	options = append(options, tarball.WithMediaType(types.OCILayer))
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }, options...)
	if err != nil {
		return nil, nil, err
	}
	var tags []name.Tag
	made := map[name.Tag]v1.Image{}
	for _, image := range p.images {
		reference, command, ok := strings.Cut(image, "=")
		if !ok {
			return nil, nil, fmt.Errorf("-image %s: expected REFERENCE=COMMAND", image)
		}
		tag, err := name.NewTag(reference, name.StrictValidation)
		if err != nil {
			return nil, nil, err
		}
		tags = append(tags, tag)
		if made[tag], err = p.image(layer, arch, strings.Fields(command)); err != nil {
			return nil, nil, err
		}
	}
	return tags, made, nil
}

func (p *packed) image(layer v1.Layer, arch string, command []string) (v1.Image, error) {
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	made, err := mutate.AppendLayers(base, layer)
	if err != nil {
		return nil, err
	}
	config, err := made.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", arch
	config.Config = v1.Config{Entrypoint: command, User: p.user, Env: []string{"PATH=/:/bin"}, Labels: p.labels}
	return mutate.ConfigFile(made, config)
}

// pack returns the only layer: the files, and the directories and files that programs expect on every system. The result is reproducible.
func pack(files []string, arch string) ([]byte, error) {
	var content bytes.Buffer
	l := layer{Writer: tar.NewWriter(&content), added: map[string]bool{}}
	err := errors.Join(
		l.directory("etc", 0o755), l.directory("tmp", 0o1777),
		l.file("etc/passwd", 0o644, []byte("root:x:0:0::/:\nnonroot:x:65532:65532::/:\n")),
	)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		source, target, ok := strings.Cut(strings.ReplaceAll(file, "{arch}", arch), "=")
		if !ok || !path.IsAbs(target) {
			return nil, fmt.Errorf("%s: expected FILE=/PATH", file)
		}
		if err := l.tree(source, path.Clean(target), arch); err != nil {
			return nil, err
		}
	}
	if err := l.Close(); err != nil { // writes the end marker of the archive
		return nil, err
	}
	return content.Bytes(), nil
}

// layer is the layer of an image.
type layer struct {
	*tar.Writer
	added map[string]bool // directories
}

// tree adds a file, or all files of a directory, and their parent directories.
func (l layer) tree(source, target, arch string) error {
	return filepath.WalkDir(source, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := runs(content, arch); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		info, err := os.Stat(file) // follows links
		if err != nil {
			return err
		}
		below, err := filepath.Rel(source, file)
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path.Join(target, filepath.ToSlash(below)), "/")
		for i, char := range name {
			if char == '/' {
				if err := l.directory(name[:i], 0o755); err != nil {
					return err
				}
			}
		}
		return l.file(name, int64(info.Mode().Perm()), content)
	})
}

func (l layer) directory(name string, mode int64) error {
	if l.added[name] {
		return nil
	}
	l.added[name] = true
	return l.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode})
}

func (l layer) file(name string, mode int64, content []byte) error {
	if err := l.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(content))}); err != nil {
		return err
	}
	_, err := l.Write(content)
	return err
}

// runs returns an error if a file is a program that cannot run in the image: a program for another architecture, or one that needs a
// loader and libraries, which the image does not have.
func runs(content []byte, arch string) error {
	if !bytes.HasPrefix(content, []byte(elf.ELFMAG)) {
		return nil
	}
	program, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return err
	}
	if want := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[arch]; program.Machine != want {
		return fmt.Errorf("the program is for %v, not for %s", program.Machine, arch)
	}
	for _, header := range program.Progs {
		if header.Type == elf.PT_INTERP {
			return errors.New("the program is linked dynamically: build it with CGO_ENABLED=0")
		}
	}
	return nil
}
