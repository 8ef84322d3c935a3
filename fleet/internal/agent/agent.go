// Package agent runs what the fleet assigns to one cluster. It connects to the fleet, nothing connects to it, and it changes nothing
// on the cluster that it has not created itself.
package agent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
)

const (
	// heartbeat is the time between two renewals of the Lease.
	heartbeat = 10 * time.Second
	// pause between two attempts. After failures it grows up to longestPause, and a half of it is added at random: an agent works again
	// within 15 seconds when the fleet returns. A failed attempt costs the fleet one connection.
	pause, longestPause = 2 * time.Second, 10 * time.Second
	// worked is the duration of a session, or of a tunnel, that was not a failure.
	worked = time.Minute
	// requests a second to the cluster, and as a burst.
	rateLimit, burst = 100, 200
)

// Options configure an agent.
type Options struct {
	// Cluster is the name of the Cluster.
	Cluster string
	// Kubeconfig is the file for the cluster. Empty means that the agent runs in it.
	Kubeconfig string
	// URL of the fleet, and the file with its certificate authority.
	URL, CAFile string
	// TokenFile has the bootstrap token, which is used until the agent has a certificate.
	TokenFile string
	// Holder is the identity of this process. Of several agents of one cluster, one works.
	Holder string
}

// Agent is a running agent.
type Agent struct {
	options Options
	// local is the cluster.
	local       kubernetes.Interface
	localAny    dynamic.Interface
	localConfig *rest.Config
	credential  *credential
}

// Run runs an agent until ctx ends.
func Run(ctx context.Context, options Options) error {
	config, err := clientcmd.BuildConfigFromFlags("", options.Kubeconfig)
	if err != nil {
		return fmt.Errorf("configuration of the cluster: %w", err)
	}
	config.QPS, config.Burst = rateLimit, burst
	config.WarningHandler = rest.NoWarnings{} // users see warnings of their workspace
	a := &Agent{options: options, localConfig: config}
	if a.local, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	if a.localAny, err = dynamic.NewForConfig(config); err != nil {
		return err
	}
	a.credential = &credential{agent: a}
	wait := newBackoff(pause, longestPause)
	for ctx.Err() == nil {
		begun := time.Now()
		if err := a.session(ctx); err != nil && ctx.Err() == nil {
			klog.Background().Info("The session with the fleet ended, starting another one", "error", err.Error())
		}
		sleep(ctx, wait.after(time.Since(begun) < worked))
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// backoff is the pause after an attempt: it doubles with each failure. A random part of up to a half is added: the connections of all
// agents break together when the fleet restarts, and they must not return together.
type backoff struct {
	first, longest, last time.Duration
	random               func() float64 // from 0 to 1
}

func newBackoff(first, longest time.Duration) *backoff {
	return &backoff{first: first, longest: longest, random: rand.Float64}
}

// after returns the pause after an attempt.
func (b *backoff) after(failed bool) time.Duration {
	if b.last = min(2*b.last, b.longest); !failed || b.last == 0 {
		b.last = b.first
	}
	return b.last + time.Duration(b.random()*float64(b.last)/2)
}

// session works with one certificate, until it must be renewed.
func (a *Agent) session(ctx context.Context) error {
	config, renewal, err := a.credential.obtain(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithDeadline(ctx, renewal)
	defer cancel()
	fleet, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	version, err := a.local.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("reading the version of the cluster: %w", err)
	}
	if _, err := a.updateCluster(ctx, fleet, func(s *v1alpha1.ClusterStatus) { s.Version = version.GitVersion }); err != nil {
		a.credential.refused = isRefused(err)
		return fmt.Errorf("reporting the version of the cluster: %w", err)
	}
	leaseClient, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	lock := &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: v1alpha1.Namespace, Name: a.options.Cluster}, Client: leaseClient.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: a.options.Holder},
	}
	failed := make(chan error, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, Name: a.options.Cluster, ReleaseOnCancel: true,
		LeaseDuration: 3 * heartbeat, RenewDeadline: 2 * heartbeat, RetryPeriod: heartbeat / 4,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				defer cancel()
				s := newSyncer(a, fleet)
				s.fleetConfig = config
				failed <- s.run(ctx)
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return err
	}
	elector.Run(ctx)
	select {
	case err := <-failed:
		return err
	default:
		return errors.New("another agent of the cluster works, or the fleet cannot be reached")
	}
}

// configuration returns a configuration of clients of the fleet, without credentials.
func (a *Agent) configuration() *rest.Config {
	return &rest.Config{
		Host: a.options.URL, TLSClientConfig: rest.TLSClientConfig{CAFile: a.options.CAFile}, QPS: rateLimit, Burst: burst, Timeout: 0,
		UserAgent: "kcp-fleet-agent",
	}
}

// fleetError is an error of a request to the fleet, and not of one to the cluster.
type fleetError struct{ error }

func (e fleetError) Unwrap() error { return e.error }

// updateCluster changes the status of the Cluster. Its errors are fleetErrors.
func (a *Agent) updateCluster(
	ctx context.Context,
	fleet dynamic.Interface,
	change func(*v1alpha1.ClusterStatus),
) (*v1alpha1.Cluster, error) {
	resource := fleet.Resource(v1alpha1.SchemeGroupVersion.WithResource("clusters"))
	cluster := &v1alpha1.Cluster{}
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		u, err := resource.Get(ctx, a.options.Cluster, metav1.GetOptions{})
		if err != nil {
			return err
		}
		*cluster = v1alpha1.Cluster{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, cluster); err != nil {
			return err
		}
		former := cluster.Status.DeepCopy()
		if change(&cluster.Status); equality.Semantic.DeepEqual(former, &cluster.Status) {
			return nil
		}
		if u.Object["status"], err = runtime.DefaultUnstructuredConverter.ToUnstructured(&cluster.Status); err != nil {
			return err
		}
		updated, err := resource.UpdateStatus(ctx, u, metav1.UpdateOptions{})
		if err != nil {
			return err
		}
		*cluster = v1alpha1.Cluster{}
		return runtime.DefaultUnstructuredConverter.FromUnstructured(updated.Object, cluster)
	})
	if err != nil {
		return nil, fleetError{err}
	}
	return cluster, nil
}

// token returns the bootstrap token.
func (a *Agent) token() (string, error) {
	text, err := os.ReadFile(a.options.TokenFile)
	if err != nil {
		return "", fmt.Errorf("bootstrap token: %w", err)
	}
	return string(text), nil
}
