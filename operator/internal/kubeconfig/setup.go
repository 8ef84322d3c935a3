package kubeconfig

import (
	"context"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/fieldindex"
	"github.com/kcplane/kcp/operator/internal/installation"
	"github.com/kcplane/kcp/operator/internal/pki"
	"github.com/kcplane/kcp/operator/internal/retry"
	"github.com/kcplane/kcp/operator/internal/shard"
)

// Indices of Kubeconfigs: by the Secrets that they read and write, and by the RootShard that they point at.
const (
	secretsIndex = "secrets"
	targetIndex  = "target"
	issuersIndex = "issuers"
)

// Setup registers the reconciler, with watches for the objects that it creates and those that specs refer to.
func (r *Reconciler) Setup(ctx context.Context, mgr ctrl.Manager) error {
	indices := map[string]client.IndexerFunc{secretsIndex: secretsOf, targetIndex: targetOf, issuersIndex: issuersOf}
	if err := fieldindex.Add(ctx, mgr, &v1alpha1.Kubeconfig{}, indices); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).Named("kubeconfig").WithOptions(retry.Options()).
		For(&v1alpha1.Kubeconfig{},
			builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Owns(&certmanager.Certificate{}).
		Watches(&v1alpha1.RootShard{}, handler.EnqueueRequestsFromMapFunc(r.pointingAt)).
		Watches(&v1alpha1.Shard{}, handler.EnqueueRequestsFromMapFunc(r.pointingAtKind("Shard"))).
		Watches(&v1alpha1.FrontProxy{}, handler.EnqueueRequestsFromMapFunc(r.pointingAtKind("FrontProxy"))).
		Watches(&certmanager.Issuer{}, handler.EnqueueRequestsFromMapFunc(r.issuedBy)).
		WatchesMetadata(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.ofSecret)).
		Complete(r)
}

// Setup registers the Revoker, with watches for deleted Kubeconfigs, and for their Secrets, also those that exist when the operator
// starts.
func (r *Revoker) Setup(_ context.Context, mgr ctrl.Manager) error {
	gone := func(_ context.Context, k client.Object) []reconcile.Request {
		return identity(k.GetNamespace(), string(k.GetUID()))
	}
	owner := func(_ context.Context, secret client.Object) []reconcile.Request {
		return identity(secret.GetNamespace(), secret.GetLabels()[ownerLabel])
	}
	deleted := predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false }, UpdateFunc: func(event.UpdateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
	return ctrl.NewControllerManagedBy(mgr).Named("kubeconfig-revocation").WithOptions(retry.Options()).
		Watches(&v1alpha1.Kubeconfig{}, handler.EnqueueRequestsFromMapFunc(gone), builder.WithPredicates(deleted)).
		WatchesMetadata(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(owner)).
		Complete(r)
}

// identity returns a request for the Kubeconfig with a UID.
func identity(namespace, uid string) []reconcile.Request {
	if uid == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: namespace, Name: uid}}}
}

func secretsOf(object client.Object) []string {
	k := object.(*v1alpha1.Kubeconfig)
	return []string{certificateName(k), k.Spec.SecretRef.Name}
}

// indirect is in the index of Kubeconfigs whose target is not a RootShard. They depend on the RootShard of the target, too.
const indirect = "*"

func targetOf(object client.Object) []string {
	switch t := object.(*v1alpha1.Kubeconfig).Spec.Target; {
	case t.RootShardRef != nil:
		return []string{t.RootShardRef.Name}
	case t.ShardRef != nil:
		return []string{indirect, "Shard/" + t.ShardRef.Name}
	case t.FrontProxyRef != nil:
		return []string{indirect, "FrontProxy/" + t.FrontProxyRef.Name}
	}
	return nil
}

func (r *Reconciler) pointingAt(ctx context.Context, rs client.Object) []reconcile.Request {
	return append(r.find(ctx, rs.GetNamespace(), targetIndex, rs.GetName()), r.find(ctx, rs.GetNamespace(), targetIndex, indirect)...)
}

// pointingAtKind returns a function for requests for the Kubeconfigs whose target is an object of a kind.
func (r *Reconciler) pointingAtKind(kind string) handler.MapFunc {
	return func(ctx context.Context, object client.Object) []reconcile.Request {
		return r.find(ctx, object.GetNamespace(), targetIndex, kind+"/"+object.GetName())
	}
}

func issuersOf(object client.Object) []string {
	return pki.IssuerNames(pki.IssuerOf(object.(*v1alpha1.Kubeconfig).Spec.CertificateTemplate))
}

func (r *Reconciler) issuedBy(ctx context.Context, issuer client.Object) []reconcile.Request {
	return r.find(ctx, issuer.GetNamespace(), issuersIndex, issuer.GetName())
}

// ofSecret returns requests for the Kubeconfigs that a Secret belongs to, or whose target it belongs to, such as a CA bundle.
func (r *Reconciler) ofSecret(ctx context.Context, secret client.Object) []reconcile.Request {
	requests := r.find(ctx, secret.GetNamespace(), secretsIndex, secret.GetName())
	for label, prefix := range map[string]string{shard.RootLabel: "", shard.FurtherLabel: "Shard/", installation.ProxyLabel: "FrontProxy/"} {
		if target := secret.GetLabels()[label]; target != "" {
			requests = append(requests, r.find(ctx, secret.GetNamespace(), targetIndex, prefix+target)...)
		}
	}
	return requests
}

func (r *Reconciler) find(ctx context.Context, namespace, name, value string) []reconcile.Request {
	return fieldindex.Find(ctx, r, &v1alpha1.KubeconfigList{}, namespace, name, value)
}
