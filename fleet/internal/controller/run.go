// Package controller is the central part of the fleet: one process decides for all workspaces on which cluster their namespaces run,
// and serves the agents what they must run. It reads and writes workspaces only through the virtual workspace of the fleet's APIExport.
package controller

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-base/metrics/legacyregistry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/api/fleet/v1alpha1"
	"github.com/kcplane/kcp/client/workspaces"
	"github.com/kcplane/kcp/fleet/internal/feed"
	"github.com/kcplane/kcp/fleet/internal/identity"
	"github.com/kcplane/kcp/fleet/internal/loop"
	"github.com/kcplane/kcp/fleet/internal/pods"
	"github.com/kcplane/kcp/fleet/internal/tunnel"
	"github.com/kcplane/kcp/server/logicalcluster"
	"github.com/kcplane/kcp/server/virtual"
	"github.com/kcplane/kcp/server/virtual/program"
)

const (
	// authoritySecret has the authority that issues the certificates of agents.
	authoritySecret = "kcp-fleet-authority"
	// pause until the watches start again after an error.
	pause = 5 * time.Second
)

// Options configure the controller.
type Options struct {
	// Program serves the agents. Its kubeconfig is that of the provider's workspace.
	Program *program.Options
	// Lost is the time without a heartbeat after which a cluster is not ready.
	Lost time.Duration
	// MovesPerMinute limits how often namespaces move to another cluster.
	MovesPerMinute int
	// StorageCAFile has the authority of the certificates with which kcp reads pods, and StorageName their common name. Both may be empty:
	// then pods cannot be read.
	StorageCAFile, StorageName string
}

// fleet is a running controller.
type fleet struct {
	options   Options
	config    *rest.Config
	provider  client.Client
	index     *feed.Index
	authority *identity.Authority
	shards    *shards
	moves     *turns
	problems  *problems
	tunnels   *tunnel.Tunnels
	sessions  *sessions
	pods      *pods.Pods
	// schemas are those that the export has.
	schemas atomic.Pointer[exported]

	// queue has the namespaces to decide on, and reported the objects whose status to write.
	queue    workqueue.TypedRateLimitingInterface[feed.Namespace]
	reported workqueue.TypedRateLimitingInterface[object]
}

// object is an object of a workspace.
type object struct {
	feed.Namespace
	feed.Key
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	return scheme, errors.Join(corev1.AddToScheme(scheme), coordinationv1.AddToScheme(scheme), apisv1alpha1.AddToScheme(scheme),
		apisv1alpha2.AddToScheme(scheme), corev1alpha1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme))
}

// newManager returns the manager of the provider's workspace.
func newManager(config *rest.Config) (ctrl.Manager, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	return ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				&coordinationv1.Lease{}: {Namespaces: map[string]cache.Config{v1alpha1.Namespace: {}}},
			},
		},
		Client: client.Options{Cache: &client.CacheOptions{
			DisableFor: []client.Object{&corev1.Secret{}, &apisv1alpha1.APIResourceSchema{}, &corev1alpha1.LogicalCluster{}},
		}},
	})
}

// Run runs the controller until ctx ends.
func Run(ctx context.Context, options Options) error {
	config, err := clientcmd.BuildConfigFromFlags("", options.Program.Kubeconfig)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	config.QPS = -1
	manager, err := newManager(config)
	if err != nil {
		return err
	}
	f := &fleet{
		options: options, config: config, provider: manager.GetClient(), shards: newShards(), moves: newTurns(options.MovesPerMinute),
		problems: newProblems(), tunnels: &tunnel.Tunnels{}, sessions: &sessions{},
		queue: loop.NewQueue[feed.Namespace](), reported: loop.NewQueue[object](),
	}
	f.index = feed.NewIndex(uint64(time.Now().Unix())<<20, func(n feed.Namespace, k feed.Key) { f.reported.Add(object{n, k}) })
	if err := legacyregistry.CustomRegister(&collector{fleet: f}); err != nil {
		return fmt.Errorf("registering the metrics: %w", err)
	}
	uncached, err := client.New(config, client.Options{Scheme: manager.GetScheme()})
	if err != nil {
		return err
	}
	if err := f.ensureAuthority(ctx, uncached); err != nil {
		return err
	}
	if f.pods, err = f.newPods(ctx, manager); err != nil {
		return err
	}
	if err := f.addClusters(manager); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return manager.Start(ctx) })
	group.Go(func() error { return f.followAssignments(ctx, manager.GetCache()) })
	group.Go(func() error { return f.followShards(ctx, uncached) })
	group.Go(func() error { return f.serve(ctx, uncached) })
	for range 4 {
		group.Go(func() error { return loop.Work(ctx, f.queue, f.schedule) })
		group.Go(func() error { return loop.Work(ctx, f.reported, f.writeStatus) })
	}
	group.Go(func() error {
		<-ctx.Done()
		f.queue.ShutDown()
		f.reported.ShutDown()
		return nil
	})
	return group.Wait()
}

