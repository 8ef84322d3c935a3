package crd

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// named returns a minimal definition.
func named(name string) string {
	return "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: " + name + "}\n"
}

func TestRead(t *testing.T) {
	for _, row := range []struct{ name, text, want string }{
		{"one", named("a.b"), "a.b"},
		{"documents", "# a comment\n---\n" + named("a.b") + "---\n---\n" + named("c.d"), "a.b c.d"},
		{"a list", "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: a.b}}", "a.b"},
		{"JSON", `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "a.b"}}`, "a.b"},
		{"nothing", "---\n", "no CustomResourceDefinition found"},
		{"something else", named("a.b") + "---\napiVersion: v1\nkind: Secret", "document 2: expected a CustomResourceDefinition, got a Secret"},
		{"something else in a list", "kind: List\nitems: [{kind: Secret}]", "document 1: expected a CustomResourceDefinition, got a Secret"},
		{"an old version", "apiVersion: apiextensions.k8s.io/v1beta1\nkind: CustomResourceDefinition", "of apiextensions.k8s.io/v1, got apiextensions.k8s.io/v1beta1"},
		{"an unknown field", named("a.b") + "spec: {scop: Cluster}", `unknown field "scop"`},
		{"no YAML", "a: b: c", "document 1: "},
	} {
		t.Run(row.name, func(t *testing.T) {
			definitions, err := Read(strings.NewReader(row.text))
			var names []string
			for _, d := range definitions {
				names = append(names, d.Name)
			}
			if got := strings.Join(names, " "); got != row.want && (err == nil || !strings.Contains(err.Error(), row.want)) {
				t.Errorf("%q, %v; want %q", got, err, row.want)
			}
		})
	}
}

func TestGroupsOfKubernetesWithoutDotAreValid(t *testing.T) {
	for group, accepted := range map[string]bool{"": true, "apps": true, "example.com": true, "fruit": false} {
		definition := &apiextensionsv1.CustomResourceDefinition{}
		definition.Name = "apples." + group
		definition.Spec = apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "apples", Kind: "Apple"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}}}},
		}
		if problems := Problems(definition); (len(problems) == 0) != accepted {
			t.Errorf("in the group %q: %v", group, problems)
		}
	}
}

func TestCleanRemovesServerSpecificFields(t *testing.T) {
	definitions, err := Read(strings.NewReader(named("a.b")))
	if err != nil {
		t.Fatal(err)
	}
	d := definitions[0]
	d.UID, d.ResourceVersion, d.Labels = "1", "2", map[string]string{"app": "a"}
	d.Annotations = map[string]string{"kcp.io/cluster": "c", "api-approved.kubernetes.io": "yes"}
	d.Status.StoredVersions = []string{"v1"}
	clean := Clean(d)
	if clean.UID != "" || clean.ResourceVersion != "" || clean.Status.StoredVersions != nil || metav1.HasAnnotation(clean.ObjectMeta, "kcp.io/cluster") {
		t.Errorf("left: %+v", clean)
	}
	if clean.Name != "a.b" || clean.Labels["app"] != "a" || !metav1.HasAnnotation(clean.ObjectMeta, "api-approved.kubernetes.io") || clean.Kind != Kind {
		t.Errorf("lost: %+v", clean)
	}
}
