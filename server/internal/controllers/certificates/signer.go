package certificates

import (
	"context"
	"errors"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/auth/clientcertificates"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
)

// reasonInvalid is the reason of the condition Failed, as in Kubernetes.
const reasonInvalid = "SignerValidationFailure"

// Authority signs a request in a logical cluster, or returns a clientcertificates.Invalid if that will never be possible.
type Authority interface {
	Sign(ctx context.Context, lc *corev1alpha1.LogicalCluster, request *certificatesv1.CertificateSigningRequest) ([]byte, error)
}

// NewSigner returns the controller that signs what is approved for the signer kubernetes.io/kube-apiserver-client. The queue lets
// clusters take turns, so a flood of requests delays those of its own cluster only.
func NewSigner(set *informers.Set, kube kubernetes.Interface, authority Authority) *runner.Controller {
	c := runner.New("certificatesigningrequest-signer", 1, func(ctx context.Context, key informers.Key) error {
		request, err := set.CertificateSigningRequests.Get(key.Cluster, "", key.Name)
		if err != nil || !isSigned(request) {
			return runner.IgnoreNotFound(err)
		}
		lc, err := set.LogicalClusters.Get(key.Cluster, "", corev1alpha1.LogicalClusterName)
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		request = request.DeepCopy()
		if err == nil && lc.UID != "" {
			request.Status.Certificate, err = authority.Sign(ctx, lc, request)
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
		_, err = kube.CertificatesV1().CertificateSigningRequests().UpdateStatus(ctx, request, metav1.UpdateOptions{})
		return runner.IgnoreNotFound(err)
	})
	c.Watch(set.CertificateSigningRequests.Informer)
	return c
}

// isSigned returns whether the server signs a request: it is approved, and was neither signed nor refused.
func isSigned(request *certificatesv1.CertificateSigningRequest) bool {
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
