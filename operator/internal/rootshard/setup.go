package rootshard

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/component"
	"github.com/kcplane/kcp/operator/internal/fieldindex"
	"github.com/kcplane/kcp/operator/internal/installation"
	"github.com/kcplane/kcp/operator/internal/shard"
)

// cacheIndex has the CacheServers of RootShards.
const cacheIndex = "cache"

// Setup registers the reconciler, with watches for the objects that it creates and those that specs refer to.
func (r *Reconciler) Setup(ctx context.Context, mgr ctrl.Manager) error {
	indices := component.Indices(refersTo)
	indices[cacheIndex] = func(o client.Object) []string {
		return []string{installation.CacheName(o.(*v1alpha1.RootShard).Spec.Cache)}
	}
	if err := fieldindex.Add(ctx, mgr, &v1alpha1.RootShard{}, indices); err != nil {
		return err
	}
	r.EtcdChecker = &component.EtcdChecker{Ask: component.CheckEtcd}
	list := func() client.ObjectList { return &v1alpha1.RootShardList{} }
	referred := func(_ context.Context, o client.Object) []reconcile.Request { return ofInstallation(o) }
	return r.Watch(mgr, "rootshard", &v1alpha1.RootShard{}, shard.RootKind, shard.RootLabel, list).
		Owns(&v1alpha1.EtcdCluster{}).
		Watches(&v1alpha1.Shard{}, handler.EnqueueRequestsFromMapFunc(referred)).
		Watches(&v1alpha1.FrontProxy{}, handler.EnqueueRequestsFromMapFunc(referred)).
		Watches(&v1alpha1.CacheServer{}, handler.EnqueueRequestsFromMapFunc(r.ofCache)).
		Watches(&v1alpha1.VirtualWorkspace{}, handler.EnqueueRequestsFromMapFunc(installation.OfViews(shard.RootKind))).
		WatchesMetadata(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.ofCacheSecret)).
		WatchesRawSource(r.EtcdChecker).
		Complete(r)
}

// ofCache returns requests for the RootShards of a CacheServer.
func (r *Reconciler) ofCache(ctx context.Context, object client.Object) []reconcile.Request {
	return fieldindex.Find(ctx, r, &v1alpha1.RootShardList{}, object.GetNamespace(), cacheIndex, object.GetName())
}

// ofCacheSecret returns requests for the RootShards of the CacheServer that a Secret belongs to.
func (r *Reconciler) ofCacheSecret(ctx context.Context, object client.Object) []reconcile.Request {
	name := object.GetLabels()[installation.CacheLabel]
	if name == "" {
		return nil
	}
	return fieldindex.Find(ctx, r, &v1alpha1.RootShardList{}, object.GetNamespace(), cacheIndex, name)
}

// refersTo returns the objects that a RootShard refers to.
func refersTo(object client.Object) component.Referred {
	rs := object.(*v1alpha1.RootShard)
	s := shard.Root(rs)
	referred := component.Referred{Secrets: []string{s.RootSecret}, Authorities: []string{s.ServerCA(), s.ClientCA(), s.PeerCA(), s.ProxyCA()}}
	s.Etcd.Secret = referred.AddEtcd(rs.Name, rs.Spec.Etcd)
	referred.Add(shard.References(s))
	referred.AddIssuers(rs.Spec.CertificateTemplates)
	if c := rs.Spec.Certificates; c != nil {
		referred.AddIssuers(nil, c.IssuerRef)
	}
	return referred
}
