package objectlimit

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// limit sets the limit of a cluster.
func limit(t *testing.T, c *kcptest.Cluster, to string) {
	t.Helper()
	c.Kubectl(t, "annotate", "--overwrite", "logicalcluster", "cluster", "core.kcp.io/max-total-objects="+to)
}

// fill creates ConfigMaps concurrently until the cluster is full.
func fill(t *testing.T, client corev1client.ConfigMapInterface) {
	t.Helper()
	ctx := kcptest.Context(t)
	var failed atomic.Int64
	var clients sync.WaitGroup
	for n := range 8 {
		clients.Go(func() {
			for i := 0; ; i++ {
				_, err := client.Create(ctx, configMap(fmt.Sprintf("filler-%d-%d", n, i)), metav1.CreateOptions{})
				if err == nil && i < 1000 {
					continue
				}
				if !apierrors.IsForbidden(err) {
					failed.Add(1)
				}
				return
			}
		})
	}
	clients.Wait()
	if failed.Load() > 0 {
		t.Fatal("the cluster is not full")
	}
}

// derived are objects that every cluster shows without storing them.
var derived = sets.New("configmap/extension-apiserver-authentication", "role.rbac.authorization.k8s.io/extension-apiserver-authentication-reader",
	"clusterrole.rbac.authorization.k8s.io/admin", "clusterrole.rbac.authorization.k8s.io/cluster-admin",
	"clusterrole.rbac.authorization.k8s.io/edit", "clusterrole.rbac.authorization.k8s.io/view")

// held returns the number of stored objects of a cluster, as its owner can count them.
func held(t *testing.T, c *kcptest.Cluster) int {
	t.Helper()
	resources := strings.Fields(c.Kubectl(t, "api-resources", "--verbs=list", "--output=name"))
	var counted []string
	for _, r := range resources {
		if !strings.HasPrefix(r, "events") {
			counted = append(counted, r)
		}
	}
	shown := strings.Fields(c.Kubectl(t, "get", strings.Join(counted, ","), "--all-namespaces", "--output=name", "--ignore-not-found"))
	return len(slices.DeleteFunc(shown, derived.Has))
}

func wantFull(t *testing.T, err error) {
	t.Helper()
	kcptest.WantReason(t, err, metav1.StatusReasonForbidden)
	if err != nil && !strings.Contains(err.Error(), "core.kcp.io/max-total-objects") {
		t.Errorf("the error does not say what to do: %v", err)
	}
}

