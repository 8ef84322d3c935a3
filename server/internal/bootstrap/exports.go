package bootstrap

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/internal/tenancy/exports"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// System are the resources that the server itself serves.
type System struct {
	Definitions []*apiextensionsv1.CustomResourceDefinition
	// Exports are the exports in root that represent them.
	Exports exports.System
}

// limited are the exports with a maximal permission policy: the roles for users of consumers in manifests/rbac.yaml.
var limited = map[string]bool{"tenancy.kcp.io": true, "topology.kcp.io": true}

// content returns the exports with their schemas, and the bindings that root has to them.
func (s System) content() ([]*unstructured.Unstructured, error) {
	var schemas, others []*unstructured.Unstructured
	offers := map[string][]any{} // by export
	for _, crd := range s.Definitions {
		resource := schema.GroupResource{Group: crd.Spec.Group, Resource: crd.Spec.Names.Plural}
		export, ok := s.Exports[resource]
		if !ok {
			continue
		}
		snapshot, err := schemaOf(crd)
		if err != nil {
			return nil, fmt.Errorf("schema of %s: %w", resource, err)
		}
		schemas = append(schemas, snapshot)
		offers[export] = append(offers[export], map[string]any{"group": resource.Group, "name": resource.Resource, "schema": snapshot.GetName()})
	}
	for _, name := range slices.Sorted(maps.Keys(offers)) {
		spec := map[string]any{"resources": offers[name]}
		if limited[name] {
			spec["maximalPermissionPolicy"] = map[string]any{"local": map[string]any{}}
		}
		others = append(others, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": apisv1alpha2.SchemeGroupVersion.String(), "kind": "APIExport",
			"metadata": map[string]any{"name": name}, "spec": spec,
		}}, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": apisv1alpha2.SchemeGroupVersion.String(), "kind": "APIBinding", "metadata": map[string]any{"name": name},
			"spec": map[string]any{"reference": map[string]any{"export": map[string]any{"path": string(logicalcluster.Root), "name": name}}},
		}})
	}
	return append(schemas, others...), nil
}

// schemaOf returns the schema of a definition. The name of the schema depends on its content.
func schemaOf(crd *apiextensionsv1.CustomResourceDefinition) (*unstructured.Unstructured, error) {
	spec := apisv1alpha1.APIResourceSchemaSpec{Group: crd.Spec.Group, Names: crd.Spec.Names, Scope: crd.Spec.Scope,
		NameValidation: "DNS1123Subdomain"}
	for _, v := range crd.Spec.Versions {
		properties, err := json.Marshal(v.Schema.OpenAPIV3Schema)
		if err != nil {
			return nil, err
		}
		version := apisv1alpha1.APIResourceVersion{
			Name: v.Name, Served: v.Served, Storage: v.Storage, Schema: runtime.RawExtension{Raw: properties},
			AdditionalPrinterColumns: v.AdditionalPrinterColumns, SelectableFields: v.SelectableFields,
		}
		if v.Subresources != nil {
			version.Subresources = *v.Subresources
		}
		spec.Versions = append(spec.Versions, version)
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&apisv1alpha1.APIResourceSchema{Spec: spec})
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": content["spec"]}}
	u.SetGroupVersionKind(apisv1alpha1.SchemeGroupVersion.WithKind("APIResourceSchema"))
	u.SetName(fmt.Sprintf("v%s.%s.%s", hex.EncodeToString(sum[:4]), crd.Spec.Names.Plural, crd.Spec.Group))
	return u, nil
}
