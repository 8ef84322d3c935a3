package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Annotations with the reference of an image in a layout: the standard one, and the one of containerd.
const (
	referenceAnnotation  = "org.opencontainers.image.ref.name"
	containerdAnnotation = "io.containerd.image.name"
)

// addTo adds an index with all architectures of each image to a layout, and prints its digest.
func (p *packed) addTo(dir string, archs []string, out io.Writer) error {
	var tags []name.Tag
	indexes := map[name.Tag]v1.ImageIndex{}
	for _, arch := range archs {
		var images map[name.Tag]v1.Image
		var err error
		if tags, images, err = p.make(arch); err != nil {
			return err
		}
		for tag, image := range images {
			if indexes[tag] == nil {
				indexes[tag] = mutate.Annotations(empty.Index, p.labels).(v1.ImageIndex)
			}
			platform := &v1.Platform{OS: "linux", Architecture: arch}
			indexes[tag] = mutate.AppendManifests(indexes[tag], mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: platform}})
		}
	}
	to, err := layout.FromPath(dir)
	if errors.Is(err, fs.ErrNotExist) {
		to, err = layout.Write(dir, empty.Index)
	}
	if err != nil {
		return err
	}
	for _, tag := range tags {
		reference := tag.Name()
		annotations := layout.WithAnnotations(map[string]string{referenceAnnotation: reference, containerdAnnotation: reference})
		if err := to.ReplaceIndex(indexes[tag], match.Annotation(referenceAnnotation, reference), annotations); err != nil {
			return err
		}
		digest, err := indexes[tag].Digest()
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s@%s\n", reference, digest)
	}
	return nil
}

// push pushes the images of a layout to the registries in their references, or to another registry with a path.
func push(dir, registry string, out io.Writer) error {
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	for _, descriptor := range manifest.Manifests {
		tag, err := name.NewTag(descriptor.Annotations[referenceAnnotation], name.StrictValidation)
		if err != nil {
			return err
		}
		if registry != "" {
			if tag, err = name.NewTag(registry+"/"+path.Base(tag.RepositoryStr())+":"+tag.TagStr(), name.StrictValidation); err != nil {
				return err
			}
		}
		image, err := index.ImageIndex(descriptor.Digest)
		if err != nil {
			return err
		}
		if err := remote.WriteIndex(tag, image, remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
			return fmt.Errorf("pushing %s: %w", tag, err)
		}
		fmt.Fprintf(out, "%s@%s\n", tag, descriptor.Digest)
	}
	return nil
}
