// Command controller provides the databases of the tutorial in docs/apis.md: it follows those of all tenants, and writes into the
// workspace of each. It only pretends to make a database.
package main

import (
	"context"
	"flag"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/kcplane/kcp/client/workspaces"
)

func main() {
	of := flag.String("context", "", "Context of the kubeconfig that leads to the workspace of the provider")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	provider, err := config.GetConfigWithContext(*of)
	utilruntime.Must(err)
	options := ctrl.Options{Client: client.Options{Cache: &client.CacheOptions{Unstructured: true}}}
	utilruntime.Must(workspaces.Follow(ctrl.SetupSignalHandler(), provider, workspaces.Export("databases"), options, setup))
}

// setup adds the controller to a manager for many workspaces.
func setup(manager ctrl.Manager) error {
	return builder.TypedControllerManagedBy[workspaces.Request](manager).Named("databases").
		Watches(database(), workspaces.Lift(&handler.EnqueueRequestForObject{})).
		Complete(workspaces.Each(&reconciler{manager.GetClient()}))
}

func database() *unstructured.Unstructured {
	d := &unstructured.Unstructured{}
	d.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Database"})
	return d
}

// reconciler is written as one for a single cluster.
type reconciler struct{ client.Client }

// Reconcile makes a database ready.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	d := database()
	if err := r.Get(ctx, request.NamespacedName, d); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := d.DeepCopy()
	host := request.Name + "." + request.Namespace + "." + workspaces.ClusterOf(d) + ".example.com"
	d.Object["status"] = map[string]any{"phase": "Ready", "host": host}
	return ctrl.Result{}, client.IgnoreNotFound(r.Status().Patch(ctx, d, client.MergeFrom(before)))
}
