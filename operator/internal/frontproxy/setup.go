package frontproxy

import (
	"context"

	networkingv1 "k8s.io/api/networking/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/component"
	"github.com/kcplane/kcp/operator/internal/fieldindex"
	"github.com/kcplane/kcp/operator/internal/installation"
)

// Setup registers the reconciler, with watches for the objects that it creates and those that specs refer to.
func (r *Reconciler) Setup(ctx context.Context, mgr ctrl.Manager) error {
	if err := fieldindex.Add(ctx, mgr, &v1alpha1.FrontProxy{}, component.Indices(refersTo)); err != nil {
		return err
	}
	list := func() client.ObjectList { return &v1alpha1.FrontProxyList{} }
	return r.Watch(mgr, "frontproxy", &v1alpha1.FrontProxy{}, kind, installation.ProxyLabel, list).
		Owns(&networkingv1.Ingress{}).
		Watches(&v1alpha1.RootShard{}, handler.EnqueueRequestsFromMapFunc(r.OfRoot(list))).
		Complete(r)
}

// refersTo returns the objects that a FrontProxy refers to.
func refersTo(object client.Object) component.Referred {
	f := object.(*v1alpha1.FrontProxy)
	referred := component.Referred{}
	if ref := f.Spec.RootShard.Reference; ref != nil {
		referred.Root = ref.Name
	}
	referred.Add(references(f))
	referred.AddIssuers(f.Spec.CertificateTemplates)
	return referred
}
