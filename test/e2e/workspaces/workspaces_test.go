package workspaces

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

func TestWorkspaceIsReadyWhenItIsCreated(t *testing.T) {
	t.Parallel()
	org := server.Organization(t, kcptest.Alice)
	made, err := org.Dynamic(t, kcptest.Alice).Resource(kcptest.Workspaces).Create(kcptest.Context(t), kcptest.Workspace("team", "", ""), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	phase, _, _ := unstructured.NestedString(made.Object, "status", "phase")
	kind, _, _ := unstructured.NestedString(made.Object, "spec", "type", "name")
	url, _, _ := unstructured.NestedString(made.Object, "spec", "URL")
	if phase != "Ready" || kind != "universal" || !strings.HasSuffix(url, "/clusters/"+org.Name+":team") {
		t.Errorf("got phase %q, type %q, URL %q", phase, kind, url)
	}
	team := server.Named(org.Name + ":team")
	lc, err := team.Dynamic(t, kcptest.Alice).Resource(kcptest.LogicalClusters).Get(kcptest.Context(t), "cluster", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if path := lc.GetAnnotations()[corev1alpha1.PathAnnotation]; path != org.Name+":team" {
		t.Errorf("got path %q of its logical cluster", path)
	}
}

func TestNewWorkspaceHasDefaultObjects(t *testing.T) {
	t.Parallel()
	org := server.Organization(t, kcptest.Alice)
	team := org.CreateWorkspace(t, kcptest.Alice, kcptest.Workspace("team", "", ""))
	ctx := kcptest.Context(t)
	kube := team.Kube(t, kcptest.Alice)
	namespaces, err := kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil || len(namespaces.Items) != 2 {
		t.Fatalf("got %d namespaces: %v", len(namespaces.Items), err)
	}
	for _, namespace := range namespaces.Items {
		if _, err := kube.CoreV1().ServiceAccounts(namespace.Name).Get(ctx, "default", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
		if _, err := kube.CoreV1().ConfigMaps(namespace.Name).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	}
	binding, err := kube.RbacV1().ClusterRoleBindings().Get(ctx, "workspace-admin", metav1.GetOptions{})
	if err != nil || len(binding.Subjects) != 1 || binding.Subjects[0].Name != kcptest.Alice.Name || binding.RoleRef.Name != "cluster-admin" {
		t.Errorf("the role binding of the owner is %v: %v", binding, err)
	}
}

// The first requests to a workspace create its default objects, while others arrive at the same time.
func TestAllOfTheFirstRequestsAreServed(t *testing.T) {
	t.Parallel()
	org := server.Organization(t, kcptest.Alice)
	workspaces := org.Dynamic(t, kcptest.Alice).Resource(kcptest.Workspaces)
	paths := []string{
		"/api/v1/namespaces/default/configmaps/kube-root-ca.crt", "/apis/topology.kcp.io/v1alpha1/partitions", "/apis/tenancy.kcp.io/v1alpha1/workspaces",
		"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/workspace-admin", "/apis/apis.kcp.io/v1alpha2/apibindings",
	}
	for i := range 10 {
		name := fmt.Sprint("first-", i)
		if _, err := workspaces.Create(kcptest.Context(t), kcptest.Workspace(name, "", ""), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		var requests sync.WaitGroup
		for client := range 10 {
			requests.Go(func() {
				for n := range 3 {
					path := paths[(client+n)%len(paths)]
					code, answer := server.Get(t, kcptest.Alice, "/clusters/"+org.Name+":"+name+path)
					if code != http.StatusOK {
						t.Errorf("%s of a new workspace: %d %s", path, code, answer)
					}
				}
			})
		}
		requests.Wait()
	}
}

// Default objects are stored without requests, most of them as copies of those that the server has made first. They must be the same as
// after requests.
func TestDefaultObjectsAreTheSameAsAfterRequests(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	kube := server.Organization(t, kcptest.Alice).CreateWorkspace(t, kcptest.Alice, kcptest.Workspace("team", "", "")).Kube(t, kcptest.Alice)
	want := map[string]metav1.Object{}
	got := map[string]metav1.Object{}
	var errs [6]error
	got["Namespace"], errs[0] = kube.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
	want["Namespace"], errs[1] = kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "like"}}, metav1.CreateOptions{})
	certificates, err := kube.CoreV1().ConfigMaps("default").Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	annotations := maps.Clone(certificates.Annotations)
	delete(annotations, "kcp.io/cluster")
	got["ConfigMap"] = certificates
	want["ConfigMap"], errs[2] = kube.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "like", Annotations: annotations}, Data: certificates.Data}, metav1.CreateOptions{})
	got["ServiceAccount"], errs[3] = kube.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
	want["ServiceAccount"], errs[4] = kube.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "like"}}, metav1.CreateOptions{})
	binding, err := kube.RbacV1().ClusterRoleBindings().Get(ctx, "workspace-admin", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got["ClusterRoleBinding"] = binding
	want["ClusterRoleBinding"], errs[5] = kube.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "like"}, RoleRef: binding.RoleRef, Subjects: binding.Subjects}, metav1.CreateOptions{})
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	fields := func(m metav1.Object) string {
		text := ""
		for _, entry := range m.GetManagedFields() {
			text += fmt.Sprintf("%s %s %s %s;", entry.Operation, entry.APIVersion, entry.FieldsType, entry.FieldsV1.GetRawString())
		}
		return text
	}
	for kind := range want {
		if got, want := fields(got[kind]), fields(want[kind]); got != want {
			t.Errorf("the managed fields of the %s are %s, want %s", kind, got, want)
		}
		if difference := cmp.Diff(withoutIdentity(t, want[kind]), withoutIdentity(t, got[kind])); difference != "" {
			t.Errorf("the default %s differs:\n%s", kind, difference)
		}
	}
}

