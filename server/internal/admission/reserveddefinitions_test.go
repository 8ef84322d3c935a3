package admission

import (
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kcplane/kcp/server/logicalcluster"
)

func TestNamesOfTheServerAreReserved(t *testing.T) {
	definition := func(group string, keys ...string) runtime.Object {
		crd := &apiextensions.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}
		crd.Spec.Group = group
		for _, key := range keys {
			crd.Annotations[key] = ""
		}
		return crd
	}
	for name, test := range map[string]struct {
		cluster logicalcluster.Name
		object  runtime.Object
		want    string
	}{
		"another group is admitted":                              {"team", definition("example.org"), ""},
		"a group that contains the reserved one is admitted":     {"team", definition("apis.kcp.io.example.org"), ""},
		"the group apis.kcp.io is refused":                       {"team", definition("apis.kcp.io"), "403 Forbidden: apis.kcp.io is a reserved group"},
		"a group below apis.kcp.io is refused":                   {"team", definition("mine.apis.kcp.io"), "403 Forbidden: mine.apis.kcp.io is a reserved group"},
		"the definitions of the server have the group":           {logicalcluster.SystemCRDs, definition("apis.kcp.io"), ""},
		"the definitions of bound APIs do not have the group":    {logicalcluster.SystemBoundCRDs, definition("apis.kcp.io"), "403 Forbidden: apis.kcp.io is a reserved group"},
		"the group core.kcp.io is refused":                       {"team", definition("core.kcp.io"), "403 Forbidden: core.kcp.io is a reserved group"},
		"the group core.kcp.io is refused in every cluster":      {logicalcluster.SystemCRDs, definition("core.kcp.io"), "403 Forbidden: core.kcp.io is a reserved group"},
		"an annotation of the domain is refused":                 {"team", definition("example.org", "apis.kcp.io/bound-crd"), "403 Forbidden: apis.kcp.io/bound-crd is a reserved annotation"},
		"an annotation of a domain below it is refused":          {"team", definition("example.org", "internal.apis.kcp.io/a"), "403 Forbidden: internal.apis.kcp.io/a is a reserved annotation"},
		"an annotation of a domain with the suffix is admitted":  {"team", definition("example.org", "myapis.kcp.io/a"), ""},
		"an annotation of another domain is admitted":            {"team", definition("example.org", "kcp.io/apis.kcp.io"), ""},
		"the definitions of bound APIs have the annotations":     {logicalcluster.SystemBoundCRDs, definition("example.org", "apis.kcp.io/bound-crd"), ""},
		"the deletion of a definition has no object to validate": {"team", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := admission.NewAttributesRecord(test.object, nil, schema.GroupVersionKind{Kind: "CustomResourceDefinition"}, "", "x",
				definitionResource.WithVersion("v1"), "", admission.Create, nil, false, tenant)
			wantOutcome(t, a, reservedDefinitions{}.Validate(in(t, test.cluster), a, nil), test.want)
		})
	}
}
