package certificates

import (
	"context"
	"errors"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/auth/clientcertificates"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
)

// reasonInvalid is the reason of the condition Failed, as in Kubernetes.
const reasonInvalid = "SignerValidationFailure"

type signer struct{ Inputs }

// NewSigner returns the controller that signs requests. Its keys are requests. Its queue lets clusters take turns, so a flood of requests
// delays only requests of its own cluster.
func NewSigner(in Inputs) *runner.Controller {
	s := &signer{in}
	c := runner.New("certificatesigningrequest-signer", 1, s.reconcile)
	c.Watch(in.Set.CertificateSigningRequests.Informer)
	return c
}

func (s *signer) reconcile(ctx context.Context, key informers.Key) error {
	request, err := s.Set.CertificateSigningRequests.Get(key.Cluster, "", key.Name)
	if err != nil || !mustSign(request) {
		return runner.IgnoreNotFound(err)
	}
	lc, err := s.Set.LogicalClusters.Get(key.Cluster, "", corev1alpha1.LogicalClusterName)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	request = request.DeepCopy()
	if err == nil && lc.UID != "" {
		request.Status.Certificate, err = s.Authority.Sign(ctx, lc, request)
	} else {
		err = clientcertificates.Invalid{Reason: "certificates are signed in logical clusters of workspaces only"}
	}
	if invalid := (clientcertificates.Invalid{}); errors.As(err, &invalid) {
		request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, Reason: reasonInvalid, Message: invalid.Reason,
		})
	} else if err != nil {
		return err
	}
	_, err = s.Kube.CertificatesV1().CertificateSigningRequests().UpdateStatus(ctx, request, metav1.UpdateOptions{})
	return runner.IgnoreNotFound(err)
}

// mustSign reports whether the server signs a request: it is approved, and was neither signed nor refused.
func mustSign(request *certificatesv1.CertificateSigningRequest) bool {
	if request.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName || len(request.Status.Certificate) > 0 ||
		request.DeletionTimestamp != nil {
		return false
	}
	approved := false
	for _, condition := range request.Status.Conditions {
		switch condition.Type {
		case certificatesv1.CertificateApproved:
			approved = true
		case certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			return false
		}
	}
	return approved
}