// withoutIdentity returns an object without what differs in each object.
func withoutIdentity(t *testing.T, obj metav1.Object) map[string]any {
	t.Helper()
	if uid, created := obj.GetUID(), obj.GetCreationTimestamp(); len(uid) != 36 || time.Since(created.Time) > time.Hour {
		t.Errorf("%T has the UID %q and was created at %s", obj, uid, created)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetName("")
	u.SetUID("")
	u.SetResourceVersion("")
	u.SetCreationTimestamp(metav1.Time{})
	u.SetManagedFields(nil)
	if labels := u.GetLabels(); labels["kubernetes.io/metadata.name"] == obj.GetName() {
		delete(labels, "kubernetes.io/metadata.name")
		u.SetLabels(labels)
	}
	return u.Object
}

func TestOtherTenantsHaveNoAccess(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	alices := server.Organization(t, kcptest.Alice)
	if _, err := alices.Kube(t, kcptest.Alice).CoreV1().Secrets("").List(ctx, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := alices.Kube(t, kcptest.Stranger).CoreV1().Secrets("").List(ctx, metav1.ListOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	_, err = alices.Dynamic(t, kcptest.Stranger).Resource(kcptest.Workspaces).Create(ctx, kcptest.Workspace("x", "", ""), metav1.CreateOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	_, err = server.Named(alices.Name+":absent").Kube(t, kcptest.Stranger).CoreV1().Secrets("").List(ctx, metav1.ListOptions{})
	if !kcptest.IsNoWorkspace(err) {
		t.Errorf("a path that does not exist: %v", err)
	}
}

func TestWorkspacesCanBeNested(t *testing.T) {
	t.Parallel()
	org := server.Organization(t, kcptest.Alice)
	team := org.CreateWorkspace(t, kcptest.Alice, kcptest.Workspace("team", "root", "universal"))
	app := team.CreateWorkspace(t, kcptest.Alice, kcptest.Workspace("app", "", ""))
	app.Kubectl(t, "create", "configmap", "here")
	if got := strings.TrimSpace(app.Kubectl(t, "get", "configmap", "here", "--output=jsonpath={.metadata.name}")); got != "here" {
		t.Errorf("got %q", got)
	}
	if err := org.Dynamic(t, kcptest.Alice).Resource(kcptest.Workspaces).Delete(kcptest.Context(t), "team", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.WaitUntilGone(t, org.Dynamic(t, kcptest.Alice).Resource(kcptest.Workspaces), "team")
	kcptest.Eventually(t, "the path does not exist any more", func(ctx context.Context) error {
		_, err := app.Kube(t, kcptest.Masters).CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		return kcptest.Gone(err)
	})
}

func TestInvalidWorkspacesAreRefused(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	org := server.Organization(t, kcptest.Alice)
	types := org.Dynamic(t, kcptest.Alice).Resource(kcptest.WorkspaceTypes)
	workspaces := org.Dynamic(t, kcptest.Alice).Resource(kcptest.Workspaces)
	with := func(change func(object map[string]any)) *unstructured.Unstructured {
		ws := kcptest.Workspace("ws-"+kcptest.Suffix(), "root", "universal")
		change(ws.Object)
		return ws
	}
	set := func(value any, fields ...string) func(map[string]any) {
		return func(object map[string]any) { _ = unstructured.SetNestedField(object, value, fields...) }
	}
	for _, test := range []struct {
		ws   *unstructured.Unstructured
		want string
	}{
		{kcptest.Workspace("Upper", "", ""), "name"},
		{kcptest.Workspace(strings.Repeat("a", 64), "", ""), "name of a workspace"},
		{kcptest.Workspace("a.b", "", ""), "name of a workspace"},
		{kcptest.Workspace("x", "", "absent"), "searched in " + org.Name + ", root"},
		{kcptest.Workspace("x", "root:absent", "thing"), "workspace root:absent does not exist"},
		{kcptest.Workspace("x", "root", "home"), "cannot have any parent workspace type"},
		{kcptest.Workspace("x", "root", "organization"), "only allows [root:root] parent workspaces"},
		{with(set("root", "spec", "cluster")), "spec.cluster can only be set by system privileged users"},
		{with(set("https://evil", "spec", "URL")), "spec.URL can only be set by system privileged users"},
	} {
		if _, err := workspaces.Create(ctx, test.ws, metav1.CreateOptions{}); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", test.ws.GetName(), err, test.want)
		}
	}
	workspaceType := func(name string, spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType", "metadata": map[string]any{"name": name}, "spec": spec,
		}}
	}
	for _, test := range []struct {
		name string
		spec map[string]any
		want string
	}{
		{"any", nil, "name is reserved"}, {"system", nil, "name is reserved"}, {"root", nil, "in the workspace root only"},
		{"self", map[string]any{"extend": map[string]any{"with": []any{map[string]any{"name": "self"}}}}, "circular dependency"},
		{"both", map[string]any{"limitAllowedParents": map[string]any{"none": true, "types": []any{map[string]any{"name": "x"}}}}, "exactly one of none and types"},
		{"binds", map[string]any{"defaultAPIBindings": []any{map[string]any{"path": "root:absent", "export": "things"}}}, "no permission to bind"},
	} {
		if _, err := types.Create(ctx, workspaceType(test.name, test.spec), metav1.CreateOptions{}); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("type %s: got %v, want %q", test.name, err, test.want)
		}
	}
}

func TestTypeRequiresPermissionToUse(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	alices, bobs := server.Organization(t, kcptest.Alice), server.Organization(t, kcptest.Bob)
	private := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType", "metadata": map[string]any{"name": "private"},
		"spec": map[string]any{"extend": map[string]any{"with": []any{map[string]any{"name": "universal", "path": "root"}}}},
	}}
	if _, err := alices.Dynamic(t, kcptest.Alice).Resource(kcptest.WorkspaceTypes).Create(ctx, private, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	want := "unable to use workspace type " + alices.Name + ":private: missing verb='use' permission on workspacetype"
	below := bobs.CreateWorkspace(t, kcptest.Bob, kcptest.Workspace("below", "", ""))
	workspaces := below.Dynamic(t, kcptest.Bob).Resource(kcptest.Workspaces)
	if _, err := workspaces.Create(ctx, kcptest.Workspace("x", alices.Name, "private"), metav1.CreateOptions{}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	// For a type that does not exist, Bob gets the same error.
	_, err := workspaces.Create(ctx, kcptest.Workspace("x", alices.Name, "absent"), metav1.CreateOptions{})
	if want := strings.Replace(want, ":private", ":absent", 1); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	// A user without permission to use a type cannot get its bindings by extending it, also not in existing workspaces.
	workspaceTypes := below.Dynamic(t, kcptest.Bob).Resource(kcptest.WorkspaceTypes)
	extending := func(path, name string) []byte {
		return fmt.Appendf(nil, `{"spec":{"extend":{"with":[{"path":%q,"name":%q}]}}}`, path, name)
	}
	own := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType", "metadata": map[string]any{"name": "own"}, "spec": map[string]any{},
	}}
	if _, err := workspaceTypes.Create(ctx, own, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"private", "absent"} {
		_, err := workspaceTypes.Patch(ctx, "own", types.MergePatchType, extending(alices.Name, name), metav1.PatchOptions{})
		if want := strings.Replace(want, ":private", ":"+name, 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("extending %s: got %v, want %q", name, err, want)
		}
	}
	if _, err := workspaceTypes.Patch(ctx, "own", types.MergePatchType, extending("root", "universal"), metav1.PatchOptions{}); err != nil {
		t.Errorf("extending a type that all users can use: %v", err)
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "use-private"}, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"use"}, APIGroups: []string{"tenancy.kcp.io"}, Resources: []string{"workspacetypes"}, ResourceNames: []string{"private"}},
	}}
	if _, err := alices.Kube(t, kcptest.Alice).RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	alices.Kubectl(t, "create", "clusterrolebinding", "use-private", "--clusterrole=use-private", "--user="+kcptest.Bob.Name)
	kcptest.Eventually(t, "the type can be used", func(ctx context.Context) error {
		_, err := workspaces.Create(ctx, kcptest.Workspace("x", alices.Name, "private"), metav1.CreateOptions{})
		return err
	})
}

