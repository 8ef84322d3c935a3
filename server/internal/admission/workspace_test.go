package admission

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/logicalcluster"
)

func TestWhichWritesOfAWorkspaceAreAdmitted(t *testing.T) {
	mount := &tenancyv1alpha1.Mount{Reference: tenancyv1alpha1.ObjectReference{APIVersion: "example.org/v1", Kind: "KubeCluster", Name: "prod"}}
	full := func() *tenancyv1alpha1.Workspace {
		return &tenancyv1alpha1.Workspace{
			ObjectMeta: metav1.ObjectMeta{Name: "team", Finalizers: []string{tenancyv1alpha1.LogicalClusterFinalizer}, Annotations: map[string]string{
				tenancyv1alpha1.OwnerAnnotation: "{}", corev1alpha1.RequiredGroupsAnnotation: "a", tenancyv1alpha1.ClusterAnnotation: "c",
			}},
			Spec: tenancyv1alpha1.WorkspaceSpec{
				Type: &tenancyv1alpha1.WorkspaceTypeReference{Name: "universal", Path: "root"}, Cluster: "c", URL: "https://kcp.test/clusters/root:team",
			},
			Status: tenancyv1alpha1.WorkspaceStatus{Phase: corev1alpha1.LogicalClusterPhaseReady},
		}
	}
	type change func(*tenancyv1alpha1.Workspace)
	for name, tc := range map[string]struct {
		old         change // nil: the workspace is created
		now         change
		subresource string
		tenants     string // the refusal of tenants; empty if they are admitted
		privileged  string // the refusal of privileged users
	}{
		"a workspace is created":             {nil, func(ws *tenancyv1alpha1.Workspace) { *ws = tenancyv1alpha1.Workspace{} }, "", "", ""},
		"a tenant cannot choose the cluster": {nil, func(ws *tenancyv1alpha1.Workspace) { *ws = tenancyv1alpha1.Workspace{}; ws.Spec.Cluster = "c" }, "", "spec.cluster can only", ""},
		"a tenant cannot choose the URL":     {nil, func(ws *tenancyv1alpha1.Workspace) { *ws = tenancyv1alpha1.Workspace{}; ws.Spec.URL = "u" }, "", "spec.URL can only", ""},
		"a tenant cannot set type and mount": {nil, func(ws *tenancyv1alpha1.Workspace) { ws.Spec.Cluster, ws.Spec.URL, ws.Spec.Mount = "", "", mount }, "", "mutually exclusive", ""},
		"a mount requires a reference": {nil, func(ws *tenancyv1alpha1.Workspace) {
			*ws = tenancyv1alpha1.Workspace{}
			ws.Spec.Mount = &tenancyv1alpha1.Mount{}
		}, "", "spec.mount.ref needs", "spec.mount.ref needs"},
		"phase Ready requires a cluster":                         {nil, func(ws *tenancyv1alpha1.Workspace) { ws.Spec.Cluster = "" }, "", "must be set for phase Ready", "must be set for phase Ready"},
		"an update without a change is admitted":                 {func(*tenancyv1alpha1.Workspace) {}, func(*tenancyv1alpha1.Workspace) {}, "", "", ""},
		"labels can be changed":                                  {func(*tenancyv1alpha1.Workspace) {}, func(ws *tenancyv1alpha1.Workspace) { ws.Labels = map[string]string{"a": "b"} }, "", "", ""},
		"the type cannot be changed":                             {func(*tenancyv1alpha1.Workspace) {}, func(ws *tenancyv1alpha1.Workspace) { ws.Spec.Type.Name = "other" }, "", "spec.type is immutable", "spec.type is immutable"},
		"the mount cannot be changed":                            {func(*tenancyv1alpha1.Workspace) {}, func(ws *tenancyv1alpha1.Workspace) { ws.Spec.Mount = mount }, "", "spec.mount is immutable", "spec.mount is immutable"},
		"a tenant cannot change the cluster":                     {func(*tenancyv1alpha1.Workspace) {}, func(ws *tenancyv1alpha1.Workspace) { ws.Spec.Cluster = "other" }, "", "spec.cluster can only", ""},
		"a tenant cannot change the URL":                         {func(*tenancyv1alpha1.Workspace) {}, func(ws *tenancyv1alpha1.Workspace) { ws.Spec.URL = "https://evil.test" }, "", "spec.URL can only", ""},
		"a tenant cannot change the owner":                       {func(*tenancyv1alpha1.Workspace) {}, func(ws *tenancyv1alpha1.Workspace) { ws.Annotations[tenancyv1alpha1.OwnerAnnotation] = "" }, "", "owner is immutable", ""},
		"a tenant cannot change the required groups":             {func(*tenancyv1alpha1.Workspace) {}, func(ws *tenancyv1alpha1.Workspace) { delete(ws.Annotations, corev1alpha1.RequiredGroupsAnnotation) }, "", "is immutable", ""},
		"a tenant cannot add the annotation for mounts":          {func(*tenancyv1alpha1.Workspace) {}, func(ws *tenancyv1alpha1.Workspace) { ws.Annotations[tenancyv1alpha1.MountAnnotation] = "{}" }, "", "is immutable", ""},
		"a tenant cannot change the annotation with the cluster": {func(*tenancyv1alpha1.Workspace) {}, func(ws *tenancyv1alpha1.Workspace) { ws.Annotations[tenancyv1alpha1.ClusterAnnotation] = "d" }, "", "set by the system", ""},
		"a tenant cannot change the annotation with the shard":   {func(*tenancyv1alpha1.Workspace) {}, func(ws *tenancyv1alpha1.Workspace) { ws.Annotations[tenancyv1alpha1.ShardAnnotation] = "d" }, "", "set by the system", ""},
		"a tenant cannot remove the finalizer of the system":     {func(*tenancyv1alpha1.Workspace) {}, func(ws *tenancyv1alpha1.Workspace) { ws.Finalizers = nil }, "", "is removed by the system", ""},
		"a tenant can remove another finalizer":                  {func(ws *tenancyv1alpha1.Workspace) { ws.Finalizers = append(ws.Finalizers, "example.org/mine") }, func(*tenancyv1alpha1.Workspace) {}, "", "", ""},
		"a tenant cannot set the annotation with the epoch":      {func(*tenancyv1alpha1.Workspace) {}, func(ws *tenancyv1alpha1.Workspace) { ws.Annotations[tenancyv1alpha1.EpochAnnotation] = "9" }, "", "set by the system", ""},
		"a tenant cannot set the UID of the cluster":             {func(*tenancyv1alpha1.Workspace) {}, func(ws *tenancyv1alpha1.Workspace) { ws.Annotations[tenancyv1alpha1.ClusterUIDAnnotation] = "d" }, "", "set by the system", ""},
		"a tenant cannot change the status":                      {func(*tenancyv1alpha1.Workspace) {}, func(ws *tenancyv1alpha1.Workspace) { ws.Status.Phase = "Initializing" }, "status", "the status of a workspace is set by the system", ""},
	} {
		t.Run(name, func(t *testing.T) {
			ws, old, op := full(), &tenancyv1alpha1.Workspace{}, admission.Create
			tc.now(ws)
			if tc.old != nil {
				op, old = admission.Update, full()
				tc.old(old)
			}
			ctx := logicalcluster.WithName(t.Context(), "root")
			for who, want := range map[*user.DefaultInfo]string{tenant: tc.tenants, privileged: tc.privileged} {
				a := attributesOf(t, tenancyv1alpha1.SchemeGroupVersion.WithKind("Workspace"), old, ws, tc.subresource, op, who)
				if got := workspaceProblem(ctx, a, old, ws); (got == "") != (want == "") || !strings.Contains(got, want) {
					t.Errorf("the refusal of %s is %q, want %q", who.Name, got, want)
				}
			}
		})
	}
}

