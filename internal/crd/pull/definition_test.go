package pull

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/openapi/openapitest"
	"k8s.io/client-go/openapi3"
	"k8s.io/utils/ptr"

	"github.com/kcplane/kcp/internal/crd"
)

// kubernetes is the directory of the OpenAPI documents in the source of Kubernetes.
var kubernetes = sync.OnceValues(func() (openapi3.Root, error) {
	directory, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
	return openapi3.NewRoot(openapitest.NewFileClient(filepath.Join(strings.TrimSpace(string(directory)), "api", "openapi-spec", "v3"))), err
})

// builtIn returns the OpenAPI document of built-in types of Kubernetes.
func builtIn(t *testing.T, gv schema.GroupVersion) document {
	t.Helper()
	root, err := kubernetes()
	if err != nil {
		t.Fatal(err)
	}
	openAPI, err := root.GVSpec(gv)
	if err != nil {
		t.Fatal(err)
	}
	return newDocument(openAPI)
}

func TestBuiltInTypesBecomeValidDefinitions(t *testing.T) {
	root, err := kubernetes()
	if err != nil {
		t.Fatal(err)
	}
	versions, err := root.GroupVersions()
	if err != nil {
		t.Fatal(err)
	}
	tested := 0
	for _, gv := range versions {
		d := builtIn(t, gv)
		for name, s := range d.schemas {
			_, isObject := s.Properties["metadata"]
			for _, kind := range kinds(s) {
				if !isObject || kind.GroupVersion() != gv || strings.HasSuffix(kind.Kind, "List") || strings.Contains(name, ".meta.v1.") {
					continue
				}
				tested++
				r := &resource{version: gv, APIResource: metav1.APIResource{
					Name: strings.ToLower(kind.Kind) + "s", SingularName: strings.ToLower(kind.Kind), Kind: kind.Kind}}
				definition, err := build(r, d, nil)
				if err != nil {
					t.Errorf("%s: %v", name, err)
				} else if problems := crd.Problems(definition); len(problems) > 0 {
					t.Errorf("%s: %v", name, problems.ToAggregate())
				}
			}
		}
	}
	if tested < 40 {
		t.Errorf("only %d types tested", tested)
	}
}

