package admission

import (
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// workspaceType returns a type in a cluster, as change leaves it.
func workspaceType(cluster, name string, change func(*tenancyv1alpha1.WorkspaceTypeSpec)) *tenancyv1alpha1.WorkspaceType {
	wt := objecttest.In(cluster, &tenancyv1alpha1.WorkspaceType{ObjectMeta: metav1.ObjectMeta{Name: name}})
	if change != nil {
		change(&wt.Spec)
	}
	return wt
}

// extending is a change to a type that extends others of root.
func extending(names ...string) func(*tenancyv1alpha1.WorkspaceTypeSpec) {
	return func(spec *tenancyv1alpha1.WorkspaceTypeSpec) {
		for _, name := range names {
			spec.Extend.With = append(spec.Extend.With, tenancyv1alpha1.WorkspaceTypeReference{Path: "root", Name: name})
		}
	}
}

func TestReferencesOfWorkspaceTypesGetThePathOfTheirWorkspace(t *testing.T) {
	reference := func(path string) map[string]any { return map[string]any{"name": "a", "path": path} }
	for name, test := range map[string]struct {
		write
		want map[string]any
	}{
		"extended types":                         {write{object: `spec: {extend: {with: [{name: a}, {name: a, path: root}, {name: a, path: ""}]}}`}, map[string]any{"extend": map[string]any{"with": []any{reference("root:org"), reference("root"), reference("root:org")}}}},
		"allowed children":                       {write{object: `spec: {limitAllowedChildren: {types: [{name: a}]}}`}, map[string]any{"limitAllowedChildren": map[string]any{"types": []any{reference("root:org")}}}},
		"allowed parents":                        {write{object: `spec: {limitAllowedParents: {types: [{name: a}]}}`}, map[string]any{"limitAllowedParents": map[string]any{"types": []any{reference("root:org")}}}},
		"the default child type":                 {write{object: `spec: {defaultChildWorkspaceType: {name: a}}`}, map[string]any{"defaultChildWorkspaceType": reference("root:org")}},
		"default bindings":                       {write{object: `spec: {defaultAPIBindings: [{export: a}]}`}, map[string]any{"defaultAPIBindings": []any{map[string]any{"export": "a", "path": "root:org"}}}},
		"a type in an update":                    {write{object: `spec: {defaultChildWorkspaceType: {name: a}}`, before: `{}`}, map[string]any{"defaultChildWorkspaceType": reference("root:org")}},
		"an invalid list is left to the schema":  {write{object: `spec: {extend: {with: {name: a}}}`}, map[string]any{"extend": map[string]any{"with": map[string]any{"name": "a"}}}},
		"an update of the status is not changed": {write{object: `spec: {defaultChildWorkspaceType: {name: a}}`, before: `{}`, subresource: "status"}, map[string]any{"defaultChildWorkspaceType": map[string]any{"name": "a"}}},
	} {
		t.Run(name, func(t *testing.T) {
			test.group, test.version = "tenancy.kcp.io", "v1alpha1"
			a := test.attributes(t, "WorkspaceType")
			if err := (workspaceTypeRules{rules{newConfig(t, nil, at("root", "root:org")...)}}).Admit(in(t, "org"), a, nil); err != nil {
				t.Fatal(err)
			}
			if got := contentOf(t, a)["spec"]; !reflect.DeepEqual(got, any(test.want)) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestWorkspaceTypesUseOnlyWhatTheirAuthorMayUse(t *testing.T) {
	const use, bind = "ada use workspacetypes.tenancy.kcp.io ", "ada bind apiexports.apis.kcp.io "
	mine := func(spec string) string { return "metadata: {name: mine}\nspec: {" + spec + "}" }
	const toBase, toDerived, toNone = `extend: {with: [{name: base, path: root}]}`, `extend: {with: [{name: derived, path: root}]}`, `extend: {with: [{name: none, path: root}]}`
	const toExport = `defaultAPIBindings: [{path: "root:provider", export: widgets}]`
	const refusedBase = "403 Forbidden: unable to use workspace type root:base: missing verb='use' permission on workspacetype"
	const refusedExport = "403 Forbidden: unable to use APIExport root:provider:widgets as a default binding: no permission to bind"
	for name, test := range map[string]struct {
		write
		cluster logicalcluster.Name
		granted grants
		want    string
	}{
		"a type without references is admitted":           {write{object: mine("")}, "org", nil, ""},
		"the name any is reserved":                        {write{object: `metadata: {name: any}`}, "org", nil, "403 Forbidden: name is reserved"},
		"the name system is reserved":                     {write{object: `metadata: {name: system}`, who: privileged}, "org", nil, "403 Forbidden: name is reserved"},
		"the name root is refused outside of root":        {write{object: `metadata: {name: root}`}, "org", nil, "403 Forbidden: the workspace type root can be created in the workspace root only"},
		"the name root is admitted in root":               {write{object: `metadata: {name: root}`}, "root", nil, ""},
		"a type that the author may use is extended":      {write{object: mine(toBase)}, "org", grants{use + "base in root deeply"}, ""},
		"a type that the author may not use is refused":   {write{object: mine(toBase)}, "org", nil, refusedBase},
		"what an extended type extends must be usable":    {write{object: mine(toDerived)}, "org", grants{use + "derived in root deeply"}, refusedBase},
		"a chain of usable types is extended":             {write{object: mine(toDerived)}, "org", grants{use + "derived in root deeply", use + "base in root deeply"}, ""},
		"a type that does not exist has the same message": {write{object: mine(toNone)}, "org", nil, "403 Forbidden: unable to use workspace type root:none: missing verb='use' permission on workspacetype"},
		"a user who could use it gets another message":    {write{object: mine(toNone)}, "org", grants{use + "none in root deeply"}, `403 Forbidden: workspacetypes.tenancy.kcp.io "root:none" not found…`},
		"an extension that exists needs no permission":    {write{object: mine(toBase), before: mine(toBase)}, "org", nil, ""},
		"an added extension needs permission":             {write{object: mine(toBase), before: mine("")}, "org", nil, refusedBase},
		"a privileged user needs no permission":           {write{object: mine(toBase + ", " + toExport), who: privileged}, "org", nil, ""},
		"a type that extends itself is refused":           {write{object: mine(`extend: {with: [{name: mine, path: "root:org"}]}`)}, "org", nil, "403 Forbidden: circular dependency detected in workspace type root:org:mine"},
		"an export that the author may bind is admitted":  {write{object: mine(toExport)}, "org", grants{bind + "widgets in provider deeply"}, ""},
		"an export that they may not bind is refused":     {write{object: mine(toExport)}, "org", grants{bind + "other in provider deeply"}, refusedExport},
		"an export at an unknown path is refused":         {write{object: mine(`defaultAPIBindings: [{path: "root:none", export: widgets}]`)}, "org", nil, "403 Forbidden: unable to use APIExport root:none:widgets as a default binding: no permission to bind"},
		"a default binding that exists is admitted":       {write{object: mine(toExport), before: mine(toExport)}, "org", nil, ""},
		"the status is not validated":                     {write{object: `metadata: {name: any}`, before: `metadata: {name: any}`, subresource: "status"}, "org", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			test.group, test.version = "tenancy.kcp.io", "v1alpha1"
			a := test.attributes(t, "WorkspaceType")
			objects := append(at("root", "root:org", "root:provider"), workspaceType("root", "base", nil), workspaceType("root", "derived", extending("base")))
			wantOutcome(t, a, workspaceTypeRules{rules{newConfig(t, test.granted, objects...)}}.Validate(in(t, test.cluster), a, nil), test.want)
		})
	}
}