// serve serves the agents.
func (f *fleet) serve(ctx context.Context, uncached client.Client) error {
	home := &corev1alpha1.LogicalCluster{}
	if err := uncached.Get(ctx, client.ObjectKey{Name: corev1alpha1.LogicalClusterName}, home); err != nil {
		return fmt.Errorf("reading the logical cluster of the provider: %w", err)
	}
	dynamicClient, err := dynamic.NewForConfig(f.config)
	if err != nil {
		return err
	}
	views, err := newViews(logicalcluster.Name(workspaces.ClusterOf(home)), dynamicClient, f.index, f.authority)
	if err != nil {
		return err
	}
	views.tunnels, views.sessions, views.approvedKey, views.schemas = f.tunnels, f.sessions, f.approvedKey, f.schemas.Load
	p, err := program.New(f.options.Program)
	if err != nil {
		return err
	}
	return p.Run(ctx, virtual.Views{"fleet": views.find, "fleet-pods": f.pods.Find})
}

// approvedKey returns the approved key of a Cluster, or "".
func (f *fleet) approvedKey(ctx context.Context, name string) (string, error) {
	cluster := &v1alpha1.Cluster{}
	err := f.provider.Get(ctx, client.ObjectKey{Name: name}, cluster)
	return cluster.Spec.ApprovedKey, client.IgnoreNotFound(err)
}

// ensureAuthority creates the authority of the agents if there is none, and trusts its certificates.
func (f *fleet) ensureAuthority(ctx context.Context, c client.Client) error {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.Namespace, Name: authoritySecret}}
	err := c.Get(ctx, client.ObjectKeyFromObject(secret), secret)
	if apierrors.IsNotFound(err) {
		certificate, key, newErr := identity.NewAuthority(time.Now())
		if newErr != nil {
			return newErr
		}
		secret.Type = corev1.SecretTypeTLS
		secret.Data = map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key}
		err = c.Create(ctx, secret)
	}
	if err != nil {
		return fmt.Errorf("authority of the agents: %w", err)
	}
	authority, err := identity.ParseAuthority(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return fmt.Errorf("secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	f.authority = authority
	dir := f.options.Program.Serving.ServerCert.CertDirectory
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	file := filepath.Join(dir, "agents.crt")
	f.options.Program.Authentication.ClientCert.ClientCA = file
	return os.WriteFile(file, secret.Data[corev1.TLSCertKey], 0o600)
}

// followShards watches the objects of all consumers, with the resources that the export has. It starts again when these change.
func (f *fleet) followShards(ctx context.Context, uncached client.Client) error {
	var running []resource
	stop, ended := context.CancelFunc(func() {}), make(chan struct{})
	close(ended)
	for ctx.Err() == nil {
		present, schemas, err := exportedResources(ctx, uncached)
		if err == nil {
			err = f.publish(schemas)
		}
		switch {
		case err != nil:
			ctrl.Log.Info("Reading the APIExport failed, trying again", "error", err.Error())
		case running == nil || !slices.Equal(present, running):
			stop()
			<-ended
			var following context.Context
			following, stop = context.WithCancel(ctx)
			running, ended = present, make(chan struct{})
			go func() {
				defer close(ended)
				err := workspaces.Follow(following, f.config, workspaces.Export(v1alpha1.Export), ctrl.Options{
					Scheme: f.provider.Scheme(), Cache: cache.Options{DefaultTransform: cache.TransformStripManagedFields()},
				}, func(m ctrl.Manager) error { return m.Add(&shard{fleet: f, manager: m, resources: present}) })
				if err != nil && following.Err() == nil {
					ctrl.Log.Error(err, "Watching workspaces failed")
				}
			}()
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	stop()
	<-ended
	return nil
}

// exportedResources returns what the fleet runs on clusters: the namespaced resources of its export, and ConfigMaps and Secrets.
// It also returns the schemas of those that the export has.
func exportedResources(ctx context.Context, c client.Client) ([]resource, []apisv1alpha1.APIResourceSchema, error) {
	e := &apisv1alpha2.APIExport{}
	if err := c.Get(ctx, client.ObjectKey{Name: v1alpha1.Export}, e); err != nil {
		return nil, nil, err
	}
	var schemas []apisv1alpha1.APIResourceSchema
	list := []resource{
		{GVR: corev1.SchemeGroupVersion.WithResource("configmaps"), Kind: "ConfigMap"},
		{GVR: corev1.SchemeGroupVersion.WithResource("secrets"), Kind: "Secret"},
	}
	for _, r := range e.Spec.Resources {
		if r.Group == v1alpha1.SchemeGroupVersion.Group || r.Storage.Virtual != nil {
			continue
		}
		schema := &apisv1alpha1.APIResourceSchema{}
		if err := c.Get(ctx, client.ObjectKey{Name: r.Schema}, schema); err != nil {
			return nil, nil, err
		}
		schemas = append(schemas, *schema)
		for _, version := range schema.Spec.Versions {
			if version.Storage && !strings.EqualFold(string(schema.Spec.Scope), "Cluster") {
				gvr := resource{Kind: schema.Spec.Names.Kind}
				gvr.GVR.Group, gvr.GVR.Version, gvr.GVR.Resource = schema.Spec.Group, version.Name, schema.Spec.Names.Plural
				list = append(list, gvr)
			}
		}
	}
	return list, schemas, nil
}
