package compat

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

func TestObjectsAreComparedWithoutTheirStatus(t *testing.T) {
	object := func(properties map[string]schema, required ...string) schema {
		return schema{Type: "object", Properties: properties, Required: required}
	}
	size := func(most float64) map[string]schema {
		return map[string]schema{"size": {Type: "number", Maximum: &most}}
	}
	with := func(spec, status schema, change ...func(*definition)) *definition {
		d := definitionOf(t, spec)
		v := &d.Spec.Versions[0]
		v.Schema.OpenAPIV3Schema.Properties["status"] = status
		v.Subresources = &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}}
		for _, c := range change {
			c(d)
		}
		return d
	}
	existing := with(object(size(9)), object(size(9)))
	for name, test := range map[string]struct {
		other *definition
		want  []string
	}{
		"the same":                {existing, nil},
		"another status":          {with(object(size(9)), object(nil)), nil},
		"a wider schema":          {with(object(size(10)), object(nil)), nil},
		"a narrower schema":       {with(object(size(8)), object(nil)), []string{"v1: spec.size: maximum changes from 9 to 8"}},
		"a field that is missing": {with(object(map[string]schema{"x": {Type: "string"}}), object(nil)), []string{"v1: spec.size: is removed"}},
		"another name": {with(object(size(9)), object(nil), func(d *definition) {
			d.Spec.Names.ShortNames, d.Spec.Names.Categories = nil, nil
			d.Spec.Versions[0].AdditionalPrinterColumns = nil
		}), nil},
		"another scope": {with(object(size(9)), object(nil), func(d *definition) {
			d.Spec.Scope = map[apiextensionsv1.ResourceScope]apiextensionsv1.ResourceScope{"Namespaced": "Cluster", "Cluster": "Namespaced"}[d.Spec.Scope]
		}), []string{"scope"}},
	} {
		findings, err := CompareObjects(existing, test.other, "v1")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got []string
		for _, f := range findings {
			text := f.String()
			if name == "another scope" {
				text = "scope"
			}
			got = append(got, text)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if _, err := CompareObjects(existing, existing, "v2"); err == nil {
		t.Error("a version that does not exist is compared")
	}
}
