package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// source is the content of config/.
type source struct {
	base        v1alpha1.ClusterServiceVersion
	deployment  appsv1.Deployment
	rules       []rbacv1.PolicyRule // of the operator, in the namespaces that it manages
	leaderRules []rbacv1.PolicyRule // in its own namespace
	definitions []definition
	samples     []map[string]any
	icon        []byte
	version     string // tag of the operator's image
}

// definition is a CustomResourceDefinition, and its file.
type definition struct {
	apiextensionsv1.CustomResourceDefinition
	file string
	text []byte
}

func read(config string) (*source, error) {
	s := &source{}
	if err := parse(filepath.Join(config, "olm/csv.yaml"), &s.base); err != nil {
		return nil, err
	}
	manager, err := documents(filepath.Join(config, "manager/manager.yaml"))
	if err != nil {
		return nil, err
	}
	roles, err := documents(filepath.Join(config, "rbac/role.yaml"))
	if err != nil {
		return nil, err
	}
	var role, leader rbacv1.Role
	for kind, into := range map[string]any{"Deployment": &s.deployment, "ClusterRole": &role, "Role": &leader} {
		text := append(manager[kind], roles[kind]...)
		if text == nil {
			return nil, fmt.Errorf("%s has no %s", config, kind)
		}
		if err := yaml.UnmarshalStrict(text, into); err != nil {
			return nil, err
		}
	}
	s.rules, s.leaderRules = role.Rules, leader.Rules
	image := s.operator().Image
	s.version = strings.TrimPrefix(image[strings.LastIndexByte(image, ':')+1:], "v")
	if s.icon, err = os.ReadFile(filepath.Join(config, "olm/icon.svg")); err != nil {
		return nil, err
	}
	return s, errors.Join(s.readDefinitions(config), s.readSamples(config))
}

func (s *source) readDefinitions(config string) error {
	files, err := filepath.Glob(filepath.Join(config, "crd/bases/*.yaml"))
	if err != nil {
		return err
	}
	for _, file := range files {
		d := definition{file: filepath.Base(file)}
		if err := parse(file, &d.CustomResourceDefinition); err != nil {
			return err
		}
		if d.text, err = os.ReadFile(file); err != nil {
			return err
		}
		s.definitions = append(s.definitions, d)
	}
	return nil
}

func (s *source) readSamples(config string) error {
	files, err := filepath.Glob(filepath.Join(config, "samples/*.yaml"))
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if bytes.Contains(text, []byte("\n---\n")) {
			continue // an installation of several objects
		}
		var sample map[string]any
		if err := parse(file, &sample); err != nil {
			return err
		}
		s.samples = append(s.samples, sample)
	}
	return nil
}

func parse(file string, into any) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := yaml.UnmarshalStrict(text, into); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// documents returns the YAML documents of a file, by kind.
func documents(file string) (map[string][]byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	byKind := map[string][]byte{}
	for _, document := range bytes.Split(append([]byte("\n"), text...), []byte("\n---\n")) {
		var object struct{ Kind string }
		if err := yaml.Unmarshal(document, &object); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		byKind[object.Kind] = document
	}
	return byKind, nil
}

// pin replaces the tags of images by their digests in a layout.
func (s *source) pin(layout string) error {
	text, err := os.ReadFile(filepath.Join(layout, "index.json"))
	if err != nil {
		return err
	}
	var index struct {
		Manifests []struct {
			Digest      string
			Annotations map[string]string
		}
	}
	if err := json.Unmarshal(text, &index); err != nil {
		return err
	}
	var missing []error
	pinned := func(image string) string {
		for _, m := range index.Manifests {
			if m.Annotations["org.opencontainers.image.ref.name"] == image {
				return image[:strings.LastIndexByte(image, ':')] + "@" + m.Digest
			}
		}
		missing = append(missing, fmt.Errorf("%s has no image %s", layout, image))
		return image
	}
	for i := range s.base.Spec.RelatedImages {
		s.base.Spec.RelatedImages[i].Image = pinned(s.base.Spec.RelatedImages[i].Image)
	}
	container := s.operator()
	container.Image = pinned(container.Image)
	for i, arg := range container.Args {
		if image, ok := strings.CutPrefix(arg, imageFlag); ok {
			container.Args[i] = imageFlag + pinned(image)
		}
	}
	return errors.Join(missing...)
}
