package controllers

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

func TestNamespacesGetServiceAccountAndCA(t *testing.T) {
	t.Parallel()
	cluster := server.Cluster(t)
	cluster.Kubectl(t, "create", "namespace", "fresh")
	client := cluster.Kube(t, kcptest.Masters).CoreV1()
	kcptest.Eventually(t, "the service account default exists", func(ctx context.Context) error {
		_, err := client.ServiceAccounts("fresh").Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	kcptest.Eventually(t, "the certificate authority is published", func(ctx context.Context) error {
		found, err := client.ConfigMaps("fresh").Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		if err == nil && !strings.Contains(found.Data["ca.crt"], "BEGIN CERTIFICATE") {
			return fmt.Errorf("got %v", found.Data)
		}
		return err
	})
}

func TestContentIsDeletedWithNamespace(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	ours, theirs := server.Cluster(t), server.Cluster(t)
	for _, c := range []*kcptest.Cluster{ours, theirs} {
		c.Kubectl(t, "create", "namespace", "shop")
		c.Kubectl(t, "create", "configmap", "prices", "--namespace=shop")
		c.Kubectl(t, "create", "secret", "generic", "key", "--namespace=shop")
	}
	ours.Kubectl(t, "delete", "namespace", "shop", "--timeout=60s")
	_, err := ours.Kube(t, kcptest.Masters).CoreV1().ConfigMaps("shop").Get(ctx, "prices", metav1.GetOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonNotFound)
	if _, err := theirs.Kube(t, kcptest.Masters).CoreV1().ConfigMaps("shop").Get(ctx, "prices", metav1.GetOptions{}); err != nil {
		t.Errorf("the content of the namespace in another cluster is deleted: %v", err)
	}
	ours.Kubectl(t, "create", "namespace", "shop")
	left, err := ours.Kube(t, kcptest.Masters).CoreV1().Secrets("shop").List(ctx, metav1.ListOptions{})
	if err != nil || len(left.Items) > 0 {
		t.Errorf("the new namespace contains former content: %v, %v", left, err)
	}
}

func TestSystemNamespacesCannotBeDeleted(t *testing.T) {
	t.Parallel()
	cluster := server.Cluster(t)
	err := cluster.Kube(t, kcptest.Masters).CoreV1().Namespaces().Delete(kcptest.Context(t), "default", metav1.DeleteOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
}

func TestObjectsInATerminatingNamespaceAreRefused(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	cluster := server.Cluster(t)
	client := cluster.Kube(t, kcptest.Masters).CoreV1()
	cluster.Kubectl(t, "create", "namespace", "ending")
	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "held", Finalizers: []string{"example.com/hold"}}}
	if _, err := client.ConfigMaps("ending").Create(ctx, held, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	cluster.Kubectl(t, "delete", "namespace", "ending", "--wait=false")
	kcptest.Eventually(t, "creating is forbidden", func(ctx context.Context) error {
		_, err := client.ConfigMaps("ending").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "late-"}}, metav1.CreateOptions{})
		if err == nil || !strings.Contains(err.Error(), "because it is being terminated") {
			return fmt.Errorf("got %w", fmt.Errorf("%v", err))
		}
		return nil
	})
	cluster.Kubectl(t, "patch", "configmap", "held", "--namespace=ending", "--type=merge", `--patch={"metadata":{"finalizers":null}}`)
	kcptest.Eventually(t, "the namespace is deleted", func(ctx context.Context) error {
		_, err := client.Namespaces().Get(ctx, "ending", metav1.GetOptions{})
		return kcptest.Gone(err)
	})
}

// family creates an owner and a dependent of it, in the namespace default.
func family(t *testing.T, cluster *kcptest.Cluster) (owner, dependent *corev1.ConfigMap) {
	t.Helper()
	ctx := kcptest.Context(t)
	configMaps := cluster.Kube(t, kcptest.Masters).CoreV1().ConfigMaps("default")
	owner, err := configMaps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	block := true
	dependent, err = configMaps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "dependent", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, BlockOwnerDeletion: &block},
	}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return owner, dependent
}

func TestDependentsAreDeletedWithOwner(t *testing.T) {
	t.Parallel()
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			cluster := server.Cluster(t)
			family(t, cluster)
			configMaps := cluster.Kube(t, kcptest.Masters).CoreV1().ConfigMaps("default")
			if err := configMaps.Delete(kcptest.Context(t), "owner", metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"dependent", "owner"} {
				kcptest.Eventually(t, name+" is deleted", func(ctx context.Context) error {
					_, err := configMaps.Get(ctx, name, metav1.GetOptions{})
					return kcptest.Gone(err)
				})
			}
		})
	}
}

func TestOrphanedDependentsAreKept(t *testing.T) {
	t.Parallel()
	cluster := server.Cluster(t)
	family(t, cluster)
	configMaps := cluster.Kube(t, kcptest.Masters).CoreV1().ConfigMaps("default")
	policy := metav1.DeletePropagationOrphan
	if err := configMaps.Delete(kcptest.Context(t), "owner", metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "the owner is deleted, and the dependent has no owner reference", func(ctx context.Context) error {
		if _, err := configMaps.Get(ctx, "owner", metav1.GetOptions{}); kcptest.Gone(err) != nil {
			return kcptest.Gone(err)
		}
		left, err := configMaps.Get(ctx, "dependent", metav1.GetOptions{})
		if err == nil && len(left.OwnerReferences) > 0 {
			return fmt.Errorf("got owner references %v", left.OwnerReferences)
		}
		return err
	})
}

