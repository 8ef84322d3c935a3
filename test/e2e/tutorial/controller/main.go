// Command controller provides the databases of the tutorial in docs/apis.md: it follows those of all tenants through one URL, and
// writes into the workspace of each. It only pretends to make a database.
package main

import (
	"context"
	"errors"
	"flag"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
)

var kind = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Database"}

func main() {
	of := flag.String("context", "", "Context of the kubeconfig that leads to the workspace of the provider")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	workspace, err := config.GetConfigWithContext(*of)
	utilruntime.Must(err)
	if err := follow(ctrl.SetupSignalHandler(), workspace); !errors.Is(err, context.Canceled) {
		panic(err)
	}
}

// follow runs a manager for each URL of the export. There is none until the first tenant binds it, and one for each shard that
// has tenants from then on.
func follow(ctx context.Context, workspace *rest.Config) error {
	scheme := runtime.NewScheme()
	utilruntime.Must(apisv1alpha1.AddToScheme(scheme))
	provider, err := client.New(workspace, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	running := map[string]bool{}
	group.Go(func() error {
		return wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
			slice := &apisv1alpha1.APIExportEndpointSlice{}
			err := provider.Get(ctx, client.ObjectKey{Name: "databases"}, slice)
			for _, endpoint := range slice.Status.Endpoints {
				if !running[endpoint.URL] {
					running[endpoint.URL] = true
					group.Go(func() error { return serve(ctx, workspace, endpoint.URL) })
				}
			}
			return false, client.IgnoreNotFound(err)
		})
	})
	return group.Wait()
}

// serve reconciles the databases of all tenants below url.
func serve(ctx context.Context, workspace *rest.Config, url string) error {
	manager, err := ctrl.NewManager(at(workspace, url, "*"), ctrl.Options{
		Cache:   cache.Options{NewInformer: newInformer},
		Client:  client.Options{Cache: &client.CacheOptions{Unstructured: true}},
		Metrics: metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		return err
	}
	of := &unstructured.Unstructured{}
	of.SetGroupVersionKind(kind)
	if err := ctrl.NewControllerManagedBy(manager).For(of).Named(url).Complete(&reconciler{manager, workspace, url}); err != nil {
		return err
	}
	return manager.Start(ctx)
}

// at is how to reach one logical cluster below url, or all of them.
func at(workspace *rest.Config, url, cluster string) *rest.Config {
	config := rest.CopyConfig(workspace)
	config.Host = url + "/clusters/" + cluster
	return config
}

type reconciler struct {
	ctrl.Manager
	workspace *rest.Config
	url       string
}

// Reconcile makes a database ready: it reads from the cache of all tenants, and writes into the workspace of one.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	database := &unstructured.Unstructured{}
	database.SetGroupVersionKind(kind)
	if err := r.GetClient().Get(ctx, request.NamespacedName, database); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	cluster, namespace, _ := strings.Cut(request.Namespace, "|")
	database.SetNamespace(namespace)
	before := database.DeepCopy()
	database.Object["status"] = map[string]any{"phase": "Ready", "host": request.Name + "." + namespace + "." + cluster + ".example.com"}
	tenant, err := client.New(at(r.workspace, r.url, cluster), client.Options{HTTPClient: r.GetHTTPClient(), Mapper: r.GetRESTMapper()})
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, client.IgnoreNotFound(tenant.Status().Patch(ctx, database, client.MergeFrom(before)))
}

// newInformer puts the logical cluster of every object in front of its namespace. Caches know objects by namespace and name, and
// two tenants may well choose the same.
func newInformer(lw toolscache.ListerWatcher, of runtime.Object, resync time.Duration, by toolscache.Indexers) toolscache.SharedIndexInformer {
	all := toolscache.ToListerWatcherWithContext(lw)
	rename := func(object runtime.Object) error {
		o := object.(client.Object)
		o.SetNamespace(o.GetAnnotations()["kcp.io/cluster"] + "|" + o.GetNamespace())
		return nil
	}
	return toolscache.NewSharedIndexInformer(&toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := all.ListWithContext(ctx, options)
			if err == nil {
				err = meta.EachListItem(list, rename)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			events, err := all.WatchWithContext(ctx, options)
			if err != nil {
				return nil, err
			}
			return watch.Filter(events, func(event watch.Event) (watch.Event, bool) {
				return event, event.Type == watch.Bookmark || event.Type == watch.Error || rename(event.Object) == nil
			}), nil
		},
	}, of, resync, by)
}