func TestSystemFieldsCannotBeForged(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	org := server.Organization(t, kcptest.Alice)
	forged := kcptest.Workspace("forged", "", "")
	forged.SetAnnotations(map[string]string{"experimental.tenancy.kcp.io/owner": `{"username":"bob","groups":["system:masters"]}`})
	team := org.CreateWorkspace(t, kcptest.Alice, forged)
	if _, err := team.Kube(t, kcptest.Alice).CoreV1().Secrets("").List(ctx, metav1.ListOptions{}); err != nil {
		t.Errorf("the creator is not the owner: %v", err)
	}
	_, err := team.Kube(t, kcptest.Bob).CoreV1().Secrets("").List(ctx, metav1.ListOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)

	workspaces := org.Dynamic(t, kcptest.Alice).Resource(kcptest.Workspaces)
	for _, patch := range []string{
		`{"spec":{"cluster":"root"}}`, `{"spec":{"cluster":null}}`, `{"spec":{"URL":"https://evil"}}`, `{"spec":{"type":{"name":"organization"}}}`,
		`{"metadata":{"annotations":{"experimental.tenancy.kcp.io/owner":"{\"username\":\"bob\"}"}}}`,
	} {
		if _, err := workspaces.Patch(ctx, "forged", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err == nil {
			t.Errorf("%s was accepted", patch)
		}
	}
	_, err = workspaces.Patch(ctx, "forged", types.MergePatchType, []byte(`{"status":{"phase":"Unavailable"}}`), metav1.PatchOptions{}, "status")
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)

	logicalClusters := team.Dynamic(t, kcptest.Alice).Resource(kcptest.LogicalClusters)
	kcptest.WantReason(t, logicalClusters.Delete(ctx, "cluster", metav1.DeleteOptions{}), metav1.StatusReasonForbidden)
	for _, patch := range []string{
		`{"metadata":{"annotations":{"kcp.io/path":"root"}}}`, `{"metadata":{"annotations":{"internal.tenancy.kcp.io/type":"root:root"}}}`,
		`{"spec":{"owner":{"name":"other"}}}`, `{"spec":{"createdBy":{"username":"bob"}}}`, `{"spec":{"initializers":["root:other"]}}`,
	} {
		_, err := logicalClusters.Patch(ctx, "cluster", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	}
}

func TestWorkspaceWaitsForMatchingShard(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	org := server.Organization(t, kcptest.Alice)
	region := "r-" + kcptest.Suffix()
	ws := kcptest.Workspace("far", "", "")
	_ = unstructured.SetNestedStringMap(ws.Object, map[string]string{"region-" + region: "yes"}, "spec", "location", "selector", "matchLabels")
	if _, err := org.Dynamic(t, kcptest.Alice).Resource(kcptest.Workspaces).Create(ctx, ws, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "the status says that no shard accepts the workspace", func(context.Context) error {
		got := org.GetWorkspace(t, "far")
		for _, c := range got.Status.Conditions {
			if c.Type == "WorkspaceScheduled" && c.Status == metav1.ConditionFalse && c.Reason == "Unschedulable" && strings.Contains(c.Message, "region-"+region) {
				return nil
			}
		}
		return fmt.Errorf("got status %+v", got.Status)
	})
	server.Named("root").Kubectl(t, "label", "shard", "root", "region-"+region+"=yes")
	kcptest.Eventually(t, "the workspace is ready", func(context.Context) error {
		if got := org.GetWorkspace(t, "far"); got.Status.Phase != corev1alpha1.LogicalClusterPhaseReady || got.Spec.Cluster == "" {
			return fmt.Errorf("got status %+v", got.Status)
		}
		return nil
	})
	if _, err := server.Named(org.Name+":far").Kube(t, kcptest.Alice).CoreV1().Namespaces().List(ctx, metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
}
func TestTypeReferenceOfWorkspaceKeepsFormOfPath(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	above := server.Organization(t, kcptest.Masters)
	org := above.CreateWorkspace(t, kcptest.Masters, kcptest.Workspace("types", "", ""))
	name := above.GetWorkspace(t, "types").Spec.Cluster
	if _, err := org.Objects(t, kcptest.WorkspaceTypes).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType", "metadata": map[string]any{"name": "given"}, "spec": map[string]any{},
	}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for workspace, c := range map[string]struct{ given, want string }{"by-name": {name, name}, "by-path": {org.Name, org.Name}, "by-search": {"", org.Name}} {
		kcptest.Eventually(t, "the server knows the type", func(ctx context.Context) error {
			_, err := org.Objects(t, kcptest.Workspaces).Create(ctx, kcptest.Workspace("try", c.given, "given"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		})
		inside := org.CreateWorkspace(t, kcptest.Masters, kcptest.Workspace(workspace, c.given, "given"))
		if got := org.GetWorkspace(t, workspace).Spec.Type; got == nil || got.Path != c.want {
			t.Errorf("%s: got type %v, want path %s", workspace, got, c.want)
		}
		lc, err := inside.Objects(t, kcptest.LogicalClusters).Get(ctx, "cluster", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := lc.GetAnnotations()["internal.tenancy.kcp.io/type"]; got != org.Name+":given" {
			t.Errorf("%s: the logical cluster has type %s", workspace, got)
		}
	}
}
