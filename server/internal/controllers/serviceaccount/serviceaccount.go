// Package serviceaccount keeps the service account "default" in every namespace of every logical cluster.
package serviceaccount

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
)

const name = "default"

// New returns the controller. Its keys are namespaces.
func New(set *informers.Set, kube kubernetes.Interface) *runner.Controller {
	c := runner.New("serviceaccount", 4, func(ctx context.Context, key informers.Key) error {
		namespace, err := set.Namespaces.Get(key.Cluster, "", key.Name)
		if err != nil || namespace.Status.Phase != corev1.NamespaceActive {
			return runner.IgnoreNotFound(err)
		}
		if _, err := set.ServiceAccounts.Get(key.Cluster, key.Name, name); !apierrors.IsNotFound(err) {
			return err
		}
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: key.Name, Name: name}}
		_, err = kube.CoreV1().ServiceAccounts(key.Name).Create(ctx, account, metav1.CreateOptions{})
		return runner.IgnoreGoing(err)
	})
	c.Watch(set.Namespaces.Informer)
	c.WatchMapped(set.ServiceAccounts.Informer, runner.NamespaceOfNamed(name))
	return c
}