func TestObjectsOfClusterAreLimited(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	ours, theirs := server.Cluster(t), server.Cluster(t)
	client := ours.Kube(t, kcptest.Masters).CoreV1()
	configMaps := client.ConfigMaps("default")
	fill(t, configMaps)
	if n := held(t, ours); n != standard {
		t.Errorf("got %d objects, limit %d", n, standard)
	}
	_, err := configMaps.Create(ctx, configMap("x"), metav1.CreateOptions{})
	wantFull(t, err)
	_, err = configMaps.Create(ctx, configMap("x"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	wantFull(t, err)
	_, err = configMaps.Apply(ctx, corev1apply.ConfigMap("x", "default"), metav1.ApplyOptions{FieldManager: "test"})
	wantFull(t, err)
	_, err = ours.Dynamic(t, kcptest.Masters).Resource(kcptest.Workspaces).Create(ctx, kcptest.Workspace("x", "root", "universal"), metav1.CreateOptions{})
	wantFull(t, err)
	if _, err := theirs.Kube(t, kcptest.Masters).CoreV1().ConfigMaps("default").Create(ctx, configMap("x"), metav1.CreateOptions{}); err != nil {
		t.Errorf("another cluster: %v", err)
	}
	// The limit does not apply to the server itself, but to users who impersonate it.
	header := http.Header{"Content-Type": {"application/json"}, "Impersonate-User": {"system:apiserver"}, "Impersonate-Group": {"system:masters"}}
	code, body := ours.Raw(t, kcptest.Masters, http.MethodPost, "/clusters/"+ours.Name+"/api/v1/namespaces/default/configmaps", header, `{"metadata":{"name":"x"}}`)
	if code != http.StatusForbidden {
		t.Errorf("a user who impersonates the server: got %d %s", code, body)
	}

	// All other operations still work.
	event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "x"}, InvolvedObject: corev1.ObjectReference{Namespace: "default"}}
	if _, err := client.Events("default").Create(ctx, event, metav1.CreateOptions{}); err != nil {
		t.Errorf("an event: %v", err)
	}
	if _, err := configMaps.Patch(ctx, "filler-0-0", types.MergePatchType, []byte(`{"data":{"a":"b"}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("an update: %v", err)
	}
	ours.Kubectl(t, "auth", "can-i", "get", "configmaps")

	// Deletion makes room immediately, for every kind of creation and deletion.
	for _, name := range []string{"filler-0-0", "applied"} {
		if err := configMaps.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := configMaps.Apply(ctx, corev1apply.ConfigMap("applied", "default"), metav1.ApplyOptions{FieldManager: "test"}); err != nil {
			t.Errorf("after a deletion: %v", err)
		}
		_, err = configMaps.Create(ctx, configMap("x"), metav1.CreateOptions{})
		wantFull(t, err)
	}
	if err := configMaps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	fill(t, configMaps)
	kcptest.Eventually(t, "the cluster is full again", func(context.Context) error {
		if n := held(t, ours); n != standard {
			return fmt.Errorf("got %d objects", n)
		}
		return nil
	})
}

func TestLimitOfClusterCanBeChanged(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	small, free := server.Cluster(t), server.Cluster(t)
	for cluster, to := range map[*kcptest.Cluster]string{small: "20", free: "0"} {
		if _, err := cluster.Kube(t, kcptest.Masters).CoreV1().Namespaces().List(ctx, metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		limit(t, cluster, to)
	}
	kcptest.Eventually(t, "the limit applies", func(ctx context.Context) error {
		_, err := free.Kube(t, kcptest.Masters).CoreV1().ConfigMaps("default").Create(ctx, configMap("x-"+kcptest.Suffix()), metav1.CreateOptions{})
		return err
	})
	fill(t, small.Kube(t, kcptest.Masters).CoreV1().ConfigMaps("default"))
	if n := held(t, small); n != 20 {
		t.Errorf("a cluster with a limit of 20 objects has %d", n)
	}
	for n := range 2 * standard {
		if _, err := free.Kube(t, kcptest.Masters).CoreV1().ConfigMaps("default").Create(ctx, configMap(fmt.Sprintf("free-%d", n)), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFullWorkspaceCanBeEnteredAndDeleted(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	org := server.Organization(t, kcptest.Alice)
	tiny := org.CreateWorkspace(t, kcptest.Alice, kcptest.Workspace("tiny", "", ""))
	limit(t, tiny, "1") // fewer than the default objects
	if _, err := tiny.Kube(t, kcptest.Alice).CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{}); err != nil {
		t.Errorf("a default object is missing: %v", err)
	}
	kcptest.Eventually(t, "the limit applies", func(ctx context.Context) error {
		_, err := tiny.Kube(t, kcptest.Alice).CoreV1().ConfigMaps("default").Create(ctx, configMap("x-"+kcptest.Suffix()), metav1.CreateOptions{})
		if !apierrors.IsForbidden(err) {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
	org.Kubectl(t, "delete", "workspace", "tiny")
}

func TestOnlyAdministratorsChangeLimits(t *testing.T) {
	t.Parallel()
	ctx := kcptest.Context(t)
	org := server.Organization(t, kcptest.Alice)
	patch := func(user kcptest.User, value string) error {
		_, err := org.Dynamic(t, user).Resource(kcptest.LogicalClusters).Patch(ctx, "cluster", types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"core.kcp.io/max-total-objects":`+value+`}}}`), metav1.PatchOptions{})
		return err
	}
	kcptest.WantReason(t, patch(kcptest.Alice, `"1000000"`), metav1.StatusReasonForbidden)
	kcptest.WantReason(t, patch(kcptest.Masters, `"many"`), metav1.StatusReasonInvalid)
	for _, value := range []string{`"30"`, `"-1"`} {
		if err := patch(kcptest.Masters, value); err != nil {
			t.Errorf("%s: %v", value, err)
		}
	}
	kcptest.WantReason(t, patch(kcptest.Alice, `null`), metav1.StatusReasonForbidden)
	if err := patch(kcptest.Masters, `null`); err != nil {
		t.Error(err)
	}
}

func TestMetricsListNearlyFullClusters(t *testing.T) {
	t.Parallel()
	full, other := server.Cluster(t), server.Cluster(t)
	shown := func(c *kcptest.Cluster, value int) string {
		return fmt.Sprintf("kcp_logicalcluster_object_count{cluster=%q,shard=\"root\"} %d\nkcp_logicalcluster_object_count_limit", c.Name, value)
	}
	metrics := func() string {
		code, body := server.Named("root").Raw(t, kcptest.Masters, http.MethodGet, "/metrics", nil, "")
		if code != http.StatusOK {
			t.Fatalf("/metrics answers %d", code)
		}
		var ours []string
		for _, line := range strings.Split(string(body), "\n") {
			if strings.Contains(line, full.Name) || strings.Contains(line, other.Name) {
				ours = append(ours, line)
			}
		}
		return strings.Join(ours, "\n")
	}
	other.Kubectl(t, "create", "configmap", "x")
	fill(t, full.Kube(t, kcptest.Masters).CoreV1().ConfigMaps("default"))
	if got := metrics(); !strings.Contains(got, shown(full, standard)) || strings.Contains(got, other.Name) {
		t.Errorf("got %s", got)
	}
	full.Kubectl(t, "delete", "configmap", "--all")
	if got := metrics(); got != "" {
		t.Errorf("got %s", got)
	}
}