func TestDeploymentBecomesDefinition(t *testing.T) {
	gv := schema.GroupVersion{Group: "apps", Version: "v1"}
	definition, err := build(&resource{version: gv, subresources: []string{"scale", "status"}, APIResource: metav1.APIResource{
		Name: "deployments", SingularName: "deployment", Kind: "Deployment", Namespaced: true, ShortNames: []string{"deploy"}, Categories: []string{"all"}}},
		builtIn(t, gv), nil)
	if err != nil {
		t.Fatal(err)
	}
	v := definition.Spec.Versions[0]
	spec := v.Schema.OpenAPIV3Schema.Properties["spec"]
	container := spec.Properties["template"].Properties["spec"].Properties["containers"].Items.Schema
	for what, same := range map[string][2]any{
		"name":          {"deployments.apps", definition.Name},
		"list kind":     {"DeploymentList", definition.Spec.Names.ListKind},
		"scope":         {apiextensionsv1.NamespaceScoped, definition.Spec.Scope},
		"short names":   {[]string{"deploy"}, definition.Spec.Names.ShortNames},
		"required":      {[]string{"selector", "template"}, spec.Required},
		"replicas":      {"integer int32", spec.Properties["replicas"].Type + " " + spec.Properties["replicas"].Format},
		"containers":    {"map", ptr.Deref(spec.Properties["template"].Properties["spec"].Properties["containers"].XListType, "")},
		"ports":         {[]string{"containerPort", "protocol"}, container.Properties["ports"].XListMapKeys},
		"protocol":      {`"TCP"`, string(container.Properties["ports"].Items.Schema.Properties["protocol"].Default.Raw)},
		"max surge":     {true, spec.Properties["strategy"].Properties["rollingUpdate"].Properties["maxSurge"].XIntOrString},
		"quantities":    {quantity, container.Properties["resources"].Properties["limits"].AdditionalProperties.Schema.Pattern},
		"no default":    {(*apiextensionsv1.JSON)(nil), container.Properties["name"].Default},
		"no references": {true, spec.Ref == nil && container.Ref == nil},
		"metadata":      {"object", v.Schema.OpenAPIV3Schema.Properties["metadata"].Type},
		"subresources": {&apiextensionsv1.CustomResourceSubresources{
			Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
			Scale:  &apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas"},
		}, v.Subresources},
	} {
		if diff := cmp.Diff(same[0], same[1]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
}

func TestRecursiveSchemaPreservesUnknownFields(t *testing.T) {
	gv := schema.GroupVersion{Group: "apiextensions.k8s.io", Version: "v1"}
	root, _, err := builtIn(t, gv).structural(gv.WithKind("CustomResourceDefinition"))
	if err != nil {
		t.Fatal(err)
	}
	inner := root.Properties["spec"].Properties["versions"].Items.Schema.Properties["schema"].Properties["openAPIV3Schema"].Properties["not"]
	if !ptr.Deref(inner.XPreserveUnknownFields, false) || inner.Type != "object" {
		t.Errorf("recursive schema is %+v", inner)
	}
}

func TestColumnPathsComeFromDescriptions(t *testing.T) {
	age := metav1.TableColumnDefinition{Name: "Age", Type: "date", Description: "CreationTimestamp is…"}
	name := metav1.TableColumnDefinition{Name: "Name", Type: "string", Format: "name"}
	size := metav1.TableColumnDefinition{Name: "Size", Type: "integer", Priority: 1, Description: pathDescription + ".spec.size"}
	described := metav1.TableColumnDefinition{Name: "Color", Type: "string", Description: "The color."}
	got := columns(&metav1.Table{ColumnDefinitions: []metav1.TableColumnDefinition{name, size, described, age}})
	want := []apiextensionsv1.CustomResourceColumnDefinition{
		{Name: "Size", Type: "integer", Priority: 1, JSONPath: ".spec.size"}, {Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := columns(&metav1.Table{ColumnDefinitions: []metav1.TableColumnDefinition{name, age}}); got != nil {
		t.Errorf("only the age: %v", got)
	}
}

// cluster returns the discovery of a cluster.
func cluster(t *testing.T) []*resource {
	t.Helper()
	all, err := served([]*metav1.APIGroup{
		{Name: "", PreferredVersion: metav1.GroupVersionForDiscovery{GroupVersion: "v1"}},
		{Name: "autoscaling", PreferredVersion: metav1.GroupVersionForDiscovery{GroupVersion: "autoscaling/v2"},
			Versions: []metav1.GroupVersionForDiscovery{{GroupVersion: "autoscaling/v2"}, {GroupVersion: "autoscaling/v1"}}},
		{Name: "metrics.k8s.io", PreferredVersion: metav1.GroupVersionForDiscovery{GroupVersion: "metrics.k8s.io/v1"}},
		{Name: "tenancy.kcp.io", PreferredVersion: metav1.GroupVersionForDiscovery{GroupVersion: "tenancy.kcp.io/v1alpha1"}},
		{Name: "operator.kcp.io", PreferredVersion: metav1.GroupVersionForDiscovery{GroupVersion: "operator.kcp.io/v1alpha1"}},
	}, []*metav1.APIResourceList{
		{GroupVersion: "v1", APIResources: []metav1.APIResource{
			{Name: "pods", SingularName: "pod", Kind: "Pod", ShortNames: []string{"po"}, Verbs: metav1.Verbs{"list", "create"}},
			{Name: "pods/status", Kind: "Pod"}, {Name: "pods/log", Kind: "Pod"},
			{Name: "secrets", SingularName: "secret", Kind: "Secret", Verbs: metav1.Verbs{"list", "create"}}}},
		{GroupVersion: "autoscaling/v1", APIResources: []metav1.APIResource{
			{Name: "horizontalpodautoscalers", Kind: "HorizontalPodAutoscaler", ShortNames: []string{"hpa"}, Verbs: metav1.Verbs{"list", "create"}}}},
		{GroupVersion: "autoscaling/v2", APIResources: []metav1.APIResource{
			{Name: "horizontalpodautoscalers", Kind: "HorizontalPodAutoscaler", ShortNames: []string{"hpa"}, Verbs: metav1.Verbs{"list", "create"}}}},
		{GroupVersion: "metrics.k8s.io/v1", APIResources: []metav1.APIResource{{Name: "pods", Kind: "PodMetrics", Verbs: metav1.Verbs{"list"}}}},
		{GroupVersion: "tenancy.kcp.io/v1alpha1", APIResources: []metav1.APIResource{{Name: "workspaces", Kind: "Workspace", Verbs: metav1.Verbs{"list", "create"}}}},
		{GroupVersion: "operator.kcp.io/v1alpha1", APIResources: []metav1.APIResource{{Name: "rootshards", Kind: "RootShard", Verbs: metav1.Verbs{"list", "create"}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestLookUpResourcesByName(t *testing.T) {
	all := cluster(t)
	for _, row := range []struct{ names, want string }{
		{"", "horizontalpodautoscalers.autoscaling/v2 pods.core/v1 rootshards.operator.kcp.io/v1alpha1"},
		{"pods.core", "pods.core/v1"},
		{"pods.v1.core pods.core", "pods.core/v1"},
		{"po", "pods.core/v1"},
		{"podmetrics", "pods.metrics.k8s.io/v1"},
		{"Secrets", "secrets.core/v1"},
		{"hpa", "horizontalpodautoscalers.autoscaling/v2"},
		{"hpa.v1.autoscaling", "horizontalpodautoscalers.autoscaling/v1"},
		{"pods", `resource name "pods" is ambiguous: use one of pods.core, pods.metrics.k8s.io`},
		{"pots", `the cluster serves no resource "pots"; run kubectl api-resources to list them`},
		{"pods.v2.core", `the cluster serves no resource "pods.v2.core"; run kubectl api-resources to list them`},
	} {
		found, err := selected(all, strings.Fields(row.names))
		var got []string
		for _, r := range found {
			got = append(got, r.String()+"/"+r.version.Version)
		}
		slices.Sort(got)
		if text := strings.Join(got, " "); text != row.want && (err == nil || err.Error() != row.want) {
			t.Errorf("%q: %q, %v; want %q", row.names, text, err, row.want)
		}
	}
	pods, err := lookUp(all, "po")
	if err != nil || !slices.Equal(pods.subresources, []string{"status", "log"}) {
		t.Errorf("pods have the subresources %v, %v", pods.subresources, err)
	}
}
