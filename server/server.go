// Package server connects the steps of a request and runs them: path, authentication, authorization, admission, REST storage and
// cluster-aware storage. It also runs the controllers.
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
	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/internal/bootstrap/kubeconfig"
	"github.com/kcplane/kcp/server/internal/process/metrics"
	"github.com/kcplane/kcp/server/logicalcluster"
	"github.com/kcplane/kcp/server/options"
)

// Run serves until ctx ends. It calls announce once, when the server is ready for requests.
func Run(ctx context.Context, opts options.Completed, announce func()) error {
	if err := fixFeatures(); err != nil {
		return err
	}
	if err := metrics.CountPanics(legacyregistry.Register); err != nil {
		return err
	}
	backend, fatal, closeStorage, err := openShardStorage(ctx, opts)
	if err != nil {
		return err
	}
	defer closeStorage()
	users := kubeconfig.Users{Admins: opts.Batteries.Has(options.BatteryAdmin), Plain: opts.Batteries.Has(options.BatteryUser)}
	tokens, err := kubeconfig.Load(users, opts.KubeconfigPath, opts.AdminTokenPath)
	if err != nil {
		return err
	}
	s, err := newServer(ctx, opts, backend, tokens)
	if err != nil {
		return err
	}
	certificate, _ := s.up.generic.SecureServing.Cert.CurrentCertKeyContent()
	if err := tokens.Write(opts.KubeconfigPath, opts.ShardExternalURL, certificate); err != nil {
		return fmt.Errorf("writing the kubeconfig of the administrators: %w", err)
	}

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.addHooks(announce)
	prepared := s.api.PrepareRun()
	s.served.staticOpenAPI.Store(prepared.StaticOpenAPISpec)
	ended := make(chan error, 1)
	go func() {
		err := prepared.RunWithContext(ctx)
		s.background.Wait()
		ended <- err
	}()
	select {
	case err = <-ended:
		return err
	case broken := <-fatal:
		klog.FromContext(ctx).Error(broken, "Stopping the server: its storage is unusable")
		s.fresh.Lose(broken)
		cancel(broken)
		select {
		case <-ended:
		case <-time.After(brokenTimeout): // requests may wait for the storage
		}
		return broken
	}
}

// brokenTimeout is how long the server may take to stop when its storage is unusable.
const brokenTimeout = 10 * time.Second

// fixFeatures sets the feature gates that the design of the server decides. There is no watch cache to estimate sizes from or to compare
// with, and there are no peers of other versions. Decoding each event of each watch in its own goroutine would cost more than it saves.
// Lists as streams of etcd would bypass what the storage does for each call: the memory budget, the retry when a member does not respond,
// and a clear error.
func fixFeatures() error {
	return utilfeature.DefaultMutableFeatureGate.SetFromMap(map[string]bool{
		"SizeBasedListCostEstimate":           false,
		"DetectCacheInconsistency":            false,
		"ListFromCacheSnapshot":               false,
		"UnknownVersionInteroperabilityProxy": false,
		"APIServerIdentity":                   false,
		"ConcurrentWatchObjectDecode":         false,
		"EtcdRangeStream":                     false,
	})
}

// addHooks adds the hooks that start the informers, the controllers and other background work.
func (s *server) addHooks(announce func()) {
	s.api.AddPostStartHookOrDie("kcp-informers", func(hook genericapiserver.PostStartHookContext) error {
		s.background.Go(func() { s.runInformers(hook) })
		if err := s.tenancy.informers.WaitForLookUps(hook); err != nil {
			return err
		}
		if _, err := s.tenancy.set.LogicalClusters.Get(logicalcluster.Root, "", corev1alpha1.LogicalClusterName); err == nil {
			s.fresh.Filled() // without root, there is nothing to serve until the bootstrap
		}
		if s.fresh.Limit > 0 {
			s.background.Go(func() { s.fresh.Run(hook, s.backend, s.tenancy.decisive()) })
		}
		return nil
	})
	s.api.AddPostStartHookOrDie("kcp-bootstrap", func(hook genericapiserver.PostStartHookContext) error {
		if err := s.tenancy.informers.WaitForLookUps(hook); err != nil {
			return err
		}
		if s.opts.Sharding.IsRoot() && !s.opts.OnlyVirtualWorkspaces {
			if err := s.bootstrapWithRoom(hook); err != nil {
				return fmt.Errorf("creating the objects of every installation: %w", err)
			}
			authorization.Await(hook, s.tenancy.set, logicalcluster.Root) // the first requests have the permissions
		}
		s.tenancy.informers.Fill()
		if err := s.joinInstallation(hook); err != nil {
			return err
		}
		s.fresh.Filled()
		announce()
		return nil
	})
	s.api.AddPostStartHookOrDie("kcp-client-certificates", func(hook genericapiserver.PostStartHookContext) error {
		if err := s.certificates.Load(hook); err != nil {
			klog.FromContext(hook).Error(err,
				"Loading the certificate authority of logical clusters failed; client certificates are neither signed nor accepted until it succeeds")
		}
		s.background.Go(func() { s.certificates.Run(hook) })
		return nil
	})
	s.api.AddPostStartHookOrDie("kcp-unreadable-events", func(hook genericapiserver.PostStartHookContext) error {
		s.background.Go(func() {
			if s.tenancy.informers.WaitForSync(hook) == nil { // before, the logical cluster of an object is unknown
				s.unreadable.run(hook, s.clients.kube)
			}
		})
		return nil
	})
	if s.opts.RunControllers {
		s.addControllerHooks()
	}
}

// addControllerHooks adds the hooks that run the controllers: immediately, or while this process is the leader.
func (s *server) addControllerHooks() {
	var taking atomic.Pointer[election]
	s.api.AddPostStartHookOrDie("kcp-controllers", func(hook genericapiserver.PostStartHookContext) error {
		ready := s.tenancy.informers.WaitForSync // the server serves before all informers are filled, which controllers need
		if !s.opts.LeaderElection.Enabled {
			s.background.Go(func() {
				if ready(hook) == nil {
					klog.FromContext(hook).Info("Starting controllers")
					s.runControllers(hook)
				}
			})
			return nil
		}
		e, err := s.newElection(hook, s.runControllers)
		if err != nil {
			return fmt.Errorf("leader election: %w", err)
		}
		taking.Store(e)
		s.background.Go(func() { e.run(hook, ready) })
		return nil
	})
	s.api.AddPreShutdownHookOrDie("kcp-controllers", func() error {
		if e := taking.Load(); e != nil {
			e.leave()
		}
		return nil
	})
}

func (s *server) runInformers(ctx context.Context) {
	s.tenancy.informers.Start(ctx)
	<-ctx.Done()
	s.tenancy.informers.Wait()
}
