package inactive

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// mark sets the annotation of a cluster to a JSON value, and waits until the cluster has the phase.
func mark(t *testing.T, cluster *kcptest.Cluster, value string, phase corev1alpha1.LogicalClusterPhase) {
	t.Helper()
	logicalClusters := cluster.Dynamic(t, kcptest.Masters).Resource(kcptest.LogicalClusters)
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, corev1alpha1.InactiveAnnotation, value)
	if _, err := logicalClusters.Patch(kcptest.Context(t), "cluster", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "the phase changes", func(ctx context.Context) error {
		lc, err := logicalClusters.Get(ctx, "cluster", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if found, _, _ := unstructured.NestedString(lc.Object, "status", "phase"); found != string(phase) {
			return fmt.Errorf("got phase %s", found)
		}
		return nil
	})
}

func TestInactiveClusterRefusesRequestsUntilActivated(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	cluster, neighbour := server.Cluster(t), server.Cluster(t)
	cluster.Kubectl(t, "create", "configmap", "kept")
	cluster.Grant(t, kcptest.Alice, "cluster-admin")
	mark(t, cluster, `"true"`, corev1alpha1.LogicalClusterPhaseInactive)
	for _, user := range []kcptest.User{kcptest.Masters, kcptest.Alice, kcptest.Bob, kcptest.Anonymous} {
		_, err := cluster.Kube(t, user).CoreV1().ConfigMaps("default").Get(ctx, "kept", metav1.GetOptions{})
		kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
		if !strings.Contains(err.Error(), "logical cluster is marked inactive") {
			t.Errorf("as %s: got %v", user.Name, err)
		}
	}
	below := "/clusters/" + cluster.Name
	for path, want := range map[string]int{
		"/api": http.StatusForbidden, "/apis": http.StatusForbidden, "/version": http.StatusForbidden, "/healthz": http.StatusForbidden,
		"/openapi/v3": http.StatusOK, "/openapi/v2": http.StatusOK,
		"/apis/core.kcp.io/v1alpha1/logicalclusters": http.StatusOK, "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster": http.StatusOK,
	} {
		if code, body := cluster.Raw(t, kcptest.Masters, http.MethodGet, below+path, nil, ""); code != want {
			t.Errorf("%s returned %d %.300s", path, code, body)
		}
	}
	// A user without permission to read the LogicalCluster while it is active does not get permission while it is inactive.
	if code, _ := cluster.Raw(t, kcptest.Bob, http.MethodGet, below+"/apis/core.kcp.io/v1alpha1/logicalclusters/cluster", nil, ""); code != http.StatusForbidden {
		t.Errorf("reading the LogicalCluster without permission: got %d", code)
	}
	neighbour.Kubectl(t, "create", "configmap", "served")
	mark(t, cluster, `null`, corev1alpha1.LogicalClusterPhaseReady)
	kcptest.Eventually(t, "the cluster is served again", func(ctx context.Context) error {
		_, err := cluster.Kube(t, kcptest.Alice).CoreV1().ConfigMaps("default").Get(ctx, "kept", metav1.GetOptions{})
		return err
	})
}

// follow starts a watch of ConfigMaps.
func follow(t *testing.T, cluster *kcptest.Cluster) watch.Interface {
	t.Helper()
	w, err := cluster.Kube(t, kcptest.Masters).CoreV1().ConfigMaps("").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w
}

// next returns the next event of an object of that name, or ok false when the watch ends.
func next(t *testing.T, w watch.Interface, name string) (ok bool) {
	t.Helper()
	deadline := time.After(kcptest.Timeout)
	for {
		select {
		case event, open := <-w.ResultChan():
			if !open {
				return false
			}
			if configMap, is := event.Object.(*corev1.ConfigMap); is && configMap.Name == name {
				return true
			}
		case <-deadline:
			t.Fatalf("timed out waiting for an event of %s or the end of the watch", name)
		}
	}
}

func TestWatchesEndWhenClusterBecomesInactive(t *testing.T) {
	// Not in parallel: watches of all clusters end as well.
	cluster, neighbour := server.Cluster(t), server.Cluster(t)
	ours, theirs, all := follow(t, cluster), follow(t, neighbour), follow(t, server.Named("*"))
	config := cluster.Config(kcptest.Masters)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:apiserver", Groups: []string{"system:masters"}}
	likeTheServer, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	impersonated, err := likeTheServer.CoreV1().ConfigMaps("").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(impersonated.Stop)
	cluster.Kubectl(t, "create", "configmap", "seen")
	for _, w := range []watch.Interface{ours, all} {
		if !next(t, w, "seen") {
			t.Fatal("a watch ended too early")
		}
	}
	mark(t, cluster, `"true"`, corev1alpha1.LogicalClusterPhaseInactive)
	if next(t, ours, "nothing") || next(t, all, "nothing") || next(t, impersonated, "nothing") {
		t.Error("a watch continues")
	}
	neighbour.Kubectl(t, "create", "configmap", "also-seen")
	if !next(t, theirs, "also-seen") {
		t.Error("the watch of another cluster ended")
	}
	_, err = cluster.Kube(t, kcptest.Masters).CoreV1().ConfigMaps("").Watch(kcptest.Context(t), metav1.ListOptions{})
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
}

func TestInactiveClusterCanBeDeleted(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	cluster := server.Cluster(t)
	cluster.Kubectl(t, "create", "namespace", "shop")
	cluster.Kubectl(t, "create", "configmap", "prices", "--namespace=shop")
	mark(t, cluster, `"true"`, corev1alpha1.LogicalClusterPhaseInactive)
	logicalClusters := cluster.Dynamic(t, kcptest.Masters).Resource(kcptest.LogicalClusters)
	if err := logicalClusters.Delete(ctx, "cluster", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.WaitUntilGone(t, logicalClusters, "cluster")
	left, err := server.Named("*").Kube(t, kcptest.Masters).CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range left.Items {
		if c.Annotations["kcp.io/cluster"] == cluster.Name {
			t.Errorf("ConfigMap %s/%s remains", c.Namespace, c.Name)
		}
	}
}

func TestOnlyReadyClustersBecomeInactive(t *testing.T) {
	t.Parallel()
	cluster := server.Cluster(t)
	cluster.Grant(t, kcptest.Alice, "cluster-admin")
	logicalClusters := cluster.Dynamic(t, kcptest.Alice).Resource(kcptest.LogicalClusters)
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"false"}}}`, corev1alpha1.InactiveAnnotation)
	if _, err := logicalClusters.Patch(kcptest.Context(t), "cluster", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Errorf("changing the annotation as the administrator of a Ready cluster: %v", err)
	}
	if code, _ := cluster.Raw(t, kcptest.Alice, http.MethodGet, "/clusters/"+cluster.Name+"/api", nil, ""); code != http.StatusOK {
		t.Errorf("a cluster with the annotation \"false\" returned %d", code)
	}
	mark(t, cluster, `"true"`, corev1alpha1.LogicalClusterPhaseInactive)
}
