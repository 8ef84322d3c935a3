package authorization

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/logicalcluster"
)

func TestVisibleDefaultRolesHaveTheirEffectiveRules(t *testing.T) {
	objects := append(rolesWith(3, 2), logicalClusterIn("a", corev1alpha1.LogicalClusterPhaseReady, ""), logicalClusterIn("b", corev1alpha1.LogicalClusterPhaseReady, ""),
		&rbacv1.ClusterRole{ObjectMeta: at("b", "edit", nil)})
	rules := NewRules(setOf(t, objects...))
	a, b := logicalcluster.WithName(t.Context(), "a"), logicalcluster.WithName(t.Context(), "b")
	extended, err := rules.DefaultClusterRole(a, "view")
	if err != nil {
		t.Fatal(err)
	}
	plain, err := rules.DefaultClusterRole(b, "view")
	if err != nil {
		t.Fatal(err)
	}
	if len(extended.Rules) != len(plain.Rules)+6 || len(plain.Rules) == 0 {
		t.Errorf("view has %d rules with those of the cluster, and %d without", len(extended.Rules), len(plain.Rules))
	}
	again, err := rules.DefaultClusterRole(a, "view")
	if diff := cmp.Diff(extended, again); err != nil || diff != "" {
		t.Errorf("the next time view is another one: %v\n%s", err, diff)
	}
	if role, err := rules.DefaultClusterRole(a, "system:node"); role != nil || err != nil {
		t.Errorf("a role that is not shown: %v, %v", role, err)
	}
	if _, err := rules.DefaultClusterRole(logicalcluster.WithWildcard(t.Context()), "view"); err == nil {
		t.Error("all clusters together show a role")
	}
	listed, err := rules.DefaultClusterRoles(b)
	var names []string
	for _, role := range listed {
		names = append(names, role.Name)
	}
	if want := []string{"admin", "cluster-admin", "view"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("a cluster with an edit of its own shows %v, %v", names, err)
	}
	admin := rules.policy.bootstrap.clusterRoles["admin"]
	if len(admin.Rules) != 0 || admin.UID != "" {
		t.Errorf("the role of all clusters was changed: %v", admin)
	}
}

func TestTheRulesOfAVisibleRoleAreLimited(t *testing.T) {
	rules := NewRules(setOf(t, append(rolesWith(100, 1000), logicalClusterIn("a", corev1alpha1.LogicalClusterPhaseReady, ""))...))
	role, err := rules.DefaultClusterRole(logicalcluster.WithName(t.Context(), "a"), "view")
	if err != nil {
		t.Fatal(err)
	}
	if size := role.Size(); size < maxShownBytes/2 || size > 2*maxShownBytes {
		t.Errorf("view has %d bytes in %d rules", size, len(role.Rules))
	}
}

func TestTheReaderOfTheAuthenticationConfigCanBeBound(t *testing.T) {
	rules := NewRules(setOf(t, logicalClusterIn("a", corev1alpha1.LogicalClusterPhaseReady, "")))
	ctx := logicalcluster.WithName(t.Context(), "a")
	for namespace, want := range map[string]int{"": 1, metav1.NamespaceSystem: 1, metav1.NamespaceDefault: 0} {
		if roles, err := rules.DefaultRoles(ctx, namespace); err != nil || len(roles) != want {
			t.Errorf("namespace %q shows %v, %v", namespace, roles, err)
		}
	}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: authenticationReader}
	if got, err := rules.GetRoleReferenceRules(ctx, ref, metav1.NamespaceSystem); err != nil || len(got) != 1 || !slices.Equal(got[0].ResourceNames, []string{AuthenticationConfig}) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := rules.GetRoleReferenceRules(ctx, ref, metav1.NamespaceDefault); err == nil {
		t.Errorf("in another namespace: %v", got)
	}
}
