package definitions

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// parse returns the spec of the definition in text.
func parse(t *testing.T, text string) *apiextensionsv1.CustomResourceDefinitionSpec {
	t.Helper()
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict([]byte(text), definition); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	apiextensionsv1.SetDefaults_CustomResourceDefinition(definition)
	return &definition.Spec
}

const widgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.demo.example.com}
spec:
  group: demo.example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList, shortNames: [wg], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          apiVersion: {type: string}
          kind: {type: string}
          metadata: {type: object}
          spec:
            type: object
            required: [size]
            properties:
              size: {type: integer, minimum: 1}
              replicas: {type: integer, default: 0}
              color: {type: string, default: "", enum: ["", red]}
              port: {x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}]}
              anything: {x-kubernetes-preserve-unknown-fields: true}
              maybe: {type: string, nullable: true}
              labels: {type: object, additionalProperties: {type: string}, x-kubernetes-map-type: atomic}
              template: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}
              parts:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items: {type: object, required: [name], properties: {name: {type: string}}}
            x-kubernetes-validations:
            - {rule: self.size < 100, message: too large}
          status: {type: object, properties: {replicas: {type: integer}, selector: {type: string}}}
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas, labelSelectorPath: .status.selector}
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.size}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    selectableFields:
    - jsonPath: .spec.color
`

// Users without permission to read the definition get the same from discovery and OpenAPI.
func TestPulledDefinitionsMatchStoredOnes(t *testing.T) {
	t.Parallel()
	cluster := server.Cluster(t)
	cluster.Apply(t, widgets)
	cluster.WaitForDefinition(t, "widgets.demo.example.com")
	cluster.Kubectl(t, "create", "clusterrole", "widgets", "--verb=get,list", "--resource=widgets.demo.example.com,configmaps")
	cluster.Grant(t, kcptest.Alice, "widgets")
	for _, user := range []kcptest.User{kcptest.Masters, kcptest.Alice} {
		pulled := cluster.Command(t, "kubectl-kcp", user).Run(t, "crd", "pull", "wg")
		got := parse(t, pulled)
		if user.Name == kcptest.Alice.Name {
			withoutDescriptions(got)
			template := got.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["template"]
			template.Properties, template.Required = nil, nil // every embedded resource has these
			got.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["template"] = template
		}
		if diff := cmp.Diff(parse(t, widgets), got); diff != "" {
			t.Errorf("pulled as %s (-want +got):\n%s", user.Name, diff)
		}
		other := server.Cluster(t)
		other.Apply(t, pulled)
		other.WaitForDefinition(t, "widgets.demo.example.com")
		other.Apply(t, `{apiVersion: demo.example.com/v1, kind: Widget, metadata: {name: a, namespace: default}, spec: {size: 1, port: http}}`)
	}
	command := cluster.Command(t, "kubectl-kcp", kcptest.Alice)
	if text := command.Fail(t, "crd", "pull", "wodgets"); !strings.Contains(text, `serves no resource "wodgets"`) {
		t.Errorf("%s", text)
	}
	if text := cluster.Command(t, "kubectl-kcp", kcptest.Stranger).Fail(t, "crd", "pull"); !strings.Contains(text, "denied") {
		t.Errorf("%s", text)
	}
}

// withoutDescriptions removes those of the fields that every object has.
func withoutDescriptions(spec *apiextensionsv1.CustomResourceDefinitionSpec) {
	for name, field := range spec.Versions[0].Schema.OpenAPIV3Schema.Properties {
		field.Description = ""
		spec.Versions[0].Schema.OpenAPIV3Schema.Properties[name] = field
	}
}

// Resources that every workspace has are pulled only by name.
func TestBuiltInResourcesArePulledByName(t *testing.T) {
	t.Parallel()
	cluster := server.Cluster(t)
	command := cluster.Command(t, "kubectl-kcp", kcptest.Masters)
	spec := parse(t, command.Run(t, "crd", "pull", "configmaps"))
	if spec.Group != "" || spec.Names.ListKind != "ConfigMapList" || spec.Scope != apiextensionsv1.NamespaceScoped ||
		spec.Versions[0].Schema.OpenAPIV3Schema.Properties["data"].AdditionalProperties.Schema.Type != "string" {
		t.Errorf("got config maps %+v", spec)
	}
	if spec = parse(t, command.Run(t, "crd", "pull", "workspaces.tenancy.kcp.io")); spec.Versions[0].Subresources.Status == nil ||
		len(spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].XValidations) != 3 {
		t.Errorf("got workspaces %+v", spec)
	}
	if text := command.Fail(t, "crd", "pull"); !strings.Contains(text, "serves only resources that every workspace already has") {
		t.Errorf("%s", text)
	}
	if text := command.Fail(t, "crd", "pull", "events"); !strings.Contains(text, "use one of events.core, events.events.k8s.io") {
		t.Errorf("%s", text)
	}
}

// The definitions of real projects are pulled twice: as they are stored, and generated from OpenAPI. Both must match the files, except
// for the paths of the scale subresource, which OpenAPI does not contain.
func TestDefinitionsOfProjectsArePulled(t *testing.T) {
	t.Parallel()
	for _, project := range []kcptest.Project{kcptest.CertManager, kcptest.PrometheusOperator} {
		t.Run(project.Name, func(t *testing.T) {
			t.Parallel()
			cluster := server.Cluster(t)
			project.Install(t, cluster, 1)
			cluster.Kubectl(t, "create", "clusterrole", "config", "--verb=get,list", "--resource=configmaps")
			cluster.Grant(t, kcptest.Alice, "config")
			for _, user := range []kcptest.User{kcptest.Masters, kcptest.Alice} {
				directory := filepath.Join(t.TempDir(), "pulled")
				command := cluster.Command(t, "kubectl-kcp", user)
				command.Run(t, "crd", "pull", "--output-dir", directory)
				files := project.Files(t, 1)
				for _, file := range files {
					pulled := filepath.Join(directory, nameOf(t, file)+".yaml")
					if user.Name == kcptest.Masters.Name {
						if diff := cmp.Diff(parse(t, content(t, file)), parse(t, content(t, pulled))); diff != "" {
							t.Errorf("pulling %s (-want +got):\n%s", file, diff)
						}
						continue
					}
					onlyAbout(t, "the paths of the scale subresource", command.Try(t, "crd", "compat", pulled, file))
					onlyAbout(t, "the paths of the scale subresource", command.Try(t, "crd", "compat", file, pulled))
				}
				if found, err := os.ReadDir(directory); err != nil || len(found) != len(files) {
					t.Errorf("got %d files, %v; want %d", len(found), err, len(files))
				}
			}
		})
	}
}

func nameOf(t *testing.T, file string) string {
	t.Helper()
	spec := parse(t, content(t, file))
	return spec.Names.Plural + "." + spec.Group
}

func content(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
