// Package fleet has what the commands for the fleet create: the objects of the provider's workspace, and the manifest of an agent.
package fleet

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"text/template"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/api/fleet/v1alpha1"
	"github.com/kcplane/kcp/cli/internal/manifests"
	"github.com/kcplane/kcp/internal/crd/snapshot"
)

//go:embed provider.yaml
var provider string

//go:embed agent.yaml
var agent string

// claims are the resources that every workspace has, and that the fleet reads in the workspaces that accept this.
var claims = []string{"configmaps", "namespaces", "secrets"}

// Provider returns the objects of the provider's workspace, in the order in which they must be created.
func Provider() ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, resource := range []string{"clusters", "assignments", "endpoints"} {
		definition, err := v1alpha1.Definition(resource)
		if err != nil {
			return nil, err
		}
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(definition, &u.Object); err != nil {
			return nil, err
		}
		objects = append(objects, u)
	}
	text, err := v1alpha1.Definition("placements")
	if err != nil {
		return nil, err
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(text, definition); err != nil {
		return nil, err
	}
	taken, err := Schema(definition)
	if err != nil {
		return nil, err
	}
	export := &apisv1alpha2.APIExport{
		TypeMeta:   metav1.TypeMeta{APIVersion: apisv1alpha2.SchemeGroupVersion.String(), Kind: "APIExport"},
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.Export},
		Spec:       apisv1alpha2.APIExportSpec{Resources: []apisv1alpha2.ResourceSchema{Exported(taken)}},
	}
	for _, resource := range claims {
		export.Spec.PermissionClaims = append(export.Spec.PermissionClaims, apisv1alpha2.PermissionClaim{
			GroupResource: apisv1alpha2.GroupResource{Resource: resource}, Verbs: []string{"get", "list", "watch"},
		})
	}
	for _, object := range []any{taken, export} {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return nil, err
		}
		delete(content, "status")
		objects = append(objects, &unstructured.Unstructured{Object: content})
	}
	rest, err := manifests.Parse(provider)
	return append(objects, rest...), err
}

// Schema returns the schema of a definition. Its name has a hash of its content: what has not changed has the same name.
func Schema(definition *apiextensionsv1.CustomResourceDefinition) (*apisv1alpha1.APIResourceSchema, error) {
	content, err := json.Marshal(definition.Spec)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(content)
	return snapshot.Take(definition, "v"+hex.EncodeToString(sum[:5]))
}

// Exported returns the entry of a schema in the export.
func Exported(s *apisv1alpha1.APIResourceSchema) apisv1alpha2.ResourceSchema {
	return apisv1alpha2.ResourceSchema{Group: s.Spec.Group, Name: s.Spec.Names.Plural, Schema: s.Name,
		Storage: apisv1alpha2.ResourceSchemaStorage{CRD: &apisv1alpha2.ResourceSchemaStorageCRD{}}}
}

// Agent is what the manifest of an agent depends on.
type Agent struct {
	// Cluster is the name of the Cluster.
	Cluster string
	// URL of the controller, with the certificate authority in PEM. Without one, the agent trusts those of the system.
	URL, CA string
	// Image of the agent.
	Image string
	// Token is the bootstrap token.
	Token string
	// Resources are those that the agent may create.
	Resources []schema.GroupResource
	// Pods says that the agent may read pods, and connect to those in its namespaces.
	Pods bool
}

// Manifest returns what to apply to the cluster.
func (a Agent) Manifest() (string, error) {
	a.Resources = append(slices.Clone(a.Resources), schema.GroupResource{Resource: "configmaps"})
	slices.SortFunc(a.Resources, func(x, y schema.GroupResource) int { return strings.Compare(x.String(), y.String()) })
	a.Resources = slices.Compact(a.Resources)
	indent := func(text string) string { return "    " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ") }
	parsed, err := template.New("agent").Funcs(template.FuncMap{"indent": indent}).Parse(agent)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	err = parsed.Execute(&out, a)
	return out.String(), err
}
