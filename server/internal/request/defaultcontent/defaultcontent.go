// Package defaultcontent creates the default objects of a logical cluster when the first request enters it: its namespaces with their
// objects, and the role binding of its owner. Logical clusters without any request do not store them.
package defaultcontent

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"slices"
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
	"github.com/kcplane/kcp/server/internal/process/fairqueue"
	"github.com/kcplane/kcp/server/internal/process/spans"
	"github.com/kcplane/kcp/server/internal/process/stack"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/internal/tenancy/references"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// namespaces are the default namespaces of a logical cluster.
var namespaces = []string{metav1.NamespaceDefault, metav1.NamespaceSystem}

// aside are the groups whose resources can be used without entering: they describe the logical cluster and its children.
var aside = map[string]bool{
	"core.kcp.io": true, "tenancy.kcp.io": true, "authorization.k8s.io": true, "authentication.k8s.io": true,
}

// auditContent is the audit annotation of the request that created the default objects of its logical cluster.
const auditContent = "entry.kcp.io/content"

// timeout limits the creation of all objects, including the wait for the informers; bindTimeout limits the additional wait for APIs.
const (
	timeout     = 20 * time.Second
	bindTimeout = 5 * time.Second
)

// Writer creates the default objects of logical clusters.
//
// Invariants:
//   - A cluster with both default namespaces counts as complete, and nothing is created again. Therefore the bindings that are not bound
//     yet are stored first, one by one, and then each namespace with its objects in one transaction.
//   - Concurrent requests to this server share one call. Several servers may do the same work: etcd stores a transaction only if none of
//     its objects exists, and existing objects are kept.
//   - A crash leaves some of the first bindings, and each namespace with all of its objects or not at all. The next request repeats
//     everything and creates what is missing.
//   - The exception: if only some objects of a transaction exist, create stores the others one by one, the namespace before those in it.
//     After a crash in between, the controllers serviceaccount and rootca create theirs, and authorization applies the binding of the
//     owner while it is not stored.
//   - The work does not end with the request that began it. A cluster that is being deleted gets nothing.
type Writer struct {
	Set *informers.Set
	// Creator creates objects in the logical cluster of each call's context, and Storages complete ones, by their types.
	Creator  Creator
	Storages map[reflect.Type]Storage
	// CA contains the certificates with which clients verify the server, in PEM.
	CA []byte
	// Await returns nil when everything that Bindings needs is known, which other shards may hold. An error is retriable. Bindings returns the
	// default APIBindings of a logical cluster, and Stored stores APIBindings.
	Await    func(context.Context, *corev1alpha1.LogicalCluster) error
	Bindings func(*corev1alpha1.LogicalCluster) []*apisv1alpha2.APIBinding
	Stored   *storage.Typed
	// Arriving reports whether the export of a binding may still arrive from another shard.
	Arriving func(*apisv1alpha2.APIBinding) bool

	making    singleflight.Group
	arrivals  arrivals
	templates templates
}

// Follow makes e notice that the namespaces of logical clusters arrive. It must be called before the first request.
func (e *Writer) Follow() { e.Set.Namespaces.AddHandler(e.arrivals.changed) }

