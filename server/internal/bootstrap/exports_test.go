package bootstrap

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/internal/tenancy/exports"
)

func system(t *testing.T) System {
	t.Helper()
	definitions, err := customresources.SystemDefinitions()
	if err != nil {
		t.Fatal(err)
	}
	return System{Definitions: definitions, Exports: exports.SystemOf(customresources.SystemResources(definitions))}
}

func TestEverySystemExportOffersTheResourcesOfItsGroup(t *testing.T) {
	s := system(t)
	objects, err := s.content()
	if err != nil {
		t.Fatal(err)
	}
	offered := map[string][]string{}
	limits := map[string]bool{}
	for _, obj := range objects {
		if obj.GetKind() != "APIExport" {
			continue
		}
		resources, _, _ := unstructured.NestedSlice(obj.Object, "spec", "resources")
		for _, r := range resources {
			offered[obj.GetName()] = append(offered[obj.GetName()], r.(map[string]any)["name"].(string))
		}
		_, limits[obj.GetName()], _ = unstructured.NestedMap(obj.Object, "spec", "maximalPermissionPolicy", "local")
	}
	for export, want := range map[string][]string{
		"tenancy.kcp.io":     {"workspaceauthenticationconfigurations", "workspaces", "workspacetypes"},
		"topology.kcp.io":    {"partitions", "partitionsets"},
		"shards.core.kcp.io": {"shards"},
	} {
		if !slices.Equal(offered[export], want) {
			t.Errorf("%s offers %v, want %v", export, offered[export], want)
		}
		if limits[export] != (export != "shards.core.kcp.io") {
			t.Errorf("%s has a policy: %t", export, limits[export])
		}
	}
}

func TestASystemSchemaMatchesItsDefinition(t *testing.T) {
	for _, crd := range system(t).Definitions {
		u, err := schemaOf(crd)
		if err != nil {
			t.Fatal(err)
		}
		again, err := schemaOf(crd)
		if err != nil || again.GetName() != u.GetName() || !strings.HasSuffix(u.GetName(), "."+crd.Name) {
			t.Errorf("the schema of %s is called %s, and then %s: %v", crd.Name, u.GetName(), again.GetName(), err)
		}
		schema := &apisv1alpha1.APIResourceSchema{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, schema); err != nil {
			t.Fatal(err)
		}
		definition, err := customresources.DefinitionOf(schema)
		if err != nil || definition.Name != crd.Name || definition.Spec.Scope != crd.Spec.Scope || len(definition.Spec.Versions) != len(crd.Spec.Versions) {
			t.Errorf("the schema of %s defines %v, %v", crd.Name, definition, err)
		}
		crd.Spec.Names.ShortNames = append(slices.Clone(crd.Spec.Names.ShortNames), "other")
		if changed, err := schemaOf(crd); err != nil || changed.GetName() == u.GetName() {
			t.Errorf("%s has another content under the same name: %v", crd.Name, err)
		}
	}
}
