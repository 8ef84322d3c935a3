package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	"sigs.k8s.io/yaml"
)

const config = "../../config"

// made writes the bundle to a new directory and returns the directory.
func made(t *testing.T) string {
	t.Helper()
	s, err := read(config)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := write(s, dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestBundleMatchesConfig(t *testing.T) {
	dir := made(t)
	if err := check(dir, false); err != nil {
		t.Fatal(err)
	}
	bundle, err := manifests.GetBundleFromDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := read(config)
	if err != nil {
		t.Fatal(err)
	}
	if len(bundle.V1CRDs) != len(s.definitions) || len(s.definitions) == 0 {
		t.Errorf("got %d definitions, want %d", len(bundle.V1CRDs), len(s.definitions))
	}
	var examples []map[string]any
	if err := json.Unmarshal([]byte(bundle.CSV.Annotations["alm-examples"]), &examples); err != nil || len(examples) != len(s.samples) {
		t.Errorf("got %d examples, want %d: %v", len(examples), len(s.samples), err)
	}
	var granted int
	strategy := bundle.CSV.Spec.InstallStrategy.StrategySpec
	for _, p := range append(strategy.Permissions, strategy.ClusterPermissions...) {
		granted += len(p.Rules)
	}
	if granted != len(s.rules)+len(s.leaderRules) {
		t.Errorf("got %d rules, want %d", granted, len(s.rules)+len(s.leaderRules))
	}
	found := false
	for _, v := range strategy.DeploymentSpecs[0].Spec.Template.Spec.Containers[0].Env {
		found = found || v.Name == "WATCH_NAMESPACE" && v.ValueFrom != nil && v.ValueFrom.FieldRef.FieldPath == "metadata.annotations['olm.targetNamespaces']"
	}
	if !found {
		t.Error("the operator has no environment variable with the selected namespaces")
	}
	for _, owned := range bundle.CSV.Spec.CustomResourceDefinitions.Owned {
		if owned.Kind == "Kubeconfig" && !has(owned.SpecDescriptors, "secretRef.name", asSecret) {
			t.Errorf("the Secret of a Kubeconfig has no descriptor: %+v", owned.SpecDescriptors)
		}
	}
}

func has(descriptors []v1alpha1.SpecDescriptor, path, as string) bool {
	for _, d := range descriptors {
		if d.Path == path && len(d.XDescriptors) == 1 && d.XDescriptors[0] == as {
			return true
		}
	}
	return false
}

func TestReleaseRefersToImagesByDigest(t *testing.T) {
	s, err := read(config)
	if err != nil {
		t.Fatal(err)
	}
	csv, err := s.clusterServiceVersion()
	if err != nil {
		t.Fatal(err)
	}
	digest := "sha256:" + strings.Repeat("ab", 32)
	var index struct {
		Manifests []map[string]any `json:"manifests"`
	}
	for _, image := range csv.Spec.RelatedImages {
		index.Manifests = append(index.Manifests, map[string]any{
			"digest": digest, "annotations": map[string]string{"org.opencontainers.image.ref.name": image.Image},
		})
	}
	layout, out := t.TempDir(), t.TempDir()
	put := func() {
		text, err := json.Marshal(index)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(layout, "index.json"), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put()
	if err := run(config, layout, out); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(out, "manifests", packageName+".clusterserviceversion.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "@"+digest); n != 6 { // three related, two in the Deployment, one shown
		t.Errorf("got %d digests:\n%s", n, text)
	}
	index.Manifests = index.Manifests[1:]
	put()
	if err := run(config, layout, out); err == nil || !strings.Contains(err.Error(), "has no image ghcr.io/kcplane/etcd") {
		t.Errorf("with a missing image: got error %v", err)
	}
}

// Catalogs refuse each of these.
func TestBundleThatCatalogsWouldRefuseIsRefused(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*source)
		want   string
	}{
		{"no provider", func(s *source) { s.base.Spec.Provider.Name = "" }, "Provider.Name"},
		{"an unknown capability", func(s *source) { s.base.Annotations["capabilities"] = "Anything" }, "capabilities"},
		{"an unknown category", func(s *source) { s.base.Annotations["categories"] = "Anything" }, "categor"},
		{"an invalid version of Kubernetes", func(s *source) { s.base.Spec.MinKubeVersion = "new" }, "MinKubeVersion"},
		{"no icon", func(s *source) { s.icon = nil }, "Icon"},
		{"a missing install mode", func(s *source) { s.base.Spec.InstallModes = s.base.Spec.InstallModes[1:] }, "OwnNamespace"},
		{"an example of an unknown kind", func(s *source) { s.samples[0]["kind"] = "Other" }, "provided API"},
		{"a kind without an example", func(s *source) {
			kind := s.samples[0]["kind"]
			s.samples = slices.DeleteFunc(s.samples, func(sample map[string]any) bool { return sample["kind"] == kind })
		}, "example"},
		{"an invalid definition", func(s *source) {
			s.definitions[0].text = []byte(strings.Replace(string(s.definitions[0].text), "type: string", "type: string-ish", 1))
		}, "string-ish"},
		{"a missing definition", func(s *source) { s.definitions[0].text = s.definitions[1].text }, "not found in bundle"},
		{"no requests", func(s *source) { s.operator().Resources.Requests = nil }, "resource requests"},
		{"an invalid version", func(s *source) { s.version = "1" }, "Major.Minor.Patch"},
		{"a rule for everything", func(s *source) { s.rules[0].Resources = []string{"*"} }, `contains "*"`},
		{"an image without a tag", func(s *source) { s.base.Spec.RelatedImages[0].Image = "ghcr.io/kcplane/etcd" }, "has the reference"},
		{"a privileged container", func(s *source) { s.operator().SecurityContext.Privileged = new(true) }, "privileges"},
		{"a pod that can run as root", func(s *source) { s.deployment.Spec.Template.Spec.SecurityContext = nil }, "root"},
		{"a pod with a fixed user", func(s *source) { s.deployment.Spec.Template.Spec.SecurityContext.RunAsUser = new(int64(65532)) }, "OpenShift"},
		{"a pod in the network of its node", func(s *source) { s.deployment.Spec.Template.Spec.HostNetwork = true }, "shares"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, err := read(config)
			if err != nil {
				t.Fatal(err)
			}
			test.change(s)
			dir := t.TempDir()
			if err = write(s, dir); err == nil {
				err = check(dir, false)
			}
			if err == nil || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(test.want)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestAnnotationsMustMatchTheBundle(t *testing.T) {
	for annotation, value := range map[string]string{
		"mediatype": "helm", "manifests": "other/", "metadata": "manifests/", "package": "other", "channel.default": "stable",
	} {
		dir := made(t)
		file := filepath.Join(dir, "metadata/annotations.yaml")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var content struct {
			Annotations map[string]string `json:"annotations"`
		}
		if err := yaml.Unmarshal(text, &content); err != nil {
			t.Fatal(err)
		}
		content.Annotations["operators.operatorframework.io.bundle."+annotation+".v1"] = value
		if text, err = yaml.Marshal(content); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := check(dir, false); err == nil {
			t.Errorf("annotation %s with value %s was accepted", annotation, value)
		}
	}
}
