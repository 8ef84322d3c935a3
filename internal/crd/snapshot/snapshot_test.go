package snapshot

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/kcplane/kcp/internal/crd"
)

var update = flag.Bool("update", false, "write what is found into the golden files")

func read(t *testing.T, file string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	from, err := os.Open(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = from.Close() }()
	definitions, err := crd.Read(from)
	if err != nil {
		t.Fatal(err)
	}
	return definitions[0]
}

func TestTakeMatchesGoldenFile(t *testing.T) {
	schema, err := Take(read(t, "everything.yaml"), "v1")
	if err != nil {
		t.Fatal(err)
	}
	got, err := yaml.Marshal(schema)
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "everything.schema.yaml")
	if *update {
		if err := os.WriteFile(golden, got, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTakeRefusesUnsupportedDefinitions(t *testing.T) {
	for _, row := range []struct {
		name, prefix, want string
		change             func(*apiextensionsv1.CustomResourceDefinitionSpec)
	}{
		{"a prefix", "V1.", "must be lower case letters", func(*apiextensionsv1.CustomResourceDefinitionSpec) {}},
		{"a service", "v1", "spec.conversion.webhook refers to the Service system/converter, which other workspaces cannot reach",
			func(s *apiextensionsv1.CustomResourceDefinitionSpec) {
				s.Conversion.Webhook.ClientConfig.Service = &apiextensionsv1.ServiceReference{Namespace: "system", Name: "converter"}
			}},
		{"no webhook", "v1", "spec.conversion.webhook is required for the strategy Webhook",
			func(s *apiextensionsv1.CustomResourceDefinitionSpec) { s.Conversion.Webhook = nil }},
		{"unknown fields", "v1", "spec.preserveUnknownFields: true is not supported",
			func(s *apiextensionsv1.CustomResourceDefinitionSpec) { s.PreserveUnknownFields = true }},
		{"no schema", "v1", "version v1 has no schema",
			func(s *apiextensionsv1.CustomResourceDefinitionSpec) { s.Versions[0].Schema = nil }},
	} {
		t.Run(row.name, func(t *testing.T) {
			definition := read(t, "everything.yaml")
			row.change(&definition.Spec)
			if _, err := Take(definition, row.prefix); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("%v; want %q", err, row.want)
			}
		})
	}
}

func TestConversionIsSetForSeveralVersions(t *testing.T) {
	definition := read(t, "everything.yaml")
	definition.Spec.Conversion = nil
	if schema, err := Take(definition, "v1"); err != nil || schema.Spec.Conversion == nil || schema.Spec.Conversion.Strategy != "None" {
		t.Errorf("two versions: %+v, %v", schema, err)
	}
	definition.Spec.Versions = definition.Spec.Versions[:1]
	if schema, err := Take(definition, "v1"); err != nil || schema.Spec.Conversion != nil {
		t.Errorf("one version: %+v, %v", schema, err)
	}
}

func TestEmptyGroupIsCore(t *testing.T) {
	if got := Name("v1", "pods", ""); got != "v1.pods.core" {
		t.Error(got)
	}
}
