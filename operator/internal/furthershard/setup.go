package furthershard

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/component"
	"github.com/kcplane/kcp/operator/internal/fieldindex"
	"github.com/kcplane/kcp/operator/internal/installation"
	"github.com/kcplane/kcp/operator/internal/shard"
)

// Setup registers the reconciler, with watches for the objects that it creates and those that specs refer to.
func (r *Reconciler) Setup(ctx context.Context, mgr ctrl.Manager) error {
	if err := fieldindex.Add(ctx, mgr, &v1alpha1.Shard{}, component.Indices(refersTo)); err != nil {
		return err
	}
	r.EtcdChecker = &component.EtcdChecker{Ask: component.CheckEtcd}
	list := func() client.ObjectList { return &v1alpha1.ShardList{} }
	return r.Watch(mgr, "shard", &v1alpha1.Shard{}, shard.FurtherKind, shard.FurtherLabel, list).
		Owns(&v1alpha1.EtcdCluster{}).
		Watches(&v1alpha1.RootShard{}, handler.EnqueueRequestsFromMapFunc(r.OfRoot(list))).
		Watches(&v1alpha1.VirtualWorkspace{}, handler.EnqueueRequestsFromMapFunc(installation.OfViews(shard.FurtherKind))).
		WatchesRawSource(r.EtcdChecker).
		WatchesRawSource(r).
		Complete(r)
}

// refersTo returns the objects that a Shard refers to.
func refersTo(object client.Object) component.Referred {
	sh := object.(*v1alpha1.Shard)
	referred := component.Referred{}
	if ref := sh.Spec.RootShard.Reference; ref != nil {
		referred.Root = ref.Name
	}
	s := shard.Further(sh, &v1alpha1.RootShard{})
	s.Etcd.Secret = referred.AddEtcd(sh.Name, sh.Spec.Etcd)
	referred.Add(shard.References(s))
	referred.AddIssuers(sh.Spec.CertificateTemplates)
	return referred
}
