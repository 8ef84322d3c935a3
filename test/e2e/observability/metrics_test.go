package observability

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// get sends a request to a path outside of logical clusters.
func get(t *testing.T, user kcptest.User, path string) (int, []byte) {
	t.Helper()
	return server.Named("root").Raw(t, user, http.MethodGet, path, nil, "")
}

// scrape returns the values of all series, by name and labels.
func scrape(t *testing.T) map[string]float64 {
	t.Helper()
	code, body := get(t, kcptest.Masters, "/metrics")
	if code != http.StatusOK {
		t.Fatalf("/metrics returned %d: %.300s", code, body)
	}
	series := map[string]float64{}
	lines := bufio.NewScanner(bytes.NewReader(body))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "#") {
			continue
		}
		name, value, _ := strings.Cut(line, "} ")
		if !strings.HasSuffix(name, "}") && strings.Contains(name, "{") {
			name += "}"
		} else {
			name, value, _ = strings.Cut(line, " ")
		}
		number, err := strconv.ParseFloat(strings.Fields(value)[0], 64)
		if err != nil {
			t.Fatalf("the line %q: %v", line, err)
		}
		series[name] = number
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return series
}

func clustersIn(phase corev1alpha1.LogicalClusterPhase) string {
	return fmt.Sprintf(`kcp_logicalcluster_count{phase=%q,shard="root"}`, phase)
}

// scrapeAtRest returns the metrics when no cluster is changing its phase.
func scrapeAtRest(t *testing.T) map[string]float64 {
	t.Helper()
	var found map[string]float64
	kcptest.Eventually(t, "every cluster is ready", func(context.Context) error {
		found = scrape(t)
		for _, phase := range []corev1alpha1.LogicalClusterPhase{
			corev1alpha1.LogicalClusterPhaseScheduling, corev1alpha1.LogicalClusterPhaseInitializing, corev1alpha1.LogicalClusterPhaseDeleting,
		} {
			if n := found[clustersIn(phase)]; n != 0 {
				return fmt.Errorf("%v clusters are %s", n, phase)
			}
		}
		if found[clustersIn(corev1alpha1.LogicalClusterPhaseReady)] == 0 {
			return fmt.Errorf("no cluster is ready")
		}
		return nil
	})
	return found
}

// wantCounts waits until the numbers of clusters in phases have changed by these amounts since before.
func wantCounts(t *testing.T, before map[string]float64, changes map[corev1alpha1.LogicalClusterPhase]float64) {
	t.Helper()
	kcptest.Eventually(t, fmt.Sprintf("the counts changed by %v", changes), func(context.Context) error {
		after := scrape(t)
		got := map[corev1alpha1.LogicalClusterPhase]float64{}
		for _, phase := range []corev1alpha1.LogicalClusterPhase{
			corev1alpha1.LogicalClusterPhaseScheduling, corev1alpha1.LogicalClusterPhaseInitializing, corev1alpha1.LogicalClusterPhaseReady,
			corev1alpha1.LogicalClusterPhaseUnavailable, corev1alpha1.LogicalClusterPhaseInactive, corev1alpha1.LogicalClusterPhaseTerminating,
			corev1alpha1.LogicalClusterPhaseDeleting,
		} {
			value, ok := after[clustersIn(phase)]
			if !ok {
				return fmt.Errorf("missing series %s", clustersIn(phase))
			}
			if change := value - before[clustersIn(phase)]; change != 0 {
				got[phase] = change
			}
		}
		if !maps.Equal(got, changes) {
			return fmt.Errorf("got changes %v", got)
		}
		return nil
	})
}

// Tests that count clusters do not run in parallel with others.