func TestOwnerReferencesDoNotReachOtherClusters(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	ours, theirs := server.Cluster(t), server.Cluster(t)
	owner, _ := family(t, theirs)
	stray := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "stray", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID},
	}}}
	configMaps := ours.Kube(t, kcptest.Masters).CoreV1().ConfigMaps("default")
	if _, err := configMaps.Create(ctx, stray, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "the object whose owner does not exist in its cluster is collected", func(ctx context.Context) error {
		_, err := configMaps.Get(ctx, "stray", metav1.GetOptions{})
		return kcptest.Gone(err)
	})
	if _, err := theirs.Kube(t, kcptest.Masters).CoreV1().ConfigMaps("default").Get(ctx, "dependent", metav1.GetOptions{}); err != nil {
		t.Errorf("a dependent in the cluster of the owner is deleted: %v", err)
	}
}

func TestOwnerInAnotherNamespaceCausesWarningEvent(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	cluster := server.Cluster(t)
	owner, _ := family(t, cluster)
	kube := cluster.Kube(t, kcptest.Masters)
	cluster.Kubectl(t, "create", "namespace", "other")
	references := []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}}
	stray := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "stray", OwnerReferences: references}}
	if _, err := kube.CoreV1().ConfigMaps("other").Create(ctx, stray, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "stray", OwnerReferences: references}}
	if _, err := kube.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for namespace, kind := range map[string]string{"other": "ConfigMap", "default": "ClusterRole"} {
		kcptest.Eventually(t, "an Event reports the owner of the "+kind, func(ctx context.Context) error {
			events, err := kube.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=OwnerRefInvalidNamespace,involvedObject.name=stray"})
			if err != nil || len(events.Items) != 1 {
				return fmt.Errorf("got %d events, %w", len(events.Items), err)
			}
			if e := events.Items[0]; e.Type != corev1.EventTypeWarning || e.InvolvedObject.Kind != kind || !strings.Contains(e.Message, "does not exist in namespace") {
				t.Errorf("got event %+v", e)
			}
			return nil
		})
	}
	kcptest.Eventually(t, "the object without an owner in its namespace is collected", func(ctx context.Context) error {
		_, err := kube.CoreV1().ConfigMaps("other").Get(ctx, "stray", metav1.GetOptions{})
		return kcptest.Gone(err)
	})
	if _, err := kube.RbacV1().ClusterRoles().Get(ctx, "stray", metav1.GetOptions{}); err != nil {
		t.Errorf("a cluster-scoped object is deleted: %v", err)
	}
}

func TestAggregatedClusterRolesFollowSelectedRoles(t *testing.T) {
	t.Parallel()
	cluster := server.Cluster(t)
	cluster.Apply(t, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: whole}
aggregationRule: {clusterRoleSelectors: [{matchLabels: {example.com/part: "true"}}]}
rules: []
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: part, labels: {example.com/part: "true"}}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [list]}]
`)
	cluster.Grant(t, kcptest.Bob, "whole")
	roles := cluster.Kube(t, kcptest.Masters).RbacV1().ClusterRoles()
	patch := []byte(`{"rules":[{"apiGroups":[""],"resources":["configmaps","secrets"],"verbs":["list"]}]}`)
	if _, err := roles.Patch(kcptest.Context(t), "part", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "the role has the rule of a changed part", func(ctx context.Context) error {
		_, err := cluster.Kube(t, kcptest.Bob).CoreV1().Secrets("default").List(ctx, metav1.ListOptions{})
		return err
	})
}

func TestTokenSecretGetsToken(t *testing.T) {
	t.Parallel()
	cluster := server.Cluster(t)
	cluster.Kubectl(t, "create", "serviceaccount", "robot")
	cluster.Apply(t, `
apiVersion: v1
kind: Secret
metadata: {name: robot, annotations: {kubernetes.io/service-account.name: robot}}
type: kubernetes.io/service-account-token
`)
	var token string
	kcptest.Eventually(t, "the secret has a token", func(ctx context.Context) error {
		secret, err := cluster.Kube(t, kcptest.Masters).CoreV1().Secrets("default").Get(ctx, "robot", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if token = string(secret.Data["token"]); token == "" || len(secret.Data["ca.crt"]) == 0 {
			return fmt.Errorf("got %d keys", len(secret.Data))
		}
		return nil
	})
	cluster.Kubectl(t, "create", "clusterrolebinding", "robot", "--clusterrole=cluster-admin", "--serviceaccount=default:robot")
	robot := kcptest.User{Name: "robot", Token: token}
	kcptest.Eventually(t, "the token is accepted", func(ctx context.Context) error {
		_, err := cluster.Kube(t, robot).CoreV1().Secrets("").List(ctx, metav1.ListOptions{})
		return err
	})
}

func TestAllObjectsAreDeletedWithLogicalCluster(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	cluster := server.Cluster(t)
	cluster.Kubectl(t, "create", "namespace", "shop")
	cluster.Kubectl(t, "create", "configmap", "prices", "--namespace=shop")
	cluster.Kubectl(t, "create", "clusterrole", "reader", "--verb=get", "--resource=configmaps")
	logicalClusters := cluster.Dynamic(t, kcptest.Masters).Resource(kcptest.LogicalClusters)
	if err := logicalClusters.Delete(ctx, "cluster", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.WaitUntilGone(t, logicalClusters, "cluster")
	everywhere := server.Named("*").Kube(t, kcptest.Masters)
	namespaces, err := everywhere.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, left := range namespaces.Items {
		if left.Annotations["kcp.io/cluster"] == cluster.Name {
			t.Errorf("namespace %s remains", left.Name)
		}
	}
	configMaps, err := everywhere.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, left := range configMaps.Items {
		if left.Annotations["kcp.io/cluster"] == cluster.Name {
			t.Errorf("ConfigMap %s/%s remains", left.Namespace, left.Name)
		}
	}
}