func TestTheSystemSetsAnnotationsOfANewWorkspace(t *testing.T) {
	parent := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{corev1alpha1.RequiredGroupsAnnotation: "staff"}}}
	given := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		tenancyv1alpha1.OwnerAnnotation: `{"username":"eve"}`, corev1alpha1.RequiredGroupsAnnotation: "", tenancyv1alpha1.ClusterAnnotation: "root",
		tenancyv1alpha1.ShardAnnotation: "other", "example.org/mine": "kept",
	}}}
	ctx := logicalcluster.WithName(t.Context(), "root")
	written := func(who user.Info) map[string]string {
		a := attributesOf(t, tenancyv1alpha1.SchemeGroupVersion.WithKind("Workspace"), nil, given, "", admission.Create, who)
		system, err := systemAnnotations(ctx, a, parent)
		if err != nil {
			t.Fatal(err)
		}
		return withSystem(given.Annotations, system)
	}

	got := written(tenant)
	owner := authenticationv1.UserInfo{}
	if err := json.Unmarshal([]byte(got[tenancyv1alpha1.OwnerAnnotation]), &owner); err != nil || owner.Username != "ada" {
		t.Errorf("the owner is %q", got[tenancyv1alpha1.OwnerAnnotation])
	}
	if got[corev1alpha1.RequiredGroupsAnnotation] != "staff" {
		t.Errorf("the required groups of the parent are not those of the workspace: %v", got)
	}
	for _, key := range placeAnnotations {
		if value, ok := got[key]; ok {
			t.Errorf("a tenant sets %s to %q", key, value)
		}
	}
	if got["example.org/mine"] != "kept" {
		t.Errorf("an annotation is lost: %v", got)
	}

	got = written(privileged)
	if got[tenancyv1alpha1.OwnerAnnotation] != `{"username":"eve"}` || got[corev1alpha1.RequiredGroupsAnnotation] != "" || got[tenancyv1alpha1.ClusterAnnotation] != "root" {
		t.Errorf("annotations of a privileged user are changed: %v", got)
	}
}

