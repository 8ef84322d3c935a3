package customresourcedefinition

import (
	"strings"
	"testing"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

func TestADefinitionGetsNoNamesThatOthersHave(t *testing.T) {
	names := func(plural, kind string, short ...string) apiextensionsv1.CustomResourceDefinitionNames {
		return apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: kind, ListKind: kind + "List", ShortNames: short}
	}
	for _, c := range []struct {
		name            string
		wanted          apiextensionsv1.CustomResourceDefinitionNames
		others          []inUse
		problem, plural string
	}{
		{"nothing is in use", names("widgets", "Widget"), nil, "", "widgets"},
		{"other names are", names("widgets", "Widget"), []inUse{{names("gadgets", "Gadget"), byBinding("b")}}, "", "widgets"},
		{"a binding has the resource", names("widgets", "Widget"), []inUse{{names("widgets", "Widget"), byBinding("b")}}, `plural: "widgets" is already in use by APIBinding "b"`, ""},
		{"a binding takes the resource", names("widgets", "Widget"), []inUse{{apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets"}, byBinding("b")}}, `plural: "widgets" is already in use by APIBinding "b"`, ""},
		{"a kind of the server", names("secretz", "Secret"), []inUse{{names("secrets", "Secret"), " by the server"}}, `kind: "Secret" is already in use by the server`, "secretz"},
		{"a short name of a definition", names("widgets", "Widget", "w"), []inUse{{names("wagons", "Wagon", "w"), ""}}, `shortNames: ["w"] are already in use`, "widgets"},
	} {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		crd.Spec.Names = c.wanted
		got := next(crd, c.others)
		named := apiextensionshelpers.FindCRDCondition(got, apiextensionsv1.NamesAccepted)
		accepted := apiextensionshelpers.IsCRDConditionTrue(got, apiextensionsv1.NamesAccepted)
		if accepted != (c.problem == "") || !strings.Contains(named.Message, c.problem) || got.Status.AcceptedNames.Plural != c.plural ||
			apiextensionshelpers.IsCRDConditionTrue(got, apiextensionsv1.Established) != accepted {
			t.Errorf("%s: got %v", c.name, got.Status)
		}
	}
}

func TestAnnotationsThatTheInformerDropsAreNotWrittenBack(t *testing.T) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	crd.ResourceVersion, crd.Annotations = "7", map[string]string{"kept": "by the informer"}
	crd.Status.AcceptedNames.Plural = "widgets"
	patch, err := statusPatch(crd)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{"annotations": false, "spec": false, `"/metadata/resourceVersion","value":"7"`: true, "widgets": true} {
		if strings.Contains(string(patch), text) != want {
			t.Errorf("%s in the patch: %t, want %t: %s", text, !want, want, patch)
		}
	}
}
