package admission

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/logicalcluster"
)

func TestServiceAccountsOfOtherClustersAdministerNothingHere(t *testing.T) {
	ctx := logicalcluster.WithName(context.Background(), "here")
	for cluster, want := range map[string]bool{"here": true, "there": false} {
		for _, group := range []string{user.SystemPrivilegedGroup, authorization.LogicalClusterAdminGroup, authorization.ExternalAdminGroup, authorization.WorkspaceBootstrapper} {
			bot := &user.DefaultInfo{Name: "system:serviceaccount:ns:bot", Groups: []string{group}, Extra: map[string][]string{"authentication.kcp.io/cluster-name": {cluster}}}
			a := admission.NewAttributesRecord(nil, nil, corev1alpha1.SchemeGroupVersion.WithKind("LogicalCluster"), "", "cluster",
				corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters"), "", admission.Update, &metav1.UpdateOptions{}, false, bot)
			if got := isExempt(ctx, a); got != want {
				t.Errorf("an account of %s in %s is exempt: %t, want %t", cluster, group, got, want)
			}
			if got := mayAdminister(ctx, a); got != want {
				t.Errorf("an account of %s in %s administers: %t, want %t", cluster, group, got, want)
			}
			if got := isMaster(ctx, a); got != (want && group == user.SystemPrivilegedGroup) {
				t.Errorf("an account of %s in %s is a master: %t", cluster, group, got)
			}
		}
	}
}

func TestAdministratorsWriteTheStatusOfLogicalClusters(t *testing.T) {
	ctx := logicalcluster.WithName(context.Background(), "here")
	lc := func(url string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "core.kcp.io/v1alpha1", "kind": "LogicalCluster", "metadata": map[string]any{"name": "cluster"}, "status": map[string]any{"URL": url},
		}}
	}
	for group, want := range map[string]bool{
		user.SystemPrivilegedGroup: true, authorization.AdminGroup: true, authorization.LogicalClusterAdminGroup: true, "team-a": false, user.AllAuthenticated: false,
	} {
		a := admission.NewAttributesRecord(lc("https://new"), lc("https://old"), corev1alpha1.SchemeGroupVersion.WithKind("LogicalCluster"), "", "cluster",
			corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters"), "status", admission.Update, &metav1.UpdateOptions{}, false,
			&user.DefaultInfo{Name: "u", Groups: []string{group}})
		if err := (logicalClusterRules{}).Validate(ctx, a, nil); (err == nil) != want {
			t.Errorf("%s: %v", group, err)
		}
	}
}
