// Package server puts the steps of a request together and runs them: path, authentication, authorization, admission,
// REST storage, cluster-aware storage, and the controllers beside them.
package server

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/bootstrap/kubeconfig"
	"github.com/kcplane/kcp/server/internal/process/metrics"
	"github.com/kcplane/kcp/server/internal/request/freshness"
	"github.com/kcplane/kcp/server/logicalcluster"
	"github.com/kcplane/kcp/server/options"
)

// Run serves until ctx ends. announce is called once, when the server is ready for requests.
func Run(ctx context.Context, opts options.Completed, announce func()) error {
	if err := fixFeatures(); err != nil {
		return err
	}
	if err := metrics.CountPanics(legacyregistry.Register); err != nil {
		return err
	}
	backend, fatal, closeStorage, err := openStorage(ctx, opts)
	if err != nil {
		return err
	}
	defer closeStorage()
	users := kubeconfig.Users{Admins: opts.Batteries.Has(options.BatteryAdmin), Plain: opts.Batteries.Has(options.BatteryUser)}
	tokens, err := kubeconfig.Load(users, opts.KubeconfigPath, opts.AdminTokenPath)
	if err != nil {
		return err
	}
	c, err := newConfig(opts, backend, tokens)
	if err != nil {
		return err
	}
	c.stopping = ctx.Done()
	s, err := c.newServer()
	if err != nil {
		return err
	}
	certificate, _ := c.generic.SecureServing.Cert.CurrentCertKeyContent()
	if err := tokens.Write(opts.KubeconfigPath, opts.ShardExternalURL, certificate); err != nil {
		return fmt.Errorf("kubeconfig of the administrators: %w", err)
	}

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c.addHooks(s, announce)
	prepared := s.PrepareRun()
	c.staticOpenAPI.Store(prepared.StaticOpenAPISpec)
	ended := make(chan error, 1)
	go func() {
		err := prepared.RunWithContext(ctx)
		c.background.Wait()
		ended <- err
	}()
	select {
	case err = <-ended:
		return err
	case broken := <-fatal:
		klog.FromContext(ctx).Error(broken, "The server ends")
		c.fresh.Lose(broken)
		cancel(broken)
		select {
		case <-ended:
		case <-time.After(brokenTimeout): // requests may wait for what does not come
		}
		return broken
	}
}

// brokenTimeout is how long a server whose storage is of no use any more may take to end.
const brokenTimeout = 10 * time.Second

// fixFeatures sets the gates that the design of the server decides: there is no watch cache to estimate sizes from or to
// compare with, and there are no peers of other versions. A goroutine for each event of each watch would cost more than the decoding
// that it takes off the others.
func fixFeatures() error {
	return utilfeature.DefaultMutableFeatureGate.SetFromMap(map[string]bool{
		"SizeBasedListCostEstimate":           false,
		"DetectCacheInconsistency":            false,
		"ListFromCacheSnapshot":               false,
		"UnknownVersionInteroperabilityProxy": false,
		"APIServerIdentity":                   false,
		"ConcurrentWatchObjectDecode":         false,
	})
}

// addHooks starts what runs beside the requests.
func (c *config) addHooks(s *genericapiserver.GenericAPIServer, announce func()) {
	s.AddPostStartHookOrDie("kcp-informers", func(hook genericapiserver.PostStartHookContext) error {
		c.background.Go(func() { c.runInformers(hook) })
		if err := c.informers.WaitForSync(hook); err != nil {
			return err
		}
		if _, err := c.set.LogicalClusters.Get(logicalcluster.Root, "", corev1alpha1.LogicalClusterName); err == nil {
			c.fresh.Filled() // otherwise there is nothing to serve yet
		}
		if c.fresh.Limit > 0 {
			c.background.Go(func() { c.fresh.Run(hook, c.backend, c.decisive()) })
		}
		return nil
	})
	s.AddPostStartHookOrDie("kcp-bootstrap", func(hook genericapiserver.PostStartHookContext) error {
		if err := c.informers.WaitForSync(hook); err != nil {
			return err
		}
		if err := c.bootstrapWithRoom(hook); err != nil {
			return fmt.Errorf("bootstrap: %w", err)
		}
		c.fresh.Filled()
		announce()
		return nil
	})
	s.AddPostStartHookOrDie("kcp-client-certificates", func(hook genericapiserver.PostStartHookContext) error {
		if err := c.clientCertificates.Load(hook); err != nil {
			klog.FromContext(hook).Error(err, "Client certificates of logical clusters are neither signed nor accepted until their authority can be loaded")
		}
		c.background.Go(func() { c.clientCertificates.Run(hook) })
		return nil
	})
	s.AddPostStartHookOrDie("kcp-unreadable-events", func(hook genericapiserver.PostStartHookContext) error {
		c.background.Go(func() { c.unreadable.run(hook, c.kube) })
		return nil
	})
	if c.opts.RunControllers {
		c.addControllerHooks(s)
	}
}

// addControllerHooks runs the controllers, at once or whenever this process leads.
func (c *config) addControllerHooks(s *genericapiserver.GenericAPIServer) {
	var taking atomic.Pointer[election]
	s.AddPostStartHookOrDie("kcp-controllers", func(hook genericapiserver.PostStartHookContext) error {
		if err := c.informers.WaitForSync(hook); err != nil {
			return err
		}
		if !c.opts.LeaderElection.Enabled {
			c.background.Go(func() { c.runControllers(hook) })
			return nil
		}
		e, err := c.newElection(hook, c.runControllers)
		if err != nil {
			return fmt.Errorf("leader election: %w", err)
		}
		taking.Store(e)
		c.background.Go(func() { e.run(hook) })
		return nil
	})
	s.AddPreShutdownHookOrDie("kcp-controllers", func() error {
		if e := taking.Load(); e != nil {
			e.leave()
		}
		return nil
	})
}

func (c *config) runInformers(ctx context.Context) {
	c.informers.Start(ctx)
	<-ctx.Done()
	c.informers.Wait()
}

// decisive returns the informers by whose objects requests are authorized and find their logical cluster.
func (c *config) decisive() []freshness.Informer {
	return []freshness.Informer{
		c.set.LogicalClusters.Informer, c.set.Workspaces.Informer, c.set.WorkspaceTypes.Informer, c.set.WorkspaceAuthenticationConfigurations.Informer,
		c.set.ClusterRoles.Informer, c.set.ClusterRoleBindings.Informer, c.set.Roles.Informer, c.set.RoleBindings.Informer,
		c.set.APIExports.Informer, c.set.APIBindings.Informer,
	}
}
