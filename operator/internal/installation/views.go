package installation

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/conditions"
	"github.com/kcplane/kcp/operator/internal/shard"
	"github.com/kcplane/kcp/operator/internal/workload"
)

// ViewsLabel has the name of a VirtualWorkspace on its Secrets.
const ViewsLabel = "operator.kcp.io/" + ViewsKind

// ViewsKind is the kind of VirtualWorkspaces in labels.
const ViewsKind = "virtual-workspace"

// ViewsWorkload returns the name of the StatefulSet and of the Service of a VirtualWorkspace.
func ViewsWorkload(name string) string { return name + "-virtual-workspace" }

// Views serves the virtual workspaces of a shard. Without a URL, the shard itself does.
type Views struct {
	URL string
	// Workload is the StatefulSet, and Selector has the labels of its pods.
	Workload string
	Selector map[string]string
}

// ViewsOf returns what serves the virtual workspaces of a shard. It returns an error if the VirtualWorkspace in the spec of the shard does
// not serve this shard.
func ViewsOf(ctx context.Context, c client.Reader, s *shard.Shard) (Views, error) {
	ref := s.Spec.KCPVirtualWorkspace
	if ref == nil {
		return Views{}, nil
	}
	v := &v1alpha1.VirtualWorkspace{}
	err := c.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: ref.Name}, v)
	if apierrors.IsNotFound(err) {
		return Views{}, conditions.Stall("ReferenceNotFound", "spec.kcpVirtualWorkspace: there is no VirtualWorkspace %s: create it", ref.Name)
	}
	if err != nil {
		return Views{}, err
	}
	if kind, name := TargetOf(v); kind != s.Kind || name != s.Name {
		return Views{}, conditions.Stall("OtherTarget", "spec.kcpVirtualWorkspace: VirtualWorkspace %s serves another shard: correct its "+
			"spec.target, or name another VirtualWorkspace", ref.Name)
	}
	if len(v.Spec.Command) > 0 {
		return Views{}, conditions.Stall("OtherProgram", "spec.kcpVirtualWorkspace: VirtualWorkspace %s runs another program, which does not "+
			"serve the virtual workspaces of kcp: remove the field, or spec.command there", ref.Name)
	}
	return Views{URL: shard.Address(v.Spec.External.Hostname, v.Spec.External.Port), Workload: ViewsWorkload(v.Name),
		Selector: ViewsComponent(v).Labels()}, nil
}

// ViewsComponent returns a component with the names and labels of the objects of a VirtualWorkspace.
func ViewsComponent(v *v1alpha1.VirtualWorkspace) *workload.Component {
	return &workload.Component{Name: ViewsWorkload(v.Name), Namespace: v.Namespace, Instance: v.Name, Kind: ViewsKind}
}

// TargetOf returns the kind, as in labels, and the name of the shard of a VirtualWorkspace.
func TargetOf(v *v1alpha1.VirtualWorkspace) (kind, name string) {
	switch t := v.Spec.Target; {
	case t.RootShardRef != nil:
		return shard.RootKind, t.RootShardRef.Name
	case t.ShardRef != nil:
		return shard.FurtherKind, t.ShardRef.Name
	}
	return "", ""
}

// OfViews returns a function for requests for the shard of a kind that a VirtualWorkspace serves.
func OfViews(kind string) handler.MapFunc {
	return func(_ context.Context, o client.Object) []reconcile.Request {
		of, name := TargetOf(o.(*v1alpha1.VirtualWorkspace))
		if of != kind {
			return nil
		}
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(), Name: name}}}
	}
}

// Target returns the shard of a VirtualWorkspace, its RootShard, and the image with which it has been ready.
func Target(ctx context.Context, c client.Reader, v *v1alpha1.VirtualWorkspace) (target, root *shard.Shard, image string, err error) {
	switch t := v.Spec.Target; {
	case t.RootShardRef != nil:
		rs, err := Root(ctx, c, v.Namespace, "target.rootShardRef", t.RootShardRef)
		if err != nil {
			return nil, nil, "", err
		}
		return shard.Root(rs), shard.Root(rs), rs.Status.Image, nil
	case t.ShardRef != nil:
		sh := &v1alpha1.Shard{}
		err := c.Get(ctx, client.ObjectKey{Namespace: v.Namespace, Name: t.ShardRef.Name}, sh)
		if apierrors.IsNotFound(err) {
			return nil, nil, "", conditions.Stall("ReferenceNotFound", "spec.target.shardRef: there is no Shard %s: create it", t.ShardRef.Name)
		}
		if err != nil {
			return nil, nil, "", err
		}
		rs, err := Root(ctx, c, v.Namespace, "rootShard.ref of Shard "+sh.Name, sh.Spec.RootShard.Reference)
		if err != nil {
			return nil, nil, "", err
		}
		return shard.Further(sh, rs), shard.Root(rs), sh.Status.Image, nil
	}
	return nil, nil, "", conditions.Stall("NoReference", "spec.target is empty: set rootShardRef or shardRef")
}

// ProxyAuthorities returns the name of the Secret with the CAs of front proxies: the bundle of the installation, or the CA itself if the
// root shard is the only process.
func ProxyAuthorities(ctx context.Context, c client.Reader, root *shard.Shard) (string, error) {
	err := c.Get(ctx, client.ObjectKey{Namespace: root.Namespace, Name: root.ProxyBundle()}, &corev1.Secret{})
	if apierrors.IsNotFound(err) {
		return root.ProxyCA(), nil
	}
	return root.ProxyBundle(), err
}
