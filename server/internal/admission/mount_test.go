package admission

import (
	"reflect"
	"strings"
	"testing"

	_ "k8s.io/kubernetes/pkg/apis/core/install" // built-in types, as in the server
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"

	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
)

func TestTheMountOfANewWorkspaceIsInItsSpecOrAnAnnotation(t *testing.T) {
	ref := tenancyv1alpha1.ObjectReference{APIVersion: "example.org/v1", Kind: "Region", Name: "prod"}
	const annotated = `{"spec":{"ref":{"apiVersion":"example.org/v1","kind":"Region","name":"prod"}}`
	for name, test := range map[string]struct {
		spec       *tenancyv1alpha1.Mount
		annotation string
		want       *tenancyv1alpha1.Mount
		err        string // a part of the error
	}{
		"a workspace without both is not mounted":        {nil, "", nil, ""},
		"the spec is used":                               {&tenancyv1alpha1.Mount{Reference: ref}, "", &tenancyv1alpha1.Mount{Reference: ref}, ""},
		"the spec has precedence over the annotation":    {&tenancyv1alpha1.Mount{Reference: ref}, "invalid", &tenancyv1alpha1.Mount{Reference: ref}, ""},
		"the annotation is used":                         {nil, annotated + "}", &tenancyv1alpha1.Mount{Reference: ref}, ""},
		"the status in the annotation is ignored":        {nil, annotated + `,"status":{"phase":"Ready","URL":"https://evil.test"}}`, &tenancyv1alpha1.Mount{Reference: ref}, ""},
		"an annotation that is not JSON is refused":      {nil, "invalid", nil, "annotation " + tenancyv1alpha1.MountAnnotation + " is invalid"},
		"an annotation with an unknown field is refused": {nil, annotated + `,"url":"https://evil.test"}`, nil, `unknown field "url"`},
	} {
		t.Run(name, func(t *testing.T) {
			ws := &tenancyv1alpha1.Workspace{Spec: tenancyv1alpha1.WorkspaceSpec{Mount: test.spec}}
			if test.annotation != "" {
				ws.Annotations = map[string]string{tenancyv1alpha1.MountAnnotation: test.annotation}
			}
			got, err := mountOf(ws)
			if !reflect.DeepEqual(got, test.want) || (err == nil) != (test.err == "") || (err != nil && !strings.Contains(err.Error(), test.err)) {
				t.Errorf("got %+v, %v, want %+v and the error %q", got, err, test.want, test.err)
			}
		})
	}
}

func TestMountsReferToCustomResources(t *testing.T) {
	const (
		incomplete = "spec.mount.ref needs apiVersion, as <group>/<version>, kind and name"
		builtIn    = "spec.mount.ref refers to a built-in type; a custom resource with status.URL and status.phase is required"
	)
	for name, test := range map[string]struct {
		ref  tenancyv1alpha1.ObjectReference
		want string
	}{
		"a custom resource is valid":               {tenancyv1alpha1.ObjectReference{APIVersion: "example.org/v1", Kind: "Region", Name: "prod"}, ""},
		"a namespaced one is valid":                {tenancyv1alpha1.ObjectReference{APIVersion: "example.org/v1", Kind: "Region", Name: "prod", Namespace: "default"}, ""},
		"a reference without a kind is invalid":    {tenancyv1alpha1.ObjectReference{APIVersion: "example.org/v1", Name: "prod"}, incomplete},
		"a reference without a name is invalid":    {tenancyv1alpha1.ObjectReference{APIVersion: "example.org/v1", Kind: "Region"}, incomplete},
		"a reference without a version is invalid": {tenancyv1alpha1.ObjectReference{Kind: "Region", Name: "prod"}, incomplete},
		"a version with two slashes is invalid":    {tenancyv1alpha1.ObjectReference{APIVersion: "example.org/v1/a", Kind: "Region", Name: "prod"}, incomplete},
		"a Secret is a built-in type":              {tenancyv1alpha1.ObjectReference{APIVersion: "v1", Kind: "Secret", Name: "prod"}, builtIn},
		"a ClusterRole is a built-in type":         {tenancyv1alpha1.ObjectReference{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole", Name: "prod"}, builtIn},
	} {
		t.Run(name, func(t *testing.T) {
			if got := mountProblem(test.ref); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestMountingRequiresPermissionToGetTheObject(t *testing.T) {
	region := tenancyv1alpha1.ObjectReference{APIVersion: "example.org/v1", Kind: "Region", Name: "prod"}
	widget := tenancyv1alpha1.ObjectReference{APIVersion: "example.org/v1", Kind: "Widget", Name: "prod", Namespace: "default"}
	later := tenancyv1alpha1.ObjectReference{APIVersion: "later.org/v1", Kind: "Thing", Name: "prod"}
	for name, test := range map[string]struct {
		ref     tenancyv1alpha1.ObjectReference
		granted grants
		want    string
	}{
		"a user who may get the object mounts it":        {region, grants{"ada get regions.example.org prod in org"}, ""},
		"a user who may get another object is refused":   {region, grants{"ada get regions.example.org other in org"}, "403 Forbidden: unable to mount from Region prod: missing verb='get' permission on regions.example.org"},
		"permission in another workspace does not count": {region, grants{"ada get regions.example.org prod in root"}, "403 Forbidden: unable to mount from Region prod: missing verb='get' permission on regions.example.org"},
		"permission counts in the namespace":             {widget, grants{"ada get default/widgets.example.org prod in org"}, ""},
		"permission in another namespace is refused":     {widget, grants{"ada get other/widgets.example.org prod in org"}, "403 Forbidden: unable to mount from Widget prod: missing verb='get' permission on widgets.example.org"},
		"a kind that is not served requires permission on its group": {later, grants{"ada get things.later.org prod in org"},
			"403 Forbidden: kind Thing of later.org/v1 is not served in this workspace: mounting from it requires verb='get' permission on all resources of its group"},
		"a kind that is not served is mounted with permission on its group": {later, grants{"ada get *.later.org * in org"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := write{group: "tenancy.kcp.io", object: `{}`}.attributes(t, "Workspace")
			plugin := workspaceRules{rules{newConfig(t, test.granted)}}
			wantOutcome(t, a, plugin.checkMount(in(t, "org"), a, test.ref), test.want)
		})
	}
}
