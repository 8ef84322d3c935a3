package isolation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

const clusterAnnotation = "kcp.io/cluster"

func TestObjectsOfOneClusterAreInvisibleInAnother(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	ours, theirs := server.Cluster(t), server.Cluster(t)
	ours.Kubectl(t, "create", "namespace", "shop")
	ours.Kubectl(t, "create", "configmap", "prices", "--namespace=shop", "--from-literal=apple=1")

	_, err := theirs.Kube(t, kcptest.Masters).CoreV1().Namespaces().Get(ctx, "shop", metav1.GetOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonNotFound)
	_, err = theirs.Kube(t, kcptest.Masters).CoreV1().ConfigMaps("shop").Get(ctx, "prices", metav1.GetOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonNotFound)
	all, err := theirs.Kube(t, kcptest.Masters).CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range all.Items {
		if found.Name == "prices" {
			t.Errorf("cluster %s lists an object of cluster %s", theirs.Name, ours.Name)
		}
	}
}

func TestEqualNamesInTwoClustersAreSeparateObjects(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	clusters := []*kcptest.Cluster{server.Cluster(t), server.Cluster(t)}
	for _, c := range clusters {
		c.Kubectl(t, "create", "configmap", "settings", "--from-literal=owner="+c.Name)
	}
	uids := map[string]bool{}
	for _, c := range clusters {
		found, err := c.Kube(t, kcptest.Masters).CoreV1().ConfigMaps("default").Get(ctx, "settings", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if found.Data["owner"] != c.Name || found.Annotations[clusterAnnotation] != c.Name {
			t.Errorf("cluster %s returns data %v with annotations %v", c.Name, found.Data, found.Annotations)
		}
		uids[string(found.UID)] = true
	}
	if len(uids) != len(clusters) {
		t.Errorf("the objects have the same UID: %v", uids)
	}
	clusters[0].Kubectl(t, "delete", "configmap", "settings")
	if _, err := clusters[1].Kube(t, kcptest.Masters).CoreV1().ConfigMaps("default").Get(ctx, "settings", metav1.GetOptions{}); err != nil {
		t.Errorf("deleting the object in one cluster affected another: %v", err)
	}
}

func TestWatchDeliversOnlyObjectsOfItsCluster(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	ours, theirs := server.Cluster(t), server.Cluster(t)
	watcher, err := theirs.Kube(t, kcptest.Masters).CoreV1().ConfigMaps("default").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	ours.Kubectl(t, "create", "configmap", "foreign")
	theirs.Kubectl(t, "create", "configmap", "own")
	for event := range watcher.ResultChan() {
		object, isConfigMap := event.Object.(*corev1.ConfigMap)
		if !isConfigMap {
			t.Fatalf("the watch delivered %s %v", event.Type, event.Object)
		}
		if object.Name == "foreign" {
			t.Fatalf("the watch delivered an object of another cluster: %v", object.Annotations)
		}
		if object.Name == "own" {
			return
		}
	}
	t.Fatal("the watch ended before it delivered the object of its cluster")
}

func TestPermissionsInOneClusterDoNotApplyInAnother(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	ours, theirs := server.Cluster(t), server.Cluster(t)
	ours.Grant(t, kcptest.Alice, "cluster-admin")
	if _, err := ours.Kube(t, kcptest.Alice).CoreV1().Namespaces().Create(ctx, namespace("made-by-alice"), metav1.CreateOptions{}); err != nil {
		t.Errorf("the administrator of a cluster cannot create a namespace: %v", err)
	}
	for _, refused := range []struct {
		what string
		user kcptest.User
		in   *kcptest.Cluster
	}{
		{"an administrator of another cluster", kcptest.Alice, theirs},
		{"a user without rights", kcptest.Bob, ours},
		{"an anonymous user", kcptest.Anonymous, ours},
	} {
		client := refused.in.Kube(t, refused.user)
		for verb, attempt := range map[string]func() error{
			"get": func() error {
				_, err := client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
				return err
			},
			"list":  func() error { _, err := client.CoreV1().Secrets("").List(ctx, metav1.ListOptions{}); return err },
			"watch": func() error { _, err := client.CoreV1().Secrets("").Watch(ctx, metav1.ListOptions{}); return err },
			"create": func() error {
				_, err := client.CoreV1().Namespaces().Create(ctx, namespace("x"), metav1.CreateOptions{})
				return err
			},
			"delete": func() error { return client.CoreV1().Namespaces().Delete(ctx, "default", metav1.DeleteOptions{}) },
		} {
			if err := attempt(); !apierrors.IsForbidden(err) {
				t.Errorf("%s can %s: %v", refused.what, verb, err)
			}
		}
	}
}

func TestMissingClusterIsForbiddenAndErrorHasNoDetails(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	_, err := server.Named("absent"+kcptest.Suffix()).Kube(t, kcptest.Alice).CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	other := server.Cluster(t)
	_, err = other.Kube(t, kcptest.Alice).CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
}

func TestMissingClusterStoresNoObjects(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	absent := server.Named("absent" + kcptest.Suffix())
	for _, user := range []kcptest.User{kcptest.Alice, kcptest.Masters} {
		if _, err := absent.Kube(t, user).CoreV1().Namespaces().Create(ctx, namespace("x"), metav1.CreateOptions{}); err == nil {
			t.Errorf("%s created a namespace in a cluster that does not exist", user.Name)
		}
	}
	_, err := absent.Dynamic(t, kcptest.Alice).Resource(kcptest.LogicalClusters).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "core.kcp.io/v1alpha1", "kind": "LogicalCluster", "metadata": map[string]any{"name": "cluster"},
	}}, metav1.CreateOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	found, err := server.Named("*").Kube(t, kcptest.Masters).CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range found.Items {
		if item.Annotations[clusterAnnotation] == absent.Name {
			t.Errorf("the namespace %s is stored in a cluster that does not exist", item.Name)
		}
	}
}

