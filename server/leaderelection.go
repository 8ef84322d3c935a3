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
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Another process takes over this long after the leader was heard of last. A leader that cannot say that it is one stops
// its controllers much sooner.
const (
	leaseDuration = 60 * time.Second
	renewDeadline = 5 * time.Second
	retryPeriod   = 2 * time.Second
)

// election is the part of this process in choosing the one, of all that share an etcd, which runs the controllers.
type election struct {
	client    kubernetes.Interface
	namespace string
	elector   *leaderelection.LeaderElector
	term      sync.Mutex    // held while the controllers run: a term begins when the one before has ended
	ending    chan struct{} // closed when this process shall take no part any more
	ended     chan struct{} // closed when it does not, and has given up the lease
}

// newElection prepares to call lead while this process holds the lease of the options, with a context that ends when it
// does not any more.
func (s *server) newElection(ctx context.Context, lead func(context.Context)) (*election, error) {
	config := rest.CopyConfig(s.clients.loopback)
	config.Timeout = renewDeadline
	client, err := kubernetes.NewForConfig(clusterclient.ForCluster(config, logicalcluster.Cluster{Name: logicalcluster.SystemAdmin}))
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("name for the leader election: %w", err)
	}
	lease := metav1.ObjectMeta{Namespace: s.opts.LeaderElection.Namespace, Name: s.opts.LeaderElection.Name}
	identity := host + "_" + string(uuid.NewUUID())
	logger := klog.FromContext(ctx).WithValues("lease", klog.KObj(&lease), "identity", identity)
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
					logger.Info("leads, runs the controllers")
					lead(ctx)
				}
			},
			OnStoppedLeading: func() { logger.Info("does not lead") },
		},
	})
	return e, err
}

// run takes part until ctx ends or leave is called, and returns when what the leader does has stopped.
func (e *election) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-e.ending:
			cancel()
		case <-ctx.Done():
		}
	}()
	e.ensureNamespace(ctx)
	for ctx.Err() == nil {
		e.elector.Run(ctx)
	}
	close(e.ended)
	e.term.Lock()
	defer e.term.Unlock()
}

// leave ends run, and returns when another process can lead. It is called once, while this process still serves: the lease
// is given up by a request to itself.
func (e *election) leave() {
	close(e.ending)
	<-e.ended
}

// ensureNamespace makes the namespace of the lease, trying until ctx ends.
func (e *election) ensureNamespace(ctx context.Context) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: e.namespace}}
	_ = wait.PollUntilContextCancel(ctx, retryPeriod, true, func(ctx context.Context) (bool, error) {
		_, err := e.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			klog.FromContext(ctx).Error(err, "creating the namespace of the lease failed, will retry", "namespace", e.namespace)
			return false, nil
		}
		return true, nil
	})
}
