package rootshard

import (
	"context"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

func kcpWithExternalEtcdIsCreatedAndDeleted(t *testing.T) {
	n, client := stateless(t)
	t.Run("its pods outlive their StatefulSet", func(t *testing.T) { n.podsOutliveStatefulSet(t, client) })
	guest := n.guest(t, "guest")
	n.Kubectl(t, "delete", "kubeconfig", "guest", "--timeout=2m")
	n.forbids(t, guest)
	n.Kubectl(t, "wait", "--for=delete", "secret/guest-kubeconfig", "secret/kubeconfig-cert-guest", "--timeout=1m")

	n.Kubectl(t, "delete", "statefulset", "etcd")
	n.Kubectl(t, "wait", "--for=delete", "pod/etcd-0", "--timeout=2m")
	n.Kubectl(t, "delete", "kubeconfig", "admin", "--timeout=1m")
	n.Manifest(t, "kcp.yaml") // with the same Kubeconfig, while the roles of the former one are still bound
	n.deleted(t)
}

// forbids waits until kcp refuses a kubeconfig whose Kubeconfig object is deleted.
func (n *installed) forbids(t *testing.T, kubeconfig string) {
	t.Helper()
	kcptest.Eventually(t, "kcp refuses the certificate", func(ctx context.Context) error {
		_, err := n.Client(t, kubeconfig, "root").CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
		if !apierrors.IsForbidden(err) {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
}

// deleted deletes the namespace, which must succeed without a responding kcp, and possibly without the operator.
func (n *installed) deleted(t *testing.T) {
	t.Helper()
	n.Kubectl(t, "delete", "namespace", n.Name, "--timeout=5m")
}
