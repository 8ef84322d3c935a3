package rootshard

import (
	"context"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/etcdcluster"
	"github.com/kcplane/kcp/operator/internal/fieldindex"
	"github.com/kcplane/kcp/operator/internal/pki"
	"github.com/kcplane/kcp/operator/internal/shard"
)

// Indices of RootShards by the names of objects that their specs refer to.
const (
	secretsIndex    = "secrets"
	configMapsIndex = "configMaps"
	issuersIndex    = "issuers"
	// authoritiesIndex has the Issuers whose former CAs are trusted until all certificates that they signed are renewed.
	authoritiesIndex = "authorities"
)

// Setup registers the reconciler, with watches for the objects that it creates and those that specs refer to.
func (r *Reconciler) Setup(ctx context.Context, mgr ctrl.Manager) error {
	indices := map[string]client.IndexerFunc{
		secretsIndex: secretsOf, configMapsIndex: configMapsOf, issuersIndex: issuersOf, authoritiesIndex: authoritiesOf,
	}
	if err := fieldindex.Add(ctx, mgr, &v1alpha1.RootShard{}, indices); err != nil {
		return err
	}
	r.Shards = &Shards{cache: mgr.GetCache(), mapper: mgr.GetRESTMapper()}
	r.EtcdChecker = &EtcdChecker{Ask: CheckEtcd}
	return ctrl.NewControllerManagedBy(mgr).Named("rootshard").
		For(&v1alpha1.RootShard{},
			builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Owns(&certmanager.Issuer{}).Owns(&certmanager.Certificate{}).
		Owns(&v1alpha1.EtcdCluster{}).
		Owns(&appsv1.StatefulSet{}).Owns(&corev1.Service{}).
		Owns(&policyv1.PodDisruptionBudget{}).Owns(&networkingv1.NetworkPolicy{}).
		Watches(&certmanager.Issuer{}, handler.EnqueueRequestsFromMapFunc(r.referring(issuersIndex))).
		Watches(&certmanager.Certificate{}, handler.EnqueueRequestsFromMapFunc(r.ofCertificate)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(ofPod)).
		WatchesMetadata(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.referring(secretsIndex))).
		WatchesMetadata(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.referring(configMapsIndex))).
		WatchesRawSource(r.Shards).
		WatchesRawSource(r.EtcdChecker).
		Complete(r)
}

func secretsOf(object client.Object) []string {
	rs := object.(*v1alpha1.RootShard)
	s := shard.Root(rs)
	names := []string{s.RootSecret}
	if config := rs.Spec.Etcd.TLSConfig; config != nil {
		s.Etcd.Secret = config.SecretRef.Name
	}
	if rs.Spec.Etcd.Managed != nil {
		etcd := managed(rs, nil).Name
		names = append(names, etcdcluster.ClientSecretName(etcd), etcdcluster.TrustSecretName(etcd))
	}
	for _, ref := range shard.References(s) {
		if ref.Secret != "" {
			names = append(names, ref.Secret)
		}
	}
	return names
}

func configMapsOf(object client.Object) []string {
	var names []string
	for _, ref := range shard.References(shard.Root(object.(*v1alpha1.RootShard))) {
		if ref.ConfigMap != "" {
			names = append(names, ref.ConfigMap)
		}
	}
	return names
}

func issuersOf(object client.Object) []string {
	rs := object.(*v1alpha1.RootShard)
	var refs []*v1alpha1.ObjectReference
	if c := rs.Spec.Certificates; c != nil {
		refs = append(refs, c.IssuerRef)
	}
	for _, template := range rs.Spec.CertificateTemplates {
		refs = append(refs, pki.IssuerOf(&template))
	}
	return pki.IssuerNames(refs...)
}

func authoritiesOf(object client.Object) []string {
	s := shard.Root(object.(*v1alpha1.RootShard))
	return []string{s.ServerCA(), s.ClientCA()}
}

// ofCertificate returns requests for the RootShard whose CA signs a certificate, which may belong to another object, such as a Kubeconfig.
func (r *Reconciler) ofCertificate(ctx context.Context, object client.Object) []reconcile.Request {
	issuer := object.(*certmanager.Certificate).Spec.IssuerRef.Name
	return fieldindex.Find(ctx, r, &v1alpha1.RootShardList{}, object.GetNamespace(), authoritiesIndex, issuer)
}

// referring returns requests for the RootShards that refer to an object, and for the RootShard in the label of a Secret.
func (r *Reconciler) referring(name string) handler.MapFunc {
	return func(ctx context.Context, object client.Object) []reconcile.Request {
		requests := fieldindex.Find(ctx, r, &v1alpha1.RootShardList{}, object.GetNamespace(), name, object.GetName())
		if root := object.GetLabels()[shard.RootLabel]; root != "" {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKey{Namespace: object.GetNamespace(), Name: root}})
		}
		return requests
	}
}

func ofPod(_ context.Context, pod client.Object) []reconcile.Request {
	labels := pod.GetLabels()
	if labels["app.kubernetes.io/component"] != shard.RootKind {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: pod.GetNamespace(), Name: labels["app.kubernetes.io/instance"]}}}
}
