package admission

import (
	"encoding/json"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
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