func TestLogicalClustersAreCountedByPhase(t *testing.T) {
	const ready, inactive = corev1alpha1.LogicalClusterPhaseReady, corev1alpha1.LogicalClusterPhaseInactive
	type changes = map[corev1alpha1.LogicalClusterPhase]float64
	ctx := kcptest.Context(t)
	before := scrapeAtRest(t)
	first, _ := server.Cluster(t), server.Cluster(t)
	wantCounts(t, before, changes{ready: 2})
	logicalClusters := first.Dynamic(t, kcptest.Masters).Resource(kcptest.LogicalClusters)
	mark := []byte(`{"metadata":{"annotations":{"core.kcp.io/inactive":"true"}}}`)
	if _, err := logicalClusters.Patch(ctx, "cluster", types.MergePatchType, mark, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	wantCounts(t, before, changes{ready: 1, inactive: 1})
	if err := logicalClusters.Delete(ctx, "cluster", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	wantCounts(t, before, changes{ready: 1})
}

func TestNumberOfSeriesDoesNotGrowWithClusters(t *testing.T) {
	const clusters, parallel = 300, 10
	for range 3 {
		server.Cluster(t) // the first cluster creates new series
	}
	before := scrapeAtRest(t)
	names := make(chan string, clusters)
	var creators sync.WaitGroup
	for range parallel {
		creators.Go(func() {
			for range clusters / parallel {
				names <- server.Cluster(t).Name
			}
		})
	}
	creators.Wait()
	close(names)
	if t.Failed() {
		return
	}
	wantCounts(t, before, map[corev1alpha1.LogicalClusterPhase]float64{corev1alpha1.LogicalClusterPhaseReady: clusters})
	after := scrape(t)
	// A conflict, a retry or the first bookmark of a resource may be counted for the first time. One series for each cluster would add at
	// least 300.
	var grown []string
	for series := range after {
		if _, known := before[series]; !known && !strings.Contains(series, "_bucket{") {
			grown = append(grown, series)
		}
	}
	t.Logf("%d series with %d more clusters; %d new series other than histograms: %q", len(after), clusters, len(grown), grown)
	if len(grown) >= clusters/2 {
		t.Errorf("got %d new series", len(grown))
	}
	for name := range names {
		for series := range after {
			if strings.Contains(series, name) {
				t.Fatalf("a series contains the name of a cluster: %s", series)
			}
		}
	}
}

func TestMetricsRequirePermissionInRoot(t *testing.T) {
	t.Parallel()
	for _, user := range []kcptest.User{kcptest.Anonymous, kcptest.Alice, kcptest.Bob} {
		if code, body := get(t, user, "/metrics"); code != http.StatusForbidden || bytes.Contains(body, []byte("kcp_logicalcluster_count")) {
			t.Errorf("%s: got %d", user.Name, code)
		}
	}
	if code, _ := get(t, kcptest.User{Name: "forger", Token: "forged"}, "/metrics"); code != http.StatusUnauthorized {
		t.Errorf("a forged token: got %d", code)
	}
	elsewhere := server.Cluster(t)
	mayScrape(t, elsewhere, kcptest.Alice)
	mayScrape(t, server.Named("root"), kcptest.Bob)
	kcptest.Eventually(t, "a user with permission can read the metrics", func(context.Context) error {
		if code, _ := get(t, kcptest.Bob, "/metrics"); code != http.StatusOK {
			return fmt.Errorf("got %d", code)
		}
		return nil
	})
	// The earlier binding is known by now, too.
	if code, _ := get(t, kcptest.Alice, "/metrics"); code != http.StatusForbidden {
		t.Errorf("with permission in a cluster other than root: got %d", code)
	}
	for _, path := range []string{"/clusters/root/metrics", "/clusters/" + elsewhere.Name + "/metrics", "/clusters/*/metrics"} {
		if code, _ := get(t, kcptest.Masters, path); code != http.StatusNotImplemented {
			t.Errorf("%s returned %d", path, code)
		}
	}
}

// mayScrape binds a user to the role that permits reading the metrics.
func mayScrape(t *testing.T, cluster *kcptest.Cluster, user kcptest.User) {
	t.Helper()
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "scraper"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:kcp:metrics-reader"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user.Name}},
	}
	if _, err := cluster.Kube(t, kcptest.Masters).RbacV1().ClusterRoleBindings().Create(kcptest.Context(t), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestListsAreCountedAsInKubernetes(t *testing.T) {
	t.Parallel()
	const list = `apiserver_storage_list_total{group="",index="",resource="configmaps",storage="etcd"}`
	before := scrape(t)[list]
	cluster := server.Cluster(t)
	for range 3 {
		if _, err := cluster.Kube(t, kcptest.Masters).CoreV1().ConfigMaps("default").List(kcptest.Context(t), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if after := scrape(t)[list]; after < before+3 {
		t.Errorf("after three lists: got count %v, before %v", after, before)
	}
}

func TestMetricsOfDatabaseAndQueuesExist(t *testing.T) {
	t.Parallel()
	series := scrape(t)
	if size := series[`apiserver_storage_size_bytes{storage_cluster_id="etcd-0"}`]; size < 1000 {
		t.Errorf("got a database size of %v bytes", size)
	}
	for _, name := range []string{
		`workqueue_adds_total{name="logicalcluster"}`, `workqueue_adds_total{name="namespace"}`,
	} {
		if series[name] == 0 {
			t.Errorf("got %s = %v", name, series[name])
		}
	}
	found := map[string]bool{}
	for name := range series {
		metric, _, _ := strings.Cut(name, "{")
		found[metric] = true
	}
	for _, metric := range []string{
		"apiserver_request_total", "apiserver_request_duration_seconds_count", "etcd_request_duration_seconds_count", "rest_client_requests_total",
		"process_resident_memory_bytes", "go_goroutines", "kubernetes_build_info",
	} {
		if !found[metric] {
			t.Errorf("missing metric %s", metric)
		}
	}
}
