package virtualworkspace

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
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

// targetIndex has the shards of VirtualWorkspaces, as kind/name. All whose target is not a RootShard are in it as indirect, too: they also
// depend on the RootShard of the installation.
const (
	targetIndex = "target"
	indirect    = "*"
)

// Setup registers the reconciler, with watches for the objects that it creates and those that specs refer to.
func (r *Reconciler) Setup(ctx context.Context, mgr ctrl.Manager) error {
	indices := component.Indices(refersTo)
	indices[targetIndex] = targetOf
	if err := fieldindex.Add(ctx, mgr, &v1alpha1.VirtualWorkspace{}, indices); err != nil {
		return err
	}
	list := func() client.ObjectList { return &v1alpha1.VirtualWorkspaceList{} }
	return r.Watch(mgr, "virtualworkspace", &v1alpha1.VirtualWorkspace{}, installation.ViewsKind, installation.ViewsLabel, list).
		Watches(&v1alpha1.RootShard{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
			return append(r.at(ctx, o.GetNamespace(), shard.RootKind+"/"+o.GetName()), r.at(ctx, o.GetNamespace(), indirect)...)
		})).
		Watches(&v1alpha1.Shard{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
			return r.at(ctx, o.GetNamespace(), shard.FurtherKind+"/"+o.GetName())
		})).
		Watches(&appsv1.StatefulSet{}, handler.EnqueueRequestsFromMapFunc(r.ofShard)).
		WatchesMetadata(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.ofSecret)).
		Complete(r)
}

// at returns requests for the VirtualWorkspaces with a target.
func (r *Reconciler) at(ctx context.Context, namespace, target string) []reconcile.Request {
	return fieldindex.Find(ctx, r, &v1alpha1.VirtualWorkspaceList{}, namespace, targetIndex, target)
}

// ofShard returns requests for the VirtualWorkspaces of the shard that a StatefulSet belongs to.
func (r *Reconciler) ofShard(ctx context.Context, set client.Object) []reconcile.Request {
	labels := set.GetLabels()
	return r.at(ctx, set.GetNamespace(), labels["app.kubernetes.io/component"]+"/"+labels["app.kubernetes.io/instance"])
}

// ofSecret returns requests for the VirtualWorkspaces of the shard that a Secret belongs to.
func (r *Reconciler) ofSecret(ctx context.Context, secret client.Object) []reconcile.Request {
	labels := secret.GetLabels()
	if name := labels[shard.FurtherLabel]; name != "" {
		return r.at(ctx, secret.GetNamespace(), shard.FurtherKind+"/"+name)
	}
	if name := labels[shard.RootLabel]; name != "" {
		return append(r.at(ctx, secret.GetNamespace(), shard.RootKind+"/"+name), r.at(ctx, secret.GetNamespace(), indirect)...)
	}
	return nil
}

// targetOf returns the values of targetIndex.
func targetOf(object client.Object) []string {
	kind, name := installation.TargetOf(object.(*v1alpha1.VirtualWorkspace))
	switch kind {
	case "":
		return nil
	case shard.RootKind:
		return []string{kind + "/" + name}
	}
	return []string{kind + "/" + name, indirect}
}

// refersTo returns the objects that a VirtualWorkspace refers to.
func refersTo(object client.Object) component.Referred {
	v := object.(*v1alpha1.VirtualWorkspace)
	referred := component.Referred{}
	referred.Add(references(v))
	referred.AddIssuers(v.Spec.CertificateTemplates)
	return referred
}