// WithContent serves requests for resources in a logical cluster after the logical cluster has its default objects. It must be called after
// authorization: a refused request creates nothing. Requests of the server itself do not need default objects; they create them.
func (e *Writer) WithContent(next http.Handler, s runtime.NegotiatedSerializer) http.Handler {
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
				if !references.IsRetriable(err) {
					err = apierrors.NewInternalError(fmt.Errorf("creating the default objects of logical cluster %q: %w", cluster.Name, err))
				}
				responsewriters.ErrorNegotiated(err, s, schema.GroupVersion{Version: "v1"}, w, r)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// entered reports whether a logical cluster has its default objects. The default namespaces cannot be deleted.
func (e *Writer) entered(cluster logicalcluster.Name) bool {
	for _, name := range namespaces {
		if !e.Set.Namespaces.Has(cluster, "", name) {
			return false
		}
	}
	return true
}

// make stores the default objects of a logical cluster once, for any number of concurrent requests, and waits until the informers have
// them.
func (e *Writer) make(ctx context.Context, cluster logicalcluster.Name, lc *corev1alpha1.LogicalCluster) error {
	_, err, _ := e.making.Do(string(cluster), func() (any, error) {
		if e.entered(cluster) {
			return nil, nil
		}
		if err := e.await(ctx, lc); err != nil {
			return nil, err
		}
		audit.AddAuditAnnotation(ctx, auditContent, "created")
		// The server writes for itself: neither the end of the request nor the permissions of its user matter. The request has no seat while
		// etcd stores the objects, and while the informers do not have them.
		waiting := fairqueue.From(ctx)
		own := context.WithValue(context.Background(), fairqueue.Key, waiting)
		ctx, cancel := context.WithTimeout(logicalcluster.WithName(own, cluster), timeout)
		defer cancel()
		bound, pending := divide(e.Bindings(lc))
		if err := e.bind(ctx, pending); err != nil {
			return nil, err
		}
		var group errgroup.Group
		for i, name := range namespaces {
			var owner *rbacv1.ClusterRoleBinding // nil if there is none
			if binding, ok := authorization.OwnersBinding(lc); ok && name == metav1.NamespaceDefault {
				owner = managed(binding, rbacv1.SchemeGroupVersion, bindingFields)
			}
			with := bound[min(i, len(bound)):min(i+1, len(bound))]
			group.Go(func() error {
				stack.Grow()
				return e.create(ctx, name, owner, with)
			})
		}
		if err := group.Wait(); err != nil {
			return nil, err
		}
		arrived := waiting.Store(0)
		err := e.arrivals.await(ctx, cluster, e.entered)
		arrived()
		if err == nil && len(pending) > 0 && e.Set.LogicalClusters.IsFilled() { // controllers start when the informers are filled
			defer waiting.Stand()()
			e.waitForBound(ctx, cluster, pending)
		}
		return nil, err
	})
	return err
}

// await waits for what other shards hold, with the limits of the user of a request. The wait does not end with the request, because others
// may wait for the result.
func (e *Writer) await(ctx context.Context, lc *corev1alpha1.LogicalCluster) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	return e.Await(ctx, lc)
}

// divide returns the bindings that are bound already, because the server itself has their APIs, at most one for each namespace; and all
// others.
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

// bind stores bindings one by one, and keeps existing ones. Their status will contain what cannot be bound, and why.
func (e *Writer) bind(ctx context.Context, bindings []*apisv1alpha2.APIBinding) error {
	for _, b := range bindings {
		if err := e.Stored.CreateAsRead(ctx, b.Name, b); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}

// waitForBound waits, for a short time, until the APIs of bindings are served.
func (e *Writer) waitForBound(ctx context.Context, cluster logicalcluster.Name, bindings []*apisv1alpha2.APIBinding) {
	ctx, cancel := context.WithTimeout(ctx, bindTimeout)
	defer cancel()
	for _, b := range bindings {
		_ = wait.PollUntilContextCancel(ctx, time.Millisecond, true, func(context.Context) (bool, error) {
			seen, err := e.Set.APIBindings.Get(cluster, "", b.Name)
			if err != nil {
				return false, nil // the informer does not have it yet
			}
			return seen.Status.Phase == apisv1alpha2.APIBindingPhaseBound || (len(seen.Status.Conditions) > 0 && !e.Arriving(seen)), nil
		})
	}
}

// create stores a default namespace with its objects, the role binding of an owner if any, and an APIBinding if any, in one transaction. If
// some of them exist, it creates the others.
func (e *Writer) create(ctx context.Context, namespace string, owner *rbacv1.ClusterRoleBinding, binding []*apisv1alpha2.APIBinding) error {
	content, err := e.content(ctx, namespace)
	if err == nil && owner != nil {
		var complete runtime.Object
		complete, err = e.ownersBinding(ctx, owner)
		content = slices.Insert(content, 0, complete)
	}
	if err == nil {
		err = e.createTogether(ctx, content, binding)
	}
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	if err := e.bind(ctx, binding); err != nil {
		return err
	}
	objs := contentOf(namespace, e.CA)
	if owner != nil {
		objs = append(objs, owner)
	}
	for _, obj := range objs {
		if err := e.Creator.Create(ctx, obj); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}

// createTogether stores objects of different resources in one transaction. content is complete, and ends the transaction.
func (e *Writer) createTogether(ctx context.Context, content []runtime.Object, binding []*apisv1alpha2.APIBinding) error {
	together := &storage.Transaction{}
	defer together.End()
	held := together.Hold(ctx)
	if err := e.bind(held, binding); err != nil {
		return err
	}
	last := len(content) - 1
	for _, obj := range content[:last] {
		if err := e.store(held, obj); err != nil {
			return err
		}
	}
	return e.store(together.Commit(ctx), content[last])
}
