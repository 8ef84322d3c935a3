// Package certificates has two controllers of CertificateSigningRequests, over all logical clusters. One signs approved requests of the
// signer kubernetes.io/kube-apiserver-client, the other deletes requests of all signers that are not needed any more. Neither approves any.
package certificates

import (
	"context"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/process/decisionlog"
)

// interval is how often the cleaner checks all requests. They live for an hour at least.
const interval = 10 * time.Minute

// Authority signs a request in a logical cluster, or returns a clientcertificates.Invalid if the request can never be signed.
type Authority interface {
	Sign(ctx context.Context, lc *corev1alpha1.LogicalCluster, request *certificatesv1.CertificateSigningRequest) ([]byte, error)
}

// Inputs of both controllers. The client reaches the cluster in each call's context.
type Inputs struct {
	Set  *informers.Set
	Kube kubernetes.Interface
	// Authority is what the signer signs with.
	Authority Authority
	// Clock is what the cleaner reads the time from.
	Clock clock.WithTicker
}

type cleaner struct {
	Inputs
	controller *runner.Controller
}

// NewCleaner returns the controller that deletes requests. Its keys are requests that are due. One timer serves all requests: a queue of
// their due times would keep requests that were deleted long ago.
func NewCleaner(in Inputs) *runner.Controller { return newCleaner(in).controller }

func newCleaner(in Inputs) *cleaner {
	c := &cleaner{Inputs: in}
	c.controller = runner.New("certificatesigningrequest-cleaner", 2, c.reconcile)
	c.controller.RunEvery(in.Clock, interval, c.enqueueDue)
	return c
}

func (c *cleaner) enqueueDue() {
	now := c.Clock.Now()
	for _, obj := range c.Set.CertificateSigningRequests.Indexer().List() {
		if reasonToRemove(obj.(*certificatesv1.CertificateSigningRequest), now) == "" {
			continue
		}
		if key, err := informers.KeyOf(obj); err == nil {
			c.controller.Enqueue(key)
		}
	}
}

func (c *cleaner) reconcile(ctx context.Context, key informers.Key) error {
	csr, err := c.Set.CertificateSigningRequests.Get(key.Cluster, "", key.Name)
	if err != nil {
		return runner.IgnoreNotFound(err)
	}
	reason := reasonToRemove(csr, c.Clock.Now())
	if reason == "" {
		return nil
	}
	// A request that has changed since the informer saw it is checked again at the next interval.
	unchanged := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &csr.UID, ResourceVersion: &csr.ResourceVersion}}
	err = c.Kube.CertificatesV1().CertificateSigningRequests().Delete(ctx, csr.Name, unchanged)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err == nil {
		decisionlog.ForChange(ctx, key.Cluster).Info("Removed a certificate signing request", decisionlog.Cluster, key.Cluster,
			decisionlog.Name, key.Name, decisionlog.Reason, reason)
	}
	return err
}
