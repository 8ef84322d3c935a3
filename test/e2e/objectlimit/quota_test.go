package objectlimit

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

func TestQuotaCanCountWholeWorkspace(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	org, other := server.Organization(t, kcptest.Alice), server.Organization(t, kcptest.Alice)
	client := org.Kube(t, kcptest.Alice).CoreV1()
	for _, name := range []string{"admin", "a", "b"} {
		org.Kubectl(t, "create", "namespace", name)
	}
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "whole", Annotations: map[string]string{"experimental.quota.kcp.io/cluster-scoped": "true"}},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
			"count/workspaces.tenancy.kcp.io": resource.MustParse("1"), "count/secrets": resource.MustParse("2"),
		}},
	}
	elsewhere := quota.DeepCopy()
	elsewhere.Name = "only-here" // in another namespace, it is an ordinary quota
	for namespace, q := range map[string]*corev1.ResourceQuota{"admin": quota, "a": elsewhere} {
		if _, err := client.ResourceQuotas(namespace).Create(ctx, q, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		kcptest.Eventually(t, "the quota applies", func(ctx context.Context) error {
			got, err := client.ResourceQuotas(namespace).Get(ctx, q.Name, metav1.GetOptions{})
			if err == nil && len(got.Status.Used) == 0 {
				return fmt.Errorf("got status %v", got.Status)
			}
			return err
		})
	}
	refused := func(err error) {
		t.Helper()
		kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
		if err != nil && !strings.Contains(err.Error(), "exceeded quota: whole") {
			t.Errorf("the error does not name the quota: %v", err)
		}
	}
	secret := func(namespace, name string) error {
		_, err := client.Secrets(namespace).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		return err
	}
	for _, namespace := range []string{"a", "b"} {
		if err := secret(namespace, "x"); err != nil {
			t.Fatal(err)
		}
	}
	refused(secret("default", "x"))
	workspaces := org.Dynamic(t, kcptest.Alice).Resource(kcptest.Workspaces)
	org.CreateWorkspace(t, kcptest.Alice, kcptest.Workspace("first", "", ""))
	_, err := workspaces.Create(ctx, kcptest.Workspace("second", "", ""), metav1.CreateOptions{})
	refused(err)
	other.CreateWorkspace(t, kcptest.Alice, kcptest.Workspace("first", "", ""))
	other.CreateWorkspace(t, kcptest.Alice, kcptest.Workspace("second", "", ""))
	org.Kubectl(t, "delete", "workspace", "first")
	kcptest.Eventually(t, "deleted objects are no longer counted", func(ctx context.Context) error {
		_, err := workspaces.Create(ctx, kcptest.Workspace("second", "", ""), metav1.CreateOptions{})
		return err
	})
}
