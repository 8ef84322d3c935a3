// Package certificates signs approved CertificateSigningRequests of one signer, kubernetes.io/kube-apiserver-client, and removes the
// requests of all signers that are not needed any more, in every logical cluster. It approves none.
package certificates

import (
	"context"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
)

// interval is how often all requests are looked at. They live for an hour at least.
const interval = 10 * time.Minute

// Cleaner is the controller. Its keys are requests that are due.
type Cleaner struct {
	*runner.Controller
	set   *informers.Set
	kube  kubernetes.Interface
	clock clock.WithTicker
}

// New returns the controller. kube reaches the cluster in each call's context.
func New(set *informers.Set, kube kubernetes.Interface, clock clock.WithTicker) *Cleaner {
	c := &Cleaner{set: set, kube: kube, clock: clock}
	c.Controller = runner.New("certificatesigningrequest-cleaner", 2, c.reconcile)
	return c
}

// Run works until ctx ends. One timer serves all requests: a queue of their ends would remember those that are long gone.
func (c *Cleaner) Run(ctx context.Context) {
	ticker := c.clock.NewTicker(interval)
	defer ticker.Stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c.enqueueDue()
			select {
			case <-ctx.Done():
				return
			case <-ticker.C():
			}
		}
	}()
	c.Controller.Run(ctx)
	<-done
}

func (c *Cleaner) enqueueDue() {
	now := c.clock.Now()
	for _, obj := range c.set.CertificateSigningRequests.Indexer().List() {
		if reasonToRemove(obj.(*certificatesv1.CertificateSigningRequest), now) == "" {
			continue
		}
		if key, err := informers.KeyOf(obj); err == nil {
			c.Enqueue(key)
		}
	}
}

func (c *Cleaner) reconcile(ctx context.Context, key informers.Key) error {
	csr, err := c.set.CertificateSigningRequests.Get(key.Cluster, "", key.Name)
	if err != nil {
		return runner.IgnoreNotFound(err)
	}
	reason := reasonToRemove(csr, c.clock.Now())
	if reason == "" {
		return nil
	}
	// What changed since the informer saw it is looked at again with the next tick.
	unchanged := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &csr.UID, ResourceVersion: &csr.ResourceVersion}}
	err = c.kube.CertificatesV1().CertificateSigningRequests().Delete(ctx, csr.Name, unchanged)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err == nil {
		klog.FromContext(ctx).V(2).Info("removed a certificate signing request", "key", key.String(), "reason", reason)
	}
	return err
}
