package server

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/kcplane/kcp/server/internal/informers/clusterclient"
	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Another process takes over leaseDuration after the leader renewed its lease last. A leader that cannot renew its lease stops its
// controllers much sooner.
const (
	leaseDuration = 60 * time.Second
	renewDeadline = 5 * time.Second
	retryPeriod   = 2 * time.Second
)

// election makes this process take part in the leader election among all processes that share an etcd. The leader runs the controllers.
type election struct {
	client    kubernetes.Interface
	namespace string
	elector   *leaderelection.LeaderElector
	term      sync.Mutex    // held while the controllers run: a term begins after the previous term has ended
	ending    chan struct{} // closed to leave the election
	ended     chan struct{} // closed when this process has left the election and released the lease
}

// newElection returns an election that calls lead when this process gets the lease of the options. The context of lead ends when this
// process loses the lease.
func (s *server) newElection(ctx context.Context, lead func(context.Context)) (*election, error) {
	config := rest.CopyConfig(s.clients.loopback)
	config.Timeout = renewDeadline
	client, err := kubernetes.NewForConfig(clusterclient.ForCluster(config, logicalcluster.Cluster{Name: logicalcluster.SystemAdmin}))
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("reading the host name for the leader election: %w", err)
	}
	lease := metav1.ObjectMeta{Namespace: s.opts.LeaderElection.Namespace, Name: s.opts.LeaderElection.Name}
	identity := host + "_" + string(uuid.NewUUID())
	logger := klog.FromContext(ctx).WithValues(decisionlog.Lease, klog.KObj(&lease), decisionlog.Identity, identity)
	e := &election{client: client, namespace: lease.Namespace, ending: make(chan struct{}), ended: make(chan struct{})}
	e.elector, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: lease.Name,
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: lease, Client: client.CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				e.term.Lock()
				defer e.term.Unlock()
				if ctx.Err() == nil {
					logger.Info("Became leader, starting controllers")
					lead(ctx)
				}
			},
			OnStoppedLeading: func() { logger.Info("Lost leadership") },
		},
	})
	return e, err
}

// run takes part in the election, after ready has returned nil, until ctx ends or leave is called. It returns when lead has returned, and
// must be called once.
func (e *election) run(ctx context.Context, ready func(context.Context) error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-e.ending:
			cancel()
		case <-ctx.Done():
		}
	}()
	if ready(ctx) == nil {
		e.ensureNamespace(ctx)
		for ctx.Err() == nil {
			e.elector.Run(ctx)
		}
	}
	close(e.ended)
	e.term.Lock()
	defer e.term.Unlock()
}

// leave ends run, and returns when another process can lead. It must be called once, while this process still serves: it sends the request
// that releases the lease to itself.
func (e *election) leave() {
	close(e.ending)
	<-e.ended
}

// ensureNamespace creates the namespace of the lease, and retries until ctx ends.
func (e *election) ensureNamespace(ctx context.Context) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: e.namespace}}
	_ = wait.PollUntilContextCancel(ctx, retryPeriod, true, func(ctx context.Context) (bool, error) {
		_, err := e.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			klog.FromContext(ctx).Error(err, "Creating the namespace of the lease failed, will retry", decisionlog.Namespace, e.namespace)
			return false, nil
		}
		return true, nil
	})
}
