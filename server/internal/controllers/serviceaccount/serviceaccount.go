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

// Inputs of the controller. The client reaches the cluster in each call's context.
type Inputs struct {
	Set  *informers.Set
	Kube kubernetes.Interface
}

type reconciler struct {
	Inputs
	controller *runner.Controller
}

// New returns the controller. Its keys are namespaces.
func New(in Inputs) *runner.Controller {
	r := &reconciler{Inputs: in}
	c := runner.New("serviceaccount", 4, r.reconcile)
	r.controller = c
	c.Watch(in.Set.Namespaces.Informer)
	c.WatchMapped(in.Set.ServiceAccounts.Informer, runner.NamespaceOfNamed(name))
	return c
}

func (r *reconciler) reconcile(ctx context.Context, key informers.Key) error {
	namespace, err := r.Set.Namespaces.Get(key.Cluster, "", key.Name)
	if err != nil || namespace.Status.Phase != corev1.NamespaceActive {
		return runner.IgnoreNotFound(err)
	}
	if !r.controller.Restores(r.Set, key) {
		return nil
	}
	if _, err := r.Set.ServiceAccounts.Get(key.Cluster, key.Name, name); !apierrors.IsNotFound(err) {
		return err
	}
	// The account of a default namespace is stored with it, but its event may arrive later than that of the namespace.
	r.Set.ServiceAccounts.Current(ctx, key.Cluster)
	if _, err := r.Set.ServiceAccounts.Get(key.Cluster, key.Name, name); !apierrors.IsNotFound(err) {
		return err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: key.Name, Name: name}}
	_, err = r.Kube.CoreV1().ServiceAccounts(key.Name).Create(ctx, account, metav1.CreateOptions{})
	return runner.IgnoreExistsOrTerminating(err)
}
