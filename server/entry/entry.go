// Package entry makes what a logical cluster begins with when the first request enters it: its namespaces with what
// belongs into them, and the binding of its owner. A logical cluster that nobody has entered does not store them.
package entry

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/authorization"
	"github.com/kcplane/kcp/server/controllers/controller"
	"github.com/kcplane/kcp/server/controllers/rootca"
	"github.com/kcplane/kcp/server/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// namespaces that a logical cluster begins with.
var namespaces = []string{metav1.NamespaceDefault, metav1.NamespaceSystem}

// aside are the groups whose resources can be used without entering: those that tell about the cluster, and lead on.
var aside = map[string]bool{
	"core.kcp.io": true, "tenancy.kcp.io": true, "authorization.k8s.io": true, "authentication.k8s.io": true,
}

// timeout of making everything, and of seeing it.
const timeout = 20 * time.Second

// Entry makes the first content of logical clusters.
type Entry struct {
	Set *informers.Set
	// Kube reaches the cluster in each call's context.
	Kube kubernetes.Interface
	// CA is what clients trust the server by, in PEM.
	CA []byte

	making singleflight.Group
}

// WithContent serves requests for resources in a logical cluster once the cluster has its first content. It stands behind
// authorization: who may not enter changes nothing.
func (e *Entry) WithContent(next http.Handler, s runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cluster, ok := logicalcluster.From(r.Context())
		info, known := request.RequestInfoFrom(r.Context())
		if !ok || cluster.Wildcard || !known || !info.IsResourceRequest || aside[info.APIGroup] || e.entered(cluster.Name) || isServer(r.Context()) {
			next.ServeHTTP(w, r)
			return
		}
		lc, err := e.Set.LogicalClusters.Get(cluster.Name, "", corev1alpha1.LogicalClusterName)
		if err == nil && lc.DeletionTimestamp == nil {
			if err = e.make(r.Context(), cluster.Name, lc); err != nil {
				err = apierrors.NewInternalError(fmt.Errorf("the first content of the logical cluster could not be made: %w", err))
				responsewriters.ErrorNegotiated(err, s, schema.GroupVersion{Version: "v1"}, w, r)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// entered tells whether a logical cluster has its first content. Its namespaces cannot be deleted.
func (e *Entry) entered(cluster logicalcluster.Name) bool {
	for _, name := range namespaces {
		if _, err := e.Set.Namespaces.Get(cluster, "", name); err != nil {
			return false
		}
	}
	return true
}

// isServer tells whether the server itself asks. It has no need of first content, and makes it.
func isServer(ctx context.Context) bool {
	u, ok := request.UserFrom(ctx)
	return ok && u.GetName() == user.APIServerUser
}

// make stores the first content of a logical cluster once, however many requests want it, and waits until it is seen.
func (e *Entry) make(ctx context.Context, cluster logicalcluster.Name, lc *corev1alpha1.LogicalCluster) error {
	_, err, _ := e.making.Do(string(cluster), func() (any, error) {
		if e.entered(cluster) {
			return nil, nil
		}
		// The request that began may end before the others that wait.
		ctx, cancel := context.WithTimeout(logicalcluster.WithName(context.WithoutCancel(ctx), cluster), timeout)
		defer cancel()
		if binding, ok := authorization.OwnersBinding(lc); ok {
			if _, err := e.Kube.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
				return nil, fmt.Errorf("binding of the owner: %w", err)
			}
		}
		var group errgroup.Group
		for _, name := range namespaces {
			group.Go(func() error { return e.makeNamespace(ctx, name) })
		}
		if err := group.Wait(); err != nil {
			return nil, err
		}
		return nil, wait.PollUntilContextCancel(ctx, time.Millisecond, true, func(context.Context) (bool, error) { return e.entered(cluster), nil })
	})
	return err
}

func (e *Entry) makeNamespace(ctx context.Context, name string) error {
	core := e.Kube.CoreV1()
	_, err := core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("namespace %s: %w", name, err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "default"}}
	if _, err := core.ServiceAccounts(name).Create(ctx, account, metav1.CreateOptions{}); controller.IgnoreGoing(err) != nil {
		return fmt.Errorf("service account of namespace %s: %w", name, err)
	}
	if _, err := core.ConfigMaps(name).Create(ctx, rootca.ConfigMap(name, e.CA), metav1.CreateOptions{}); controller.IgnoreGoing(err) != nil {
		return fmt.Errorf("certificates for namespace %s: %w", name, err)
	}
	return nil
}
