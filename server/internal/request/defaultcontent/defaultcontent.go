// Package defaultcontent makes what a logical cluster begins with when the first request enters it: its namespaces with what
// belongs into them, and the binding of its owner. A logical cluster that nobody has entered does not store them.
package defaultcontent

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/process/spans"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// namespaces that a logical cluster begins with.
var namespaces = []string{metav1.NamespaceDefault, metav1.NamespaceSystem}

// aside are the groups whose resources can be used without entering: those that tell about the cluster, and lead on.
var aside = map[string]bool{
	"core.kcp.io": true, "tenancy.kcp.io": true, "authorization.k8s.io": true, "authentication.k8s.io": true,
}

// auditContent is the audit annotation of the request that made the first content of its cluster.
const auditContent = "entry.kcp.io/content"

// timeout of making everything, and of seeing it; bindTimeout of waiting for APIs besides.
const (
	timeout     = 20 * time.Second
	bindTimeout = 5 * time.Second
)

// Creator creates built-in objects.
type Creator interface {
	Create(ctx context.Context, obj runtime.Object) error
}

// Entry makes the first content of logical clusters.
type Entry struct {
	Set *informers.Set
	// Creator reaches the cluster in each call's context.
	Creator Creator
	// CA is what clients trust the server by, in PEM.
	CA []byte
	// Bindings are those that a cluster begins with, and Stored is where APIBindings are stored.
	Bindings func(*corev1alpha1.LogicalCluster) []*apisv1alpha2.APIBinding
	Stored   *storage.Typed

	making singleflight.Group
}

// WithContent serves requests for resources in a logical cluster once the cluster has its first content. It stands behind
// authorization: who may not enter changes nothing. The server itself has no need of first content, and makes it.
func (e *Entry) WithContent(next http.Handler, s runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cluster, ok := logicalcluster.From(r.Context())
		info, known := request.RequestInfoFrom(r.Context())
		if !ok || cluster.Wildcard || !known || !info.IsResourceRequest || aside[info.APIGroup] || e.entered(cluster.Name) ||
			authorization.IsServer(r.Context()) {
			next.ServeHTTP(w, r)
			return
		}
		lc, err := e.Set.LogicalClusters.Get(cluster.Name, "", corev1alpha1.LogicalClusterName)
		if err == nil && lc.DeletionTimestamp == nil {
			ctx, span := spans.Start(r.Context(), "Create default objects")
			err = e.make(ctx, cluster.Name, lc)
			span.End(err)
			if err != nil {
				err = apierrors.NewInternalError(fmt.Errorf("creating the default objects of logical cluster %q: %w", cluster.Name, err))
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

// make stores the first content of a logical cluster once, however many requests want it, and waits until it is seen.
func (e *Entry) make(ctx context.Context, cluster logicalcluster.Name, lc *corev1alpha1.LogicalCluster) error {
	_, err, _ := e.making.Do(string(cluster), func() (any, error) {
		if e.entered(cluster) {
			return nil, nil
		}
		audit.AddAuditAnnotation(ctx, auditContent, "created")
		// The server writes for itself: neither the end of the request that began nor what its user may do is of any matter.
		ctx, cancel := context.WithTimeout(logicalcluster.WithName(context.Background(), cluster), timeout)
		defer cancel()
		bound, pending := divide(e.Bindings(lc))
		if err := e.bind(ctx, pending); err != nil { // first: the namespaces say that everything is there
			return nil, err
		}
		var group errgroup.Group
		for i, name := range namespaces {
			content := contentOf(name, e.CA)
			if binding, ok := authorization.OwnersBinding(lc); ok && name == metav1.NamespaceDefault {
				content = append(content, managed(binding, rbacv1.SchemeGroupVersion, bindingFields))
			}
			with := bound[min(i, len(bound)):min(i+1, len(bound))]
			group.Go(func() error { return e.create(ctx, content, with) })
		}
		if err := group.Wait(); err != nil {
			return nil, err
		}
		err := wait.PollUntilContextCancel(ctx, time.Millisecond, true, func(context.Context) (bool, error) { return e.entered(cluster), nil })
		if err == nil {
			e.waitForBound(ctx, cluster, pending)
		}
		return nil, err
	})
	return err
}

// divide returns those bindings that are bound already, because the server itself has their APIs, one for each namespace at the
// most, and all others.
func divide(all []*apisv1alpha2.APIBinding) (bound, pending []*apisv1alpha2.APIBinding) {
	for _, b := range all {
		if b.Status.Phase == apisv1alpha2.APIBindingPhaseBound && len(bound) < len(namespaces) {
			bound = append(bound, b)
		} else {
			pending = append(pending, b)
		}
	}
	return bound, pending
}

// bind stores bindings one by one, and leaves those that exist. What cannot be bound, and why, will be in their status.
func (e *Entry) bind(ctx context.Context, bindings []*apisv1alpha2.APIBinding) error {
	for _, b := range bindings {
		if err := e.Stored.Create(ctx, b.Name, b); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}

// waitForBound waits a little until the APIs of bindings are served.
func (e *Entry) waitForBound(ctx context.Context, cluster logicalcluster.Name, bindings []*apisv1alpha2.APIBinding) {
	ctx, cancel := context.WithTimeout(ctx, bindTimeout)
	defer cancel()
	for _, b := range bindings {
		_ = wait.PollUntilContextCancel(ctx, time.Millisecond, true, func(context.Context) (bool, error) {
			seen, err := e.Set.APIBindings.Get(cluster, "", b.Name)
			return err == nil && (seen.Status.Phase == apisv1alpha2.APIBindingPhaseBound || len(seen.Status.Conditions) > 0), nil
		})
	}
}

// create stores objects of different resources and a binding, if there is one, at once, and if some exist already, those that do not.
func (e *Entry) create(ctx context.Context, objects []runtime.Object, binding []*apisv1alpha2.APIBinding) error {
	together := &storage.Transaction{}
	defer together.End()
	held := together.Hold(ctx)
	if err := e.bind(held, binding); err != nil {
		return err
	}
	last := len(objects) - 1
	for _, obj := range objects[:last] {
		if err := e.Creator.Create(held, obj); err != nil {
			return err
		}
	}
	err := e.Creator.Create(together.Commit(ctx), objects[last])
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	if err := e.bind(ctx, binding); err != nil {
		return err
	}
	for _, obj := range objects {
		if err := e.Creator.Create(ctx, obj); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}
