package workspaces

import (
	"context"
	"fmt"
	"path"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
)

// Endpoints are the URLs of a virtual workspace: one for each shard that has objects for it. They are in the status of an object, which
// the controller must have permission to get, list and watch by name.
type Endpoints struct {
	name   string
	object func() client.Object
	list   func() client.ObjectList
	urls   func(client.Object) []string
}

// Export returns the URLs of the objects of an APIExport. slice is the name of its APIExportEndpointSlice.
func Export(slice string) Endpoints {
	return Endpoints{
		name:   slice,
		object: func() client.Object { return &apisv1alpha1.APIExportEndpointSlice{} },
		list:   func() client.ObjectList { return &apisv1alpha1.APIExportEndpointSliceList{} },
		urls: func(o client.Object) (urls []string) {
			for _, endpoint := range o.(*apisv1alpha1.APIExportEndpointSlice).Status.Endpoints {
				urls = append(urls, endpoint.URL)
			}
			return urls
		},
	}
}

// Initializing returns the URLs of the workspaces that wait for the initializer of a WorkspaceType.
func Initializing(workspaceType string) Endpoints {
	return ofType(workspaceType, tenancyv1alpha1.VirtualWorkspaceTypeInitializing)
}

// Terminating returns the URLs of the workspaces that wait for the terminator of a WorkspaceType.
func Terminating(workspaceType string) Endpoints {
	return ofType(workspaceType, tenancyv1alpha1.VirtualWorkspaceTypeTerminating)
}

func ofType(name string, of tenancyv1alpha1.VirtualWorkspaceType) Endpoints {
	return Endpoints{
		name:   name,
		object: func() client.Object { return &tenancyv1alpha1.WorkspaceType{} },
		list:   func() client.ObjectList { return &tenancyv1alpha1.WorkspaceTypeList{} },
		urls: func(o client.Object) (urls []string) {
			for _, virtual := range o.(*tenancyv1alpha1.WorkspaceType).Status.VirtualWorkspaces {
				if virtual.Type == of {
					urls = append(urls, virtual.URL)
				}
			}
			return urls
		},
	}
}

// pause is the time until a manager that failed is started again, for example because its shard cannot be reached.
const pause = 5 * time.Second

// Follow runs a manager for each of the URLs, from the time at which the URL appears until it disappears or ctx ends. config is the
// configuration of a client of the provider's workspace. setup adds controllers to each manager. Follow returns when ctx ends, or with an
// error of setup.
//
// The managers do not serve metrics, webhooks or health checks, and do not elect leaders: the program does this. It can run Follow as a
// runnable of another manager.
func Follow(ctx context.Context, config *rest.Config, endpoints Endpoints, options ctrl.Options, setup func(ctrl.Manager) error) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{apisv1alpha1.AddToScheme, tenancyv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	provider, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	options.Metrics = metricsserver.Options{BindAddress: "0"}
	options.HealthProbeBindAddress, options.LeaderElection = "0", false
	again := true
	options.Controller.SkipNameValidation = &again // every manager has controllers with the same names
	group, ctx := errgroup.WithContext(ctx)
	running := map[string]context.CancelFunc{}
	adjust := func(urls sets.Set[string]) {
		for url, stop := range running {
			if !urls.Has(url) {
				stop()
				delete(running, url)
			}
		}
		for url := range urls {
			if running[url] != nil {
				continue
			}
			ctx, stop := context.WithCancel(ctx)
			running[url] = stop
			group.Go(func() error { return keep(ctx, config, url, options, setup) })
		}
	}
	group.Go(func() error {
		_, err := watchtools.UntilWithSync(ctx, endpoints.from(provider), endpoints.object(), nil, func(event watch.Event) (bool, error) {
			o, ok := event.Object.(client.Object)
			if !ok || event.Type == watch.Deleted {
				adjust(nil)
				return false, nil
			}
			adjust(sets.New(endpoints.urls(o)...))
			return false, nil
		})
		if ctx.Err() != nil {
			return nil
		}
		return err
	})
	return group.Wait()
}

// from returns a lister and watcher of the object that has the URLs.
func (e Endpoints) from(provider client.WithWatch) toolscache.ListerWatcher {
	options := func(o metav1.ListOptions) *client.ListOptions {
		return &client.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, e.name), Raw: &o}
	}
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list := e.list()
			return list, provider.List(ctx, list, options(o))
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return provider.Watch(ctx, e.list(), options(o))
		},
	}
}

// keep runs the manager of one URL, and starts it again when it fails.
func keep(ctx context.Context, config *rest.Config, url string, options ctrl.Options, setup func(ctrl.Manager) error) error {
	for ctx.Err() == nil {
		manager, err := NewManager(config, url, options)
		if err != nil {
			return fmt.Errorf("%s: %w", url, err)
		}
		if err := setup(manager); err != nil {
			return fmt.Errorf("%s: %w", url, err)
		}
		if err := manager.Start(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "Manager failed, starting it again", "url", url)
			_ = wait.PollUntilContextCancel(ctx, pause, false, func(context.Context) (bool, error) { return true, nil })
		}
	}
	return nil
}

// StepOf returns the initializer or terminator that a manager of Follow serves, as the status of waiting LogicalClusters lists it. A
// reconciler removes it from that status when it is done.
func StepOf(manager ctrl.Manager) string {
	return path.Base(strings.TrimSuffix(manager.GetConfig().Host, everyCluster))
}
