package api

import (
	"context"
	"fmt"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

func TestExtensionServersCanReadAuthenticationConfiguration(t *testing.T) {
	cluster := server.Cluster(t)
	ctx := kcptest.Context(t)
	const name = "extension-apiserver-authentication"
	masters := cluster.Kube(t, kcptest.Masters)
	configMaps := masters.CoreV1().ConfigMaps("kube-system")
	shown, err := configMaps.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	shown.Data = map[string]string{"client-ca-file": "mine"}
	_, err = configMaps.Update(ctx, shown, metav1.UpdateOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	kcptest.WantReason(t, configMaps.Delete(ctx, name, metav1.DeleteOptions{}), metav1.StatusReasonForbidden)
	for namespace, want := range map[string]int{"kube-system": 1, "": 1, "default": 0} {
		list, err := masters.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
		if err != nil || len(list.Items) != want {
			t.Errorf("namespace %q lists %v, %v", namespace, list, err)
		}
	}
	if roles, err := masters.RbacV1().Roles("kube-system").List(ctx, metav1.ListOptions{}); err != nil || len(roles.Items) != 1 || roles.Items[0].Name != name+"-reader" {
		t.Errorf("got roles %v, %v", roles, err)
	}
	cluster.Kubectl(t, "create", "clusterrolebinding", "alice", "--clusterrole="+kcptest.EntryRole, "--user="+kcptest.Alice.Name)
	cluster.Kubectl(t, "create", "rolebinding", "alice", "-n", "kube-system", "--role="+name+"-reader", "--user="+kcptest.Alice.Name)
	alice := cluster.Kube(t, kcptest.Alice).CoreV1().ConfigMaps("kube-system")
	kcptest.Eventually(t, "a user with the role can read the ConfigMap", func(ctx context.Context) error {
		_, err := alice.Get(ctx, name, metav1.GetOptions{})
		return err
	})
	if _, err := alice.Get(ctx, "kube-root-ca.crt", metav1.GetOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a user with the role can read another ConfigMap: %v", err)
	}
	_, err = masters.RbacV1().RoleBindings("default").Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name + "-reader"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: kcptest.Alice.Name}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.Kube(t, kcptest.Alice).CoreV1().ConfigMaps("default").Get(ctx, name, metav1.GetOptions{}); !apierrors.IsForbidden(err) {
		t.Error(fmt.Errorf("the role applies in another namespace: %w", err))
	}
}
