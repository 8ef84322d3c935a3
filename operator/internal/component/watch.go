package component

import (
	"context"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
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
	"github.com/kcplane/kcp/operator/internal/retry"
	"github.com/kcplane/kcp/operator/internal/settings"
	"github.com/kcplane/kcp/operator/internal/shard"
)

// Indices of components by the names of objects that their specs refer to.
const (
	secretsIndex    = "secrets"
	configMapsIndex = "configMaps"
	issuersIndex    = "issuers"
	// authoritiesIndex has the Issuers whose former CAs are trusted until all certificates that they signed are renewed.
	authoritiesIndex = "authorities"
	// rootIndex has the RootShards whose Secrets the component reads.
	rootIndex = "root"
)

// Referred are the names of the objects that a component refers to.
type Referred struct {
	Secrets, ConfigMaps, Issuers, Authorities []string
	// Root is the RootShard of the installation, if the component is not one.
	Root string
}

// Add adds the objects of references.
func (r *Referred) Add(references []settings.Reference) {
	for _, ref := range references {
		if ref.Secret != "" {
			r.Secrets = append(r.Secrets, ref.Secret)
		}
		if ref.ConfigMap != "" {
			r.ConfigMaps = append(r.ConfigMaps, ref.ConfigMap)
		}
	}
}

// AddIssuers adds the issuers that templates of certificates name, and others, which may be nil.
func (r *Referred) AddIssuers(templates v1alpha1.CertificateTemplateMap, others ...*v1alpha1.ObjectReference) {
	for _, template := range templates {
		others = append(others, pki.IssuerOf(&template))
	}
	r.Issuers = append(r.Issuers, pki.IssuerNames(others...)...)
}

// AddEtcd adds the Secrets of the etcd that the operator creates for a component, if it does, and returns the Secret that the spec names
// for another etcd, which may be empty.
func (r *Referred) AddEtcd(component string, config v1alpha1.EtcdConfig) (secret string) {
	if config.Managed != nil {
		etcd := ManagedEtcd(component)
		r.Secrets = append(r.Secrets, etcdcluster.ClientSecretName(etcd), etcdcluster.TrustSecretName(etcd))
	}
	if config.TLSConfig != nil {
		return config.TLSConfig.SecretRef.Name
	}
	return ""
}

// Indices returns the indices for Watch.
func Indices(referred func(client.Object) Referred) map[string]client.IndexerFunc {
	return map[string]client.IndexerFunc{
		secretsIndex:     func(o client.Object) []string { return referred(o).Secrets },
		configMapsIndex:  func(o client.Object) []string { return referred(o).ConfigMaps },
		issuersIndex:     func(o client.Object) []string { return referred(o).Issuers },
		authoritiesIndex: func(o client.Object) []string { return referred(o).Authorities },
		rootIndex: func(o client.Object) []string {
			if root := referred(o).Root; root != "" {
				return []string{root}
			}
			return nil
		},
	}
}

// Watch returns a controller for a kind of components, with watches for the objects that it creates and those that specs refer to. Kind is
// the one in labels of pods, and label is on the Secrets of a component, with its name.
func (e *Environment) Watch(mgr ctrl.Manager, name string, object client.Object, kind, label string,
	list func() client.ObjectList) *builder.Builder {
	find := func(index string) handler.MapFunc {
		return func(ctx context.Context, o client.Object) []reconcile.Request {
			return fieldindex.Find(ctx, e, list(), o.GetNamespace(), index, o.GetName())
		}
	}
	named := func(o client.Object, label string) []reconcile.Request {
		if name := o.GetLabels()[label]; name != "" {
			return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(), Name: name}}}
		}
		return nil
	}
	ofSecret := func(ctx context.Context, o client.Object) []reconcile.Request {
		requests := append(find(secretsIndex)(ctx, o), named(o, label)...)
		if root := o.GetLabels()[shard.RootLabel]; root != "" && label != shard.RootLabel {
			requests = append(requests, fieldindex.Find(ctx, e, list(), o.GetNamespace(), rootIndex, root)...)
		}
		return requests
	}
	ofCertificate := func(ctx context.Context, o client.Object) []reconcile.Request {
		issuer := o.(*certmanager.Certificate).Spec.IssuerRef.Name
		return fieldindex.Find(ctx, e, list(), o.GetNamespace(), authoritiesIndex, issuer)
	}
	ofPod := func(_ context.Context, pod client.Object) []reconcile.Request {
		if pod.GetLabels()["app.kubernetes.io/component"] != kind {
			return nil
		}
		return named(pod, "app.kubernetes.io/instance")
	}
	changed := predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{})
	return ctrl.NewControllerManagedBy(mgr).Named(name).WithOptions(retry.Options()).
		For(object, builder.WithPredicates(changed)).
		Owns(&certmanager.Issuer{}).Owns(&certmanager.Certificate{}).
		Owns(&appsv1.StatefulSet{}).Owns(&corev1.Service{}).
		Owns(&policyv1.PodDisruptionBudget{}).Owns(&networkingv1.NetworkPolicy{}).
		Owns(&autoscalingv2.HorizontalPodAutoscaler{}).
		Watches(&certmanager.Issuer{}, handler.EnqueueRequestsFromMapFunc(find(issuersIndex))).
		Watches(&certmanager.Certificate{}, handler.EnqueueRequestsFromMapFunc(ofCertificate)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(ofPod)).
		WatchesMetadata(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(ofSecret)).
		WatchesMetadata(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(find(configMapsIndex)))
}

// OfRoot returns requests for the components of the installation of a RootShard.
func (e *Environment) OfRoot(list func() client.ObjectList) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		return fieldindex.Find(ctx, e, list(), o.GetNamespace(), rootIndex, o.GetName())
	}
}
