package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

var defaultRoles = []string{"admin", "cluster-admin", "edit", "view"}

func names(roles []rbacv1.ClusterRole) []string {
	var names []string
	for _, role := range roles {
		names = append(names, role.Name)
	}
	slices.Sort(names)
	return names
}

func TestEveryClusterHasDefaultClusterRoles(t *testing.T) {
	cluster := server.Cluster(t)
	kube, ctx := cluster.Kube(t, kcptest.Masters), kcptest.Context(t)
	roles := kube.RbacV1().ClusterRoles()
	list, err := roles.List(ctx, metav1.ListOptions{})
	if err != nil || !slices.Equal(names(list.Items), defaultRoles) {
		t.Fatalf("listed %v, %v", names(list.Items), err)
	}
	other, err := server.Cluster(t).Kube(t, kcptest.Masters).RbacV1().ClusterRoles().Get(ctx, "view", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, listed := range list.Items {
		role, err := roles.Get(ctx, listed.Name, metav1.GetOptions{})
		if err != nil || len(role.Rules) == 0 || role.Labels["kubernetes.io/bootstrapping"] != "rbac-defaults" || role.Annotations["kcp.io/cluster"] != cluster.Name {
			t.Errorf("got %v, %v", role, err)
		}
		if role.UID == "" || role.UID != listed.UID || role.UID == other.UID || role.CreationTimestamp.IsZero() || role.ResourceVersion == "" {
			t.Errorf("the metadata of %s is %v, in the list %v", role.Name, role.ObjectMeta, listed.ObjectMeta)
		}
	}
	selected, err := roles.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=edit"})
	if err != nil || !slices.Equal(names(selected.Items), []string{"edit"}) {
		t.Errorf("selected by name %v, %v", names(selected.Items), err)
	}
	selected, err = roles.List(ctx, metav1.ListOptions{LabelSelector: "rbac.authorization.k8s.io/aggregate-to-edit=true"})
	if err != nil || !slices.Equal(names(selected.Items), []string{"view"}) {
		t.Errorf("selected by label %v, %v", names(selected.Items), err)
	}
	if out := cluster.Kubectl(t, "get", "clusterroles"); !strings.Contains(out, "cluster-admin ") {
		t.Errorf("got output %q", out)
	}
	everywhere, err := server.Named("*").Kube(t, kcptest.Masters).RbacV1().ClusterRoles().List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=edit"})
	if err != nil || len(everywhere.Items) != 0 {
		t.Errorf("listing all clusters: got %v, %v", names(everywhere.Items), err)
	}
}

func TestPagesOfClusterRolesContainEachRoleOnce(t *testing.T) {
	kube, ctx := server.Cluster(t).Kube(t, kcptest.Masters), kcptest.Context(t)
	want := slices.Clone(defaultRoles)
	for i := range 6 {
		want = append(want, createRole(t, kube, fmt.Sprintf("own-%d", i), nil).Name)
	}
	slices.Sort(want)
	for limit := int64(1); limit <= 11; limit++ {
		var got []string
		options := metav1.ListOptions{Limit: limit}
		for {
			page, err := kube.RbacV1().ClusterRoles().List(ctx, options)
			if err != nil {
				t.Fatal(err)
			}
			if int64(len(page.Items)) > limit && limit > int64(len(defaultRoles)) {
				t.Errorf("a page of %d has %d roles", limit, len(page.Items))
			}
			got = append(got, names(page.Items)...)
			if options.Continue = page.Continue; page.Continue == "" {
				break
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("pages of %d: got %v, want %v", limit, got, want)
		}
	}
}

func TestWatchOfClusterRolesStartsWithDefaultRoles(t *testing.T) {
	kube, ctx := server.Cluster(t).Kube(t, kcptest.Masters), kcptest.Context(t)
	roles := kube.RbacV1().ClusterRoles()
	yes := true
	for name, options := range map[string]metav1.ListOptions{
		"without a version": {}, "from any version": {ResourceVersion: "0"},
		"with initial events": {SendInitialEvents: &yes, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan},
	} {
		w, err := roles.Watch(ctx, options)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for range defaultRoles {
			role := nextRole(t, ctx, w, watch.Added)
			if got = append(got, role.Name); role.ResourceVersion == "" {
				t.Errorf("%s: %s has no resource version", name, role.Name)
			}
		}
		if slices.Sort(got); !slices.Equal(got, defaultRoles) {
			t.Errorf("%s: got %v", name, got)
		}
		if options.AllowWatchBookmarks {
			if end := nextRole(t, ctx, w, watch.Bookmark); end.Annotations[metav1.InitialEventsAnnotationKey] != "true" {
				t.Errorf("%s: got the bookmark %v", name, end)
			}
		}
		w.Stop()
	}
	role, err := roles.Get(ctx, "view", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := roles.Watch(ctx, metav1.ListOptions{ResourceVersion: role.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	createRole(t, kube, "own", nil)
	if got := nextRole(t, ctx, w, watch.Added); got.Name != "own" {
		t.Errorf("a watch from the resource version of a default role starts with %s", got.Name)
	}
}

func TestDefaultClusterRolesAreReadOnly(t *testing.T) {
	cluster := server.Cluster(t)
	kube, ctx := cluster.Kube(t, kcptest.Masters), kcptest.Context(t)
	roles := kube.RbacV1().ClusterRoles()
	_, err := roles.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "view"}}, metav1.CreateOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonAlreadyExists)
	role, err := roles.Get(ctx, "view", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, updated := roles.Update(ctx, role, metav1.UpdateOptions{})
	_, patched := roles.Patch(ctx, "edit", types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
	_, applied := roles.Patch(ctx, "admin", types.ApplyPatchType, []byte(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"admin"}}`), metav1.PatchOptions{FieldManager: "test"})
	for verb, err := range map[string]error{"update": updated, "patch": patched, "apply": applied, "delete": roles.Delete(ctx, "cluster-admin", metav1.DeleteOptions{})} {
		kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
		if err != nil && !strings.Contains(err.Error(), "it is read-only: the server derives the default roles") {
			t.Errorf("%s: %v", verb, err)
		}
	}
	if err := roles.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	if list, err := roles.List(ctx, metav1.ListOptions{}); err != nil || !slices.Equal(names(list.Items), defaultRoles) {
		t.Errorf("afterwards: %v, %v", names(list.Items), err)
	}
	// kubectl does not change roles that already grant the rules of the manifest.
	cluster.Command(t, "kubectl", kcptest.Masters).Input(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"cluster-admin"},
		"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}`).Run(t, "auth", "reconcile", "-f", "-")
	if status, body := server.Get(t, kcptest.Alice, "/clusters/"+cluster.Name+"/apis/rbac.authorization.k8s.io/v1/clusterroles/view"); status != http.StatusForbidden {
		t.Errorf("a user without permissions: got %d %s", status, body)
	}
}

// Charts, for example that of cert-manager, label roles and expect the default roles to get their rules.
func TestLabelledClusterRolesAreAggregatedIntoDefaultRoles(t *testing.T) {
	cluster := server.Cluster(t)
	kube, ctx := cluster.Kube(t, kcptest.Masters), kcptest.Context(t)
	createRole(t, kube, "cert-manager-edit", map[string]string{"rbac.authorization.k8s.io/aggregate-to-edit": "true", "rbac.authorization.k8s.io/aggregate-to-admin": "true"},
		rbacv1.PolicyRule{APIGroups: []string{"cert-manager.io"}, Resources: []string{"certificates"}, Verbs: []string{"create"}})
	has := func(name string) bool {
		role, err := kube.RbacV1().ClusterRoles().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		count := 0
		for _, rule := range role.Rules {
			if slices.Contains(rule.APIGroups, "cert-manager.io") {
				count++
			}
		}
		if count > 1 {
			t.Errorf("%s has the rule %d times", name, count)
		}
		return count == 1
	}
	kcptest.Eventually(t, "the default roles have the rule", func(context.Context) error {
		if !has("edit") || !has("admin") {
			return fmt.Errorf("the default roles do not have the rule")
		}
		return nil
	})
	if has("view") {
		t.Error("the role view has a rule of the role edit")
	}
	cluster.Grant(t, kcptest.Alice, "edit")
	kcptest.Eventually(t, "an editor has the permission", func(ctx context.Context) error {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "create", Group: "cert-manager.io", Resource: "certificates", Namespace: "default",
		}}}
		answer, err := cluster.Kube(t, kcptest.Alice).AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err == nil && !answer.Status.Allowed {
			err = fmt.Errorf("the review returned %q", answer.Status.Reason)
		}
		return err
	})
}

func createRole(t *testing.T, kube kubernetes.Interface, name string, labels map[string]string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	t.Helper()
	role, err := kube.RbacV1().ClusterRoles().Create(kcptest.Context(t), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Rules: rules}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return role
}

// nextRole returns the object of the next event, which must have the type want.
func nextRole(t *testing.T, ctx context.Context, w watch.Interface, want watch.EventType) *rbacv1.ClusterRole {
	t.Helper()
	event := next(t, ctx, w)
	role, ok := event.Object.(*rbacv1.ClusterRole)
	if event.Type != want || !ok {
		t.Fatalf("got the event %v, want one of type %s", event, want)
	}
	return role
}
