// Package leaderelection tests several processes on one etcd: all serve, and one of them runs the controllers.
package leaderelection

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

func start(t *testing.T, flags ...string) *kcptest.Server {
	t.Helper()
	return kcptest.StartIn(t, t.TempDir(), flags...)
}

// leads reports whether the metrics of a server say that it is the leader.
func leads(t *testing.T, server *kcptest.Server) bool {
	t.Helper()
	code, body := server.Named("root").Raw(t, kcptest.Masters, http.MethodGet, "/metrics", nil, "")
	if code != http.StatusOK {
		t.Fatalf("/metrics returned %d", code)
	}
	return strings.Contains(string(body), `leader_election_master_status{name="kcp-controllers"} 1`)
}

func holder(ctx context.Context, t *testing.T, server *kcptest.Server) (string, error) {
	t.Helper()
	lease, err := server.Named("system:admin").Kube(t, kcptest.Masters).CoordinationV1().Leases("kube-system").Get(ctx, "kcp-controllers", metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		return "", fmt.Errorf("the lease has no holder")
	}
	if d := lease.Spec.LeaseDurationSeconds; d == nil || *d != 60 {
		t.Errorf("the lease has a duration of %v seconds", d)
	}
	return *lease.Spec.HolderIdentity, nil
}

// elsewhere returns the same cluster on another server with the same etcd.
func elsewhere(cluster *kcptest.Cluster, at *kcptest.Server) *kcptest.Cluster {
	return at.Named(cluster.Name)
}

func TestOneProcessRunsControllersAndAnotherTakesOver(t *testing.T) {
	port, err := kcptest.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	storage := start(t, "--run-controllers=false", fmt.Sprintf("--embedded-etcd-client-port=%d", port))
	flags := []string{fmt.Sprintf("--etcd-servers=http://127.0.0.1:%d", port), "--enable-leader-election"}
	first := start(t, flags...)
	var leader string
	kcptest.Eventually(t, "the first process is the leader", func(ctx context.Context) (err error) {
		if leader, err = holder(ctx, t, storage); err == nil && !leads(t, first) {
			err = fmt.Errorf("the leader is %s", leader)
		}
		return err
	})
	second := start(t, flags...)
	cluster := second.Cluster(t) // the controllers of the first process make it ready and create its namespaces
	due := dueRequest(t, elsewhere(cluster, storage))
	if leads(t, second) || leads(t, storage) {
		t.Error("both processes are leaders")
	}
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "the second process is the leader", func(ctx context.Context) error {
		now, err := holder(ctx, t, storage)
		if err == nil && (now == leader || !leads(t, second)) {
			err = fmt.Errorf("%s holds the lease", now)
		}
		return err
	})
	second.Cluster(t)
	kcptest.Eventually(t, "the controllers of the second process clean up", func(ctx context.Context) error {
		_, err := elsewhere(cluster, storage).Kube(t, kcptest.Masters).CertificatesV1().CertificateSigningRequests().Get(ctx, due, metav1.GetOptions{})
		return kcptest.Gone(err)
	})
	if err := second.Stop(); err != nil {
		t.Error(err)
	}
	if err := storage.Stop(); err != nil {
		t.Error(err)
	}
}

// dueRequest creates a CertificateSigningRequest with a denial in the past, which is due for deletion.
func dueRequest(t *testing.T, cluster *kcptest.Cluster) string {
	t.Helper()
	ctx := kcptest.Context(t)
	requests := cluster.Kube(t, kcptest.Masters).CertificatesV1().CertificateSigningRequests()
	csr, err := requests.Create(ctx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "due"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: request(t), SignerName: "example.com/signer", Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
		Type: certificatesv1.CertificateDenied, Status: corev1.ConditionTrue, Reason: "Test", LastUpdateTime: metav1.NewTime(time.Now().Add(-2 * time.Hour)),
	}}
	if _, err := requests.UpdateApproval(ctx, csr.Name, csr, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	return csr.Name
}