func TestUsersCannotGrantMorePermissionsThanTheyHave(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	ours, theirs := server.Cluster(t), server.Cluster(t)
	ours.Grant(t, kcptest.Alice, "cluster-admin")
	theirs.Grant(t, kcptest.Alice, "view")
	theirs.Apply(t, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: binder}
rules:
- apiGroups: [rbac.authorization.k8s.io]
  resources: [clusterrolebindings, clusterroles]
  verbs: [create]
`)
	theirs.Kubectl(t, "create", "clusterrolebinding", "alice-binder", "--clusterrole=binder", "--user=alice")
	kcptest.Eventually(t, "alice can create bindings, and escalation is refused", func(ctx context.Context) error {
		_, err := theirs.Kube(t, kcptest.Alice).RbacV1().ClusterRoleBindings().Create(ctx, binding("escalation", "cluster-admin", "alice"), metav1.CreateOptions{})
		if err == nil {
			t.Fatal("a user bound a role with more permissions than they have")
		}
		if !strings.Contains(err.Error(), "attempting to grant RBAC permissions not currently held") {
			return err
		}
		return nil
	})
	if _, err := ours.Kube(t, kcptest.Alice).RbacV1().ClusterRoleBindings().Create(ctx, binding("for-bob", "cluster-admin", "bob"), metav1.CreateOptions{}); err != nil {
		t.Errorf("an administrator cannot grant their permissions: %v", err)
	}
}

func TestServiceAccountTokensAreValidOnlyInTheirCluster(t *testing.T) {
	t.Parallel()
	ours, theirs := server.Cluster(t), server.Cluster(t)
	robot, _ := robot(t, ours), robot(t, theirs)
	_, err := theirs.Kube(t, robot).CoreV1().Secrets("").List(kcptest.Context(t), metav1.ListOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)

	kcptest.Eventually(t, "the token without a cluster in the path is accepted for its own cluster", func(ctx context.Context) error {
		_, err := ours.KubeAtServer(t, robot).CoreV1().Secrets("").List(ctx, metav1.ListOptions{})
		return err
	})
	ours.Kubectl(t, "delete", "serviceaccount", "robot")
	kcptest.Eventually(t, "the token is refused after its service account is deleted", func(ctx context.Context) error {
		_, err := ours.Kube(t, robot).CoreV1().Secrets("").List(ctx, metav1.ListOptions{})
		if !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("got %w", errors.Join(errors.New("not unauthorized"), err))
		}
		return nil
	})
}

func TestWildcardIsOnlyForPrivilegedUsers(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	one, two, wildcard := server.Cluster(t), server.Cluster(t), server.Named("*")
	one.Grant(t, kcptest.Alice, "cluster-admin")
	name := "wild" + kcptest.Suffix()
	for _, c := range []*kcptest.Cluster{one, two} {
		c.Kubectl(t, "create", "configmap", name)
	}
	found, err := wildcard.Kube(t, kcptest.Masters).CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		t.Fatal(err)
	}
	var clusters []string
	for _, object := range found.Items {
		clusters = append(clusters, object.Annotations[clusterAnnotation])
	}
	want := []string{one.Name, two.Name}
	slices.Sort(clusters)
	slices.Sort(want)
	if !slices.Equal(clusters, want) {
		t.Errorf("the wildcard lists the objects of %v, want %v", clusters, want)
	}
	_, err = wildcard.Kube(t, kcptest.Alice).CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	_, err = wildcard.Kube(t, kcptest.Masters).CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonMethodNotAllowed)
	_, err = wildcard.Kube(t, kcptest.Masters).CoreV1().ConfigMaps("default").Get(ctx, name, metav1.GetOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonMethodNotAllowed)
}

func TestClusterAnnotationCannotBeForged(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	ours, theirs := server.Cluster(t), server.Cluster(t)
	configMaps := ours.Kube(t, kcptest.Masters).CoreV1().ConfigMaps("default")
	forged := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "forged", Annotations: map[string]string{clusterAnnotation: theirs.Name}}}
	stored, err := configMaps.Create(ctx, forged, metav1.CreateOptions{})
	if err == nil && stored.Annotations[clusterAnnotation] != ours.Name {
		t.Errorf("a created object has the annotation %s", stored.Annotations[clusterAnnotation])
	}
	ours.Kubectl(t, "create", "configmap", "honest")
	ours.Kubectl(t, "create", "namespace", "honest")
	for _, value := range []string{`"` + theirs.Name + `"`, "null"} {
		_, err := configMaps.Patch(ctx, "honest", "application/merge-patch+json", []byte(`{"metadata":{"annotations":{"kcp.io/cluster":`+value+`}}}`), metav1.PatchOptions{})
		if err != nil && !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
			t.Errorf("setting the annotation to %s: %v", value, err)
		}
		found, err := configMaps.Get(ctx, "honest", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if found.Annotations[clusterAnnotation] != ours.Name {
			t.Errorf("after setting the annotation to %s it is %q", value, found.Annotations[clusterAnnotation])
		}
	}
	inTheirs, err := theirs.Kube(t, kcptest.Masters).CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range inTheirs.Items {
		if object.Name == "forged" || object.Name == "honest" {
			t.Errorf("%s appeared in another cluster", object.Name)
		}
	}
}

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func binding(name, role, user string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}
}
