package migration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

var rootShard = peers.Identity{Kind: peers.Shard, Name: peers.Root}

// newHoldings returns the Holdings of a shard that has the Workspace of the example, and LogicalClusters.
func newHoldings(t *testing.T, name string, ws *tenancyv1alpha1.Workspace, clusters ...*corev1alpha1.LogicalCluster) *Holdings {
	t.Helper()
	p, _ := newParents(t, name, ws, nil)
	p.OwnerShard = func(context.Context, *corev1alpha1.LogicalCluster, bool) (string, error) {
		return "north", errors.New("no route")
	}
	objects := objecttest.New(t)
	for _, lc := range clusters {
		objects.Show(lc)
	}
	for _, shard := range []string{name, "down"} {
		objects.Show(objecttest.In("root", &corev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: shard}}))
	}
	return &Holdings{Shard: name, Set: objects.Set, Parents: p, Path: func(c logicalcluster.Name) string { return "root:" + string(c) }}
}

func TestAShardListsWhatItHoldsForTheRootShard(t *testing.T) {
	selecting := team("west")
	selecting.Spec.Location = &tenancyv1alpha1.WorkspaceLocation{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"region": "eu"}}}
	home, system, deleted, elsewhere := logicalCluster("home"), logicalCluster("a"), logicalCluster("deleted"), logicalCluster("elsewhere")
	home.Spec.Owner.Cluster, home.Annotations[tenancyv1alpha1.OwnerShardAnnotation] = string(logicalcluster.Homes), "root"
	system.Spec.Owner = nil
	deleted.DeletionTimestamp, deleted.Finalizers = &metav1.Time{}, []string{"keep"}
	elsewhere.Annotations[tenancyv1alpha1.OwnerShardAnnotation] = "north"
	h := newHoldings(t, "west", selecting, home, logicalCluster(moving), system, deleted, elsewhere)
	want := []corev1alpha1.ShardLogicalCluster{
		{Name: "a", Path: "root:a", Stays: "the logical cluster has no Workspace"},
		{Name: "deleted", Path: "root:deleted", Stays: "the logical cluster is being deleted", Deleting: true},
		{Name: "elsewhere", Path: "root:elsewhere", Stays: "the shard of its Workspace is not known: no route"},
		{Name: "home", Path: "root:home", Stays: "the shard of its Workspace is not known: no route"},
		{Name: string(moving), Path: "root:" + string(moving), Selector: "region=eu"},
	}
	byName := func(a, b corev1alpha1.ShardLogicalCluster) int { return strings.Compare(a.Name, b.Name) }
	slices.SortFunc(want, byName)
	var got []corev1alpha1.ShardLogicalCluster
	for in := (page{Limit: 2}); ; {
		out, err := h.Of(t.Context(), "west", in)
		if err != nil || out.Total != 5 || len(out.Items) > 2 {
			t.Fatal(out, err)
		}
		got = append(got, out.Items...)
		if in.After = out.Continue; in.After == "" {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	for _, caller := range []peers.Identity{east, {Kind: peers.Proxy, Name: "proxy-1"}} {
		if _, err := h.list(t.Context(), caller, page{Limit: 1}); !apierrors.IsForbidden(err) {
			t.Errorf("%s lists what the shard holds: %v", caller, err)
		}
	}
}

func TestOnlyTheHolderReadsWhereAWorkspaceMayBe(t *testing.T) {
	h := newHoldings(t, "west", team("east"))
	other := ours
	other.UID = "former"
	out, err := h.selectors(t.Context(), east, selectorsQuestion{Items: []owned{ours, other}})
	if err != nil || out.Items[0].Error != "" || !strings.Contains(out.Items[1].Error, "is not the Workspace of logical cluster") {
		t.Errorf("the holder gets %+v, %v", out, err)
	}
	out, err = h.selectors(t.Context(), rootShard, selectorsQuestion{Items: []owned{ours}})
	if err != nil || !strings.Contains(out.Items[0].Error, "on another shard") {
		t.Errorf("another shard gets %+v, %v", out, err)
	}
	if _, err := h.selectors(t.Context(), east, selectorsQuestion{Items: make([]owned, maxHoldings+1)}); !apierrors.IsBadRequest(err) {
		t.Errorf("too many: %v", err)
	}
}

func TestHoldingsAreASubresourceOfTheShardsInRoot(t *testing.T) {
	h := newHoldings(t, "west", team("west"), logicalCluster(moving))
	clients, err := peers.NewClients(peers.Config{Clock: clock.RealClock{}, TLS: rest.TLSClientConfig{Insecure: true},
		URL: func(string) (string, bool) { return "", false }})
	if err != nil {
		t.Fatal(err)
	}
	h.Clients = clients
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	served := h.WithHoldings(next, scheme.Codecs)
	for _, c := range []struct {
		what, cluster, verb, name, subresource, query string
		code                                          int
	}{
		{"a list", "root", "get", "west", "logicalclusters", "limit=1", http.StatusOK},
		{"another cluster", "tenant", "get", "west", "logicalclusters", "", http.StatusTeapot},
		{"another subresource", "root", "get", "west", "status", "", http.StatusTeapot},
		{"a write", "root", "update", "west", "logicalclusters", "", http.StatusMethodNotAllowed},
		{"a shard that does not exist", "root", "get", "absent", "logicalclusters", "", http.StatusNotFound},
		{"a shard that does not respond", "root", "get", "down", "logicalclusters", "", http.StatusServiceUnavailable},
		{"a wrong limit", "root", "get", "west", "logicalclusters", "limit=all", http.StatusBadRequest},
	} {
		t.Run(c.what, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/?"+c.query, nil)
			ctx := request.WithRequestInfo(in(logicalcluster.Name(c.cluster)), &request.RequestInfo{IsResourceRequest: true, Verb: c.verb,
				APIGroup: "core.kcp.io", APIVersion: "v1alpha1", Resource: "shards", Subresource: c.subresource, Name: c.name})
			w := httptest.NewRecorder()
			served.ServeHTTP(w, r.WithContext(ctx))
			if w.Code != c.code || c.code == http.StatusOK && !strings.Contains(w.Body.String(), string(moving)) {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
			if delay := w.Header().Get("Retry-After"); c.code == http.StatusServiceUnavailable && delay == "" {
				t.Errorf("got %s without Retry-After", w.Body)
			}
		})
	}
}

func TestPagesOfNamesAreCompleteAndInOrder(t *testing.T) {
	all := []logicalcluster.Name{"e", "b", "a", "d", "c"}
	for limit, want := range map[int]string{
		1: "[a][b][c][d][e]", 2: "[a b][c d][e]", 4: "[a b c d][e]", 5: "[a b c d e]", 6: "[a b c d e]",
	} {
		got, after := "", logicalcluster.Name("")
		for more := true; more; {
			var page []logicalcluster.Name
			var total int64
			if page, total, more = firstAfter(slices.Values(all), after, limit); total != int64(len(all)) {
				t.Fatalf("%d names, want %d", total, len(all))
			}
			got += fmt.Sprint(page)
			after = page[len(page)-1]
		}
		if got != want {
			t.Errorf("limit %d: got %s, want %s", limit, got, want)
		}
	}
	if page, _, more := firstAfter(slices.Values(all), "e", 2); len(page) != 0 || more {
		t.Errorf("after the last name: got %v, more: %t", page, more)
	}
}
