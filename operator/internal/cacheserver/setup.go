package cacheserver

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/component"
	"github.com/kcplane/kcp/operator/internal/fieldindex"
	"github.com/kcplane/kcp/operator/internal/installation"
	"github.com/kcplane/kcp/operator/internal/settings"
)

// Setup registers the reconciler, with watches for the objects that it creates and those that specs refer to.
func (r *Reconciler) Setup(ctx context.Context, mgr ctrl.Manager) error {
	if err := fieldindex.Add(ctx, mgr, &v1alpha1.CacheServer{}, component.Indices(refersTo)); err != nil {
		return err
	}
	r.EtcdChecker = &component.EtcdChecker{Ask: component.CheckEtcd}
	list := func() client.ObjectList { return &v1alpha1.CacheServerList{} }
	return r.Watch(mgr, "cacheserver", &v1alpha1.CacheServer{}, kind, installation.CacheLabel, list).
		Owns(&v1alpha1.EtcdCluster{}).
		Watches(&v1alpha1.RootShard{}, handler.EnqueueRequestsFromMapFunc(ofRootShard)).
		WatchesRawSource(r.EtcdChecker).
		Complete(r)
}

// ofRootShard returns a request for the CacheServer that a RootShard names.
func ofRootShard(_ context.Context, object client.Object) []reconcile.Request {
	name := installation.CacheName(object.(*v1alpha1.RootShard).Spec.Cache)
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: object.GetNamespace(), Name: name}}}
}

// refersTo returns the objects that a CacheServer refers to.
func refersTo(object client.Object) component.Referred {
	c := object.(*v1alpha1.CacheServer)
	etcd := settings.Etcd{}
	referred := component.Referred{Secrets: []string{authority(c)}, Authorities: []string{name(c, "ca")}}
	if config := c.Spec.Etcd; config != nil {
		etcd.Secret = referred.AddEtcd(c.Name, *config)
	}
	referred.Add(references(c, etcd))
	referred.AddIssuers(c.Spec.CertificateTemplates)
	if given := c.Spec.Certificates; given != nil {
		referred.AddIssuers(nil, given.IssuerRef)
	}
	return referred
}
