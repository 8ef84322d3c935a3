package etcdcluster

import (
	"context"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/fieldindex"
	"github.com/kcplane/kcp/operator/internal/pki"
	"github.com/kcplane/kcp/operator/internal/retry"
)

// issuersIndex indexes EtcdClusters by the Issuers in their specs.
const issuersIndex = "issuers"

// Image of etcd that is built with the operator.
const (
	DefaultRepository = "ghcr.io/kcplane/etcd"
	DefaultVersion    = "3.7.3"
)

// concurrency is the number of clusters that are reconciled at a time. A cluster that does not answer takes some seconds.
const concurrency = 8

// Setup registers the reconciler with watches for all objects of a cluster.
func (r *Reconciler) Setup(ctx context.Context, mgr ctrl.Manager) error {
	if err := fieldindex.Add(ctx, mgr, &v1alpha1.EtcdCluster{}, map[string]client.IndexerFunc{issuersIndex: issuersOf}); err != nil {
		return err
	}
	stepErrors, err := registerStepErrors()
	if err != nil {
		return err
	}
	r.StepErrors = stepErrors
	issuing := func(ctx context.Context, issuer client.Object) []reconcile.Request {
		return fieldindex.Find(ctx, r, &v1alpha1.EtcdClusterList{}, issuer.GetNamespace(), issuersIndex, issuer.GetName())
	}
	options := retry.Options()
	options.MaxConcurrentReconciles = concurrency
	return ctrl.NewControllerManagedBy(mgr).Named("etcdcluster").WithOptions(options).
		For(&v1alpha1.EtcdCluster{},
			builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Owns(&certmanager.Issuer{}).Owns(&certmanager.Certificate{}).
		Owns(&appsv1.StatefulSet{}).Owns(&corev1.Service{}).Owns(&policyv1.PodDisruptionBudget{}).Owns(&batchv1.Job{}).
		WatchesMetadata(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(clusterOf)).
		Watches(&certmanager.Issuer{}, handler.EnqueueRequestsFromMapFunc(issuing)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(clusterOf)).
		Complete(r)
}

func issuersOf(object client.Object) []string {
	tls := object.(*v1alpha1.EtcdCluster).Spec.TLS
	if tls == nil {
		return nil
	}
	return pki.IssuerNames(tls.IssuerRef)
}

// clusterOf maps a pod or a Secret to its cluster by its labels, because the cluster is not its controller.
func clusterOf(_ context.Context, object client.Object) []reconcile.Request {
	l := object.GetLabels()
	if l["app.kubernetes.io/component"] != componentLabel {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: object.GetNamespace(), Name: l["app.kubernetes.io/instance"]}}}
}
