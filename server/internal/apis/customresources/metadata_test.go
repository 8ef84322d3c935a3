package customresources

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

const (
	everywhere = "/apis/example.org/v1/widgets"
	metadata   = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

func TestDifferentDefinitionsAreListedTogetherAsMetadata(t *testing.T) {
	s := newShard(t)
	s.set("a", widgets())
	s.set("b", widgets(withFields("colour")))
	s.set("c", widgets(func(crd *apiextensionsv1.CustomResourceDefinition) {
		crd.Spec.Scope, crd.Spec.Names.Kind = apiextensionsv1.ClusterScoped, "Gadget"
		crd.Spec.Versions[0].Storage = false
		crd.Spec.Versions = append(crd.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{Name: "v2", Served: true, Storage: true, Schema: schemaOf("size")})
	}))
	s.want(201, "a", "POST", path, widget)
	s.want(201, "b", "POST", path, widget)
	s.want(201, "c", "POST", "/apis/example.org/v2/widgets", `{"apiVersion":"example.org/v2","kind":"Gadget","metadata":{"name":"g"}}`)

	list := s.want(200, "*", "GET", everywhere, "", "Accept", metadata)
	if list.body["kind"] != "PartialObjectMetadataList" || strings.Contains(list.text, "size") && !strings.Contains(list.text, "f:size") {
		t.Errorf("got %s", list.text)
	}
	var got []string
	for _, item := range list.body["items"].([]any) {
		m := item.(map[string]any)["metadata"].(map[string]any)
		annotations := m["annotations"].(map[string]any)
		got = append(got, fmt.Sprintf("%s/%s as %s", annotations["kcp.io/cluster"], m["name"], annotations[OriginalAPIVersion]))
		if item.(map[string]any)["spec"] != nil {
			t.Errorf("got a spec: %v", item)
		}
	}
	if want := "[a/w as example.org/v1 b/w as example.org/v1 c/g as example.org/v2]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
	s.want(200, "*", "GET", everywhere, "", "Accept", "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,"+metadata)
	s.want(400, "*", "GET", everywhere, "")
	s.want(400, "*", "GET", everywhere, "", "Accept", "application/json,"+metadata)
	s.want(405, "*", "GET", path+"/w", "", "Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
	s.want(405, "*", "POST", path, widget)
	s.want(404, "*", "GET", "/apis/example.org/v3/widgets", "", "Accept", metadata)
	s.want(404, "*", "GET", "/apis/example.org/v1/gadgets", "", "Accept", metadata)

	for _, cluster := range []string{"a", "b", "c"} {
		s.delete(cluster, "widgets.example.org")
	}
	s.want(404, "*", "GET", everywhere, "", "Accept", metadata)
	if len(s.metadata.byKey) != 0 {
		t.Errorf("%d definitions of metadata are left", len(s.metadata.byKey))
	}
}

func TestRequestsForMetadata(t *testing.T) {
	for accept, want := range map[string]bool{
		metadata: true, strings.ReplaceAll(metadata, "List", ""): true, metadata + ";stream=watch": true, strings.ReplaceAll(metadata, "v=v1", "v=v1beta1"): true,
		"": false, "*/*": false, "application/json": false, "application/json;as=Table;g=meta.k8s.io;v=v1": false,
		"application/json;as=PartialObjectMetadataList;g=example.org;v=v1": false, "application/json," + metadata: false, metadata + ",application/json": true,
		"application/json;as=Table;g=meta.k8s.io;v=v1," + metadata: true,
	} {
		r, _ := http.NewRequest("GET", "/", nil)
		r.Header.Set("Accept", accept)
		if got := asksForMetadata(r); got != want {
			t.Errorf("%q: got %t, want %t", accept, got, want)
		}
	}
}
