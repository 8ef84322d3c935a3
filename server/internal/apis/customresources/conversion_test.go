package customresources

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

const (
	exportsV1alpha1 = "/apis/apis.kcp.io/v1alpha1/apiexports"
	exportsV1alpha2 = "/apis/apis.kcp.io/v1alpha2/apiexports"
)

func TestASystemResourceIsServedInEveryVersion(t *testing.T) {
	s := newShard(t)
	s.want(201, "a", "POST", exportsV1alpha2, `{"apiVersion":"apis.kcp.io/v1alpha2","kind":"APIExport","metadata":{"name":"new"},
		"spec":{"permissionClaims":[{"resource":"configmaps","verbs":["get"]}]}}`)
	s.want(201, "a", "POST", exportsV1alpha1, `{"apiVersion":"apis.kcp.io/v1alpha1","kind":"APIExport","metadata":{"name":"old"},
		"spec":{"latestResourceSchemas":["v1.widgets.example.io"]}}`)

	old := s.want(200, "a", "GET", exportsV1alpha1+"/new", "")
	if got := specOf(old); got != "map[permissionClaims:[map[all:true group: resource:configmaps]]]" {
		t.Errorf("v1alpha1 shows %s", got)
	}
	if want := `\"resource\":\"configmaps\",\"verbs\":[\"get\"]`; !strings.Contains(old.text, want) {
		t.Errorf("v1alpha1 keeps no verbs: %s", old.text)
	}
	list := s.want(200, "a", "GET", exportsV1alpha2, "")
	for _, item := range list.body["items"].([]any) {
		if version := item.(map[string]any)["apiVersion"]; version != "apis.kcp.io/v1alpha2" {
			t.Errorf("an item of the list in v1alpha2 is of %s", version)
		}
	}
	if !strings.Contains(list.text, `"resources":[{"group":"example.io","name":"widgets","schema":"v1.widgets.example.io","storage":{"crd":{}}}]`) {
		t.Errorf("v1alpha2 shows %s", list.text)
	}
	if list := s.want(200, "*", "GET", exportsV1alpha1, ""); !strings.Contains(list.text, "latestResourceSchemas") {
		t.Errorf("all clusters together show %s", list.text)
	}
}

func TestAUsersDefinitionCannotUseTheServersConversion(t *testing.T) {
	s := newShard(t)
	s.set("a", widgets(func(crd *apiextensionsv1.CustomResourceDefinition) {
		second := crd.Spec.Versions[0]
		second.Name, second.Storage = "v2", false
		crd.Spec.Versions = append(crd.Spec.Versions, second)
		convertHere(crd)
	}))
	refused := s.want(500, "a", "POST", "/apis/example.org/v2/namespaces/n/widgets", strings.ReplaceAll(widget, "example.org/v1", "example.org/v2"))
	if !strings.Contains(refused.text, "conversion.kcp.invalid") || strings.Contains(refused.text, "no conversion from") {
		t.Errorf("the refusal does not come from the network: %s", refused.text)
	}
}