// Webhooks and policies run between the mutation that sets the annotations and their validation.
func TestAChangeOfTheAnnotationsOfTheSystemIsRefused(t *testing.T) {
	parent := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{corev1alpha1.RequiredGroupsAnnotation: "staff"}}}
	ctx := logicalcluster.WithName(t.Context(), "root")
	kind := tenancyv1alpha1.SchemeGroupVersion.WithKind("Workspace")
	for key, value := range map[string]string{
		"": "", tenancyv1alpha1.OwnerAnnotation: `{"username":"eve"}`, corev1alpha1.RequiredGroupsAnnotation: "all", tenancyv1alpha1.ClusterAnnotation: "root",
	} {
		ws := &tenancyv1alpha1.Workspace{}
		system, err := systemAnnotations(ctx, attributesOf(t, kind, nil, ws, "", admission.Create, tenant), parent)
		if err != nil {
			t.Fatal(err)
		}
		ws.Annotations = withSystem(nil, system)
		if key != "" {
			ws.Annotations[key] = value
		}
		err = checkSystemAnnotations(ctx, attributesOf(t, kind, nil, ws, "", admission.Create, tenant), parent)
		if (err != nil) != (key != "") {
			t.Errorf("%q changed: %v", key, err)
		}
	}
}

func TestNewWorkspacesGetTheirTypeAndMount(t *testing.T) {
	const use = "ada use workspacetypes.tenancy.kcp.io "
	const region = `mount: {ref: {apiVersion: example.org/v1, kind: Region, name: prod}}`
	typed := func(reference string) string { return "metadata: {name: team}\nspec: {type: {" + reference + "}}" }
	typeOf := func(name, path string) map[string]any {
		return map[string]any{"type": map[string]any{"name": name, "path": path}}
	}
	mounted := map[string]any{"mount": map[string]any{"ref": map[string]any{"apiVersion": "example.org/v1", "kind": "Region", "name": "prod"}}}
	types := []objecttest.Object{
		workspaceType("root", "universal", nil), workspaceType("root", "base", nil), workspaceType("root", "derived", extending("base")),
		workspaceType("root", "organization", func(spec *tenancyv1alpha1.WorkspaceTypeSpec) {
			spec.DefaultChildWorkspaceType = &tenancyv1alpha1.WorkspaceTypeReference{Path: "root", Name: "labels"}
		}),
		workspaceType("root", "leaf", func(spec *tenancyv1alpha1.WorkspaceTypeSpec) {
			spec.LimitAllowedChildren = &tenancyv1alpha1.WorkspaceTypeSelector{None: true}
		}),
		workspaceType("root", "labels", func(spec *tenancyv1alpha1.WorkspaceTypeSpec) {
			spec.AdditionalWorkspaceLabels = map[string]string{"a": "type", "b": "type"}
		}),
		workspaceType("root", "circle", extending("circle2")), workspaceType("root", "circle2", extending("circle")),
		workspaceType("org", "own", nil),
	}
	for name, test := range map[string]struct {
		write
		parent  string // the type of the parent
		granted grants
		refused string
		spec    map[string]any
		labels  map[string]string
	}{
		"the default type is universal":                       {write{object: `metadata: {name: team}`}, "", grants{use + "universal in root deeply"}, "", typeOf("universal", "root"), nil},
		"the default type requires permission":                {write{object: `metadata: {name: team}`}, "", nil, "403 Forbidden: unable to use workspace type root:universal: missing verb='use' permission on workspacetype", nil, nil},
		"the type of the parent has another default":          {write{object: `metadata: {name: team}`}, "root:organization", grants{use + "labels in root deeply"}, "", typeOf("labels", "root"), map[string]string{"a": "type", "b": "type"}},
		"labels of the client are kept":                       {write{object: "metadata: {name: team, labels: {a: mine}}\nspec: {type: {name: labels, path: root}}"}, "", grants{use + "labels in root deeply"}, "", typeOf("labels", "root"), map[string]string{"a": "mine", "b": "type"}},
		"a type of the parent workspace gets its path":        {write{object: typed("name: own")}, "", grants{use + "own in org deeply"}, "", typeOf("own", "root:org"), nil},
		"a type of a workspace above gets its path":           {write{object: typed("name: base")}, "", grants{use + "base in root deeply"}, "", typeOf("base", "root"), nil},
		"a logical cluster as path is kept":                   {write{object: typed("name: own, path: org")}, "", grants{use + "own in org deeply"}, "", typeOf("own", "org"), nil},
		"a type that the user may not use is refused":         {write{object: typed("name: base, path: root")}, "", nil, "403 Forbidden: unable to use workspace type root:base: missing verb='use' permission on workspacetype", nil, nil},
		"an extended type must be usable":                     {write{object: typed("name: derived, path: root")}, "", grants{use + "derived in root deeply"}, "403 Forbidden: unable to use workspace type root:base: missing verb='use' permission on workspacetype", nil, nil},
		"a type with what it extends is admitted":             {write{object: typed("name: derived, path: root")}, "", grants{use + "derived in root deeply", use + "base in root deeply"}, "", typeOf("derived", "root"), nil},
		"a type that does not exist is refused":               {write{object: typed("name: none, path: root")}, "", grants{use + "none in root deeply"}, `403 Forbidden: workspacetypes.tenancy.kcp.io "root:none" not found…`, nil, nil},
		"without permission, the message does not reveal it":  {write{object: typed("name: none, path: root")}, "", nil, "403 Forbidden: unable to use workspace type root:none: missing verb='use' permission on workspacetype", nil, nil},
		"a circle of types is refused":                        {write{object: typed("name: circle, path: root")}, "", grants{use + "circle in root deeply"}, "403 Forbidden: circular dependency detected in workspace type root:circle", nil, nil},
		"the type of the parent can refuse children":          {write{object: typed("name: base, path: root")}, "root:leaf", grants{use + "base in root deeply"}, "403 Forbidden: workspace type root:leaf cannot have any child workspace type", nil, nil},
		"a type of the parent that is deleted limits nothing": {write{object: typed("name: base, path: root")}, "root:deleted", grants{use + "base in root deeply"}, "", typeOf("base", "root"), nil},
		"a mounted workspace gets no type":                    {write{object: "metadata: {name: team}\nspec: {" + region + "}"}, "", grants{"ada get regions.example.org prod in org"}, "", mounted, nil},
		"the annotation for mounts sets the spec": {write{object: `metadata: {name: team, annotations: {experimental.tenancy.kcp.io/mount: '{"spec":{"ref":{"apiVersion":"example.org/v1","kind":"Region","name":"prod"}}}'}}`}, "",
			grants{"ada get regions.example.org prod in org"}, "", mounted, nil},
		"an invalid annotation for mounts is refused": {write{object: `metadata: {name: team, annotations: {experimental.tenancy.kcp.io/mount: x}}`}, "", nil, "403 Forbidden: annotation experimental.tenancy.kcp.io/mount is invalid…", nil, nil},
		"a mount requires permission on the object":   {write{object: "metadata: {name: team}\nspec: {" + region + "}"}, "", nil, "403 Forbidden: unable to mount from Region prod: missing verb='get' permission on regions.example.org", nil, nil},
		"a name that is not a label is refused":       {write{object: `metadata: {name: a.b}`}, "", grants{use + "universal in root deeply"}, `422 Invalid: metadata.name: Invalid value: "a.b": the name of a workspace must be a label: …`, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			test.group, test.version = "tenancy.kcp.io", "v1alpha1"
			clusters := at("root", "root:org")
			for _, obj := range clusters {
				if lc, ok := obj.(*corev1alpha1.LogicalCluster); ok && test.parent != "" && logicalcluster.Of(lc) == "org" {
					lc.Annotations[tenancyv1alpha1.TypeAnnotation] = test.parent
				}
			}
			plugin := workspaceRules{rules{newConfig(t, test.granted, append(clusters, types...)...)}}
			a := test.attributes(t, "Workspace")
			err := plugin.Admit(in(t, "org"), a, nil)
			if err == nil {
				err = plugin.Validate(in(t, "org"), a, nil)
			}
			wantOutcome(t, a, err, test.refused)
			if err != nil {
				return
			}
			if got := contentOf(t, a)["spec"]; !reflect.DeepEqual(got, any(test.spec)) {
				t.Errorf("got spec %v, want %v", got, test.spec)
			}
			if got := a.GetObject().(metav1.Object).GetLabels(); !maps.Equal(got, test.labels) {
				t.Errorf("got labels %v, want %v", got, test.labels)
			}
		})
	}
}
