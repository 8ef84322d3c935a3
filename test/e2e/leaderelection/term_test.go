package leaderelection

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// hold writes a holder into the lease, as another process would.
func hold(t *testing.T, server *kcptest.Server, identity string) {
	t.Helper()
	now := metav1.NowMicro().UTC().Format(metav1.RFC3339Micro)
	patch := fmt.Appendf(nil, `{"spec":{"holderIdentity":%q,"leaseDurationSeconds":3600,"renewTime":%q,"acquireTime":%q}}`, identity, now, now)
	leases := server.Named("system:admin").Kube(t, kcptest.Masters).CoordinationV1().Leases("kube-system")
	if _, err := leases.Patch(kcptest.Context(t), "kcp-controllers", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestProcessWithoutLeaseServesRequestsAndCanBecomeLeaderAgain(t *testing.T) {
	server := start(t, "--enable-leader-election")
	kcptest.Eventually(t, "the process is the leader", func(context.Context) error {
		if !leads(t, server) {
			return fmt.Errorf("it is not the leader")
		}
		return nil
	})
	before := server.Cluster(t)
	hold(t, server, "another-process")
	kcptest.Eventually(t, "the process is not the leader", func(context.Context) error {
		if leads(t, server) {
			return fmt.Errorf("it is the leader")
		}
		return nil
	})
	before.Kubectl(t, "create", "configmap", "served")
	waiting := server.Named("waiting")
	logicalClusters := waiting.Dynamic(t, kcptest.Masters).Resource(kcptest.LogicalClusters)
	_, err := logicalClusters.Create(kcptest.Context(t), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "core.kcp.io/v1alpha1", "kind": "LogicalCluster", "metadata": map[string]any{"name": "cluster"},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	phase := func(ctx context.Context) string {
		lc, err := logicalClusters.Get(ctx, "cluster", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		phase, _, _ := unstructured.NestedString(lc.Object, "status", "phase")
		return phase
	}
	for range 50 { // running controllers would need a few milliseconds
		before.Kube(t, kcptest.Masters).CoreV1().Namespaces().Get(kcptest.Context(t), "default", metav1.GetOptions{})
		if found := phase(kcptest.Context(t)); found == "Ready" {
			t.Fatal("controllers run in a process that is not the leader")
		}
	}
	hold(t, server, "")
	kcptest.Eventually(t, "the controllers run again", func(ctx context.Context) error {
		if found := phase(ctx); found != "Ready" {
			return fmt.Errorf("the new cluster has phase %q", found)
		}
		_, err := waiting.Kube(t, kcptest.Masters).CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	if err := server.Stop(); err != nil {
		t.Error(err)
	}
}
