package server

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	metricsViewer  = "metrics-viewer" // a role, its binding, and the user name in the client certificate of a scraper
	metricsAccount = "metrics"        // a service account and the Secret with its token, in the namespace default
)

// bootstrapMetricsViewer creates users and roles for reading the metrics, in the cluster of ctx. It does not change existing objects.
func (s *server) bootstrapMetricsViewer(ctx context.Context) error {
	core, rbac := s.clients.kube.CoreV1(), s.clients.kube.RbacV1()
	account := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceDefault, Name: metricsAccount}
	user := rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: metricsViewer}
	for _, create := range []func() error{
		func() error {
			_, err := core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceDefault}},
				metav1.CreateOptions{})
			return err
		},
		func() error {
			account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: metricsAccount}}
			_, err := core.ServiceAccounts(metav1.NamespaceDefault).Create(ctx, account, metav1.CreateOptions{})
			return err
		},
		func() error {
			token := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: metricsAccount}, Type: corev1.SecretTypeServiceAccountToken}
			token.Annotations = map[string]string{corev1.ServiceAccountNameKey: metricsAccount}
			_, err := core.Secrets(metav1.NamespaceDefault).Create(ctx, token, metav1.CreateOptions{})
			return err
		},
		func() error {
			rules := []rbacv1.PolicyRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics"}}}
			_, err := rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: metricsViewer}, Rules: rules},
				metav1.CreateOptions{})
			return err
		},
		func() error {
			binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: metricsViewer}, Subjects: []rbacv1.Subject{account, user}}
			binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: metricsViewer}
			_, err := rbac.ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
			return err
		},
	} {
		if err := create(); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating the objects of the battery metrics-viewer: %w", err)
		}
	}
	return nil
}
