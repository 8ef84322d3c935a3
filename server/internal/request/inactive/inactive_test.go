package inactive

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/auth/authentication"
	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

func cluster(name, inactive string, phase corev1alpha1.LogicalClusterPhase) *corev1alpha1.LogicalCluster {
	annotations := map[string]string{logicalcluster.AnnotationKey: name}
	if inactive != "" {
		annotations[corev1alpha1.InactiveAnnotation] = inactive
	}
	return &corev1alpha1.LogicalCluster{
		ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.LogicalClusterName, Annotations: annotations},
		Status:     corev1alpha1.LogicalClusterStatus{Phase: phase},
	}
}

// clusters returns a lister that holds some LogicalClusters, and what changes them; a change is handled when it returns.
func clusters(t *testing.T, objs ...*corev1alpha1.LogicalCluster) (Lister, func(watch.EventType, *corev1alpha1.LogicalCluster)) {
	t.Helper()
	list := &corev1alpha1.LogicalClusterList{}
	for _, o := range objs {
		list.Items = append(list.Items, *o)
	}
	events := watch.NewFake()
	lw := &cache.ListWatch{
		ListWithContextFunc:  func(context.Context, metav1.ListOptions) (runtime.Object, error) { return list, nil },
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return events, nil },
	}
	i := informers.New(corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters"), &corev1alpha1.LogicalCluster{}, lw, nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); i.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	<-i.Synced()
	return Lister{Informer: i}, func(event watch.EventType, lc *corev1alpha1.LogicalCluster) {
		// The informer handles one event before it takes the next.
		events.Action(event, lc)
		events.Action(watch.Modified, cluster("barrier", "", ""))
		events.Action(watch.Modified, cluster("barrier", "", ""))
	}
}

func TestRequestsInInactiveClustersAreRefused(t *testing.T) {
	lister, _ := clusters(t, cluster("off", "true", "Inactive"), cluster("on", "", "Ready"), cluster("odd", "yes", "Ready"))
	const token = "token-of-the-server"
	served := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	own := func(r *http.Request) bool { return authorization.IsServer(r.Context()) }
	h := authentication.WithServer(WithRefusal(served, lister, own, scheme.Codecs.WithoutConversion()), token)
	named := func(name logicalcluster.Name) logicalcluster.Cluster { return logicalcluster.Cluster{Name: name} }
	for _, test := range []struct {
		name          string
		cluster       logicalcluster.Cluster
		path, bearing string
		served        bool
	}{
		{"inactive", named("off"), "/api/v1/namespaces", "", false},
		{"inactive, discovery", named("off"), "/apis", "", false},
		{"inactive, root", named("off"), "/", "", false},
		{"inactive, health", named("off"), "/readyz", "", false},
		{"inactive, token of a user", named("off"), "/api/v1/namespaces", "Bearer token-of-a-user", false},
		{"inactive, token without its scheme", named("off"), "/api/v1/namespaces", token, false},
		{"inactive, token and more", named("off"), "/api/v1/namespaces", "Bearer " + token + "x", false},
		{"inactive, OpenAPI", named("off"), "/openapi/v3/apis/apps/v1", "", true},
		{"inactive, a path with the prefix of OpenAPI", named("off"), "/openapiv3", "", false},
		{"inactive, the LogicalCluster", named("off"), "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster", "", true},
		{"inactive, its status", named("off"), "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster/status", "", true},
		{"inactive, LogicalClusters", named("off"), "/apis/core.kcp.io/v1alpha1/logicalclusters", "", true},
		{"inactive, a path with the prefix of LogicalClusters", named("off"), "/apis/core.kcp.io/v1alpha1/logicalclustersx", "", false},
		{"inactive, the server itself", named("off"), "/api/v1/namespaces", "Bearer " + token, true},
		{"active", named("on"), "/api/v1/namespaces", "", true},
		{"another value of the annotation", named("odd"), "/api/v1/namespaces", "", true},
		{"no such cluster", named("none"), "/api/v1/namespaces", "", true},
		{"all clusters", logicalcluster.Cluster{Wildcard: true}, "/api/v1/namespaces", "", true},
		{"no cluster", logicalcluster.Cluster{}, "/metrics", "", true},
	} {
		r := httptest.NewRequest(http.MethodGet, test.path, nil)
		if test.cluster != (logicalcluster.Cluster{}) {
			r = r.WithContext(logicalcluster.WithCluster(r.Context(), test.cluster))
		}
		if test.bearing != "" {
			r.Header.Set("Authorization", test.bearing)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if test.served {
			if w.Code != http.StatusNoContent {
				t.Errorf("%s: answered %d %s", test.name, w.Code, w.Body)
			}
			continue
		}
		var status metav1.Status
		if err := json.Unmarshal(w.Body.Bytes(), &status); err != nil {
			t.Errorf("%s: answered %d %s: %v", test.name, w.Code, w.Body, err)
		}
		if w.Code != http.StatusForbidden || status.Reason != metav1.StatusReasonForbidden || !strings.HasSuffix(status.Message, "logical cluster is marked inactive") {
			t.Errorf("%s: answered %d %v", test.name, w.Code, status)
		}
	}
}

// open starts a request that lasts until its context ends, and returns what is closed then.
func open(t *testing.T, h http.Handler, c logicalcluster.Cluster, userName string, info request.RequestInfo) <-chan struct{} {
	t.Helper()
	return openIn(t, t.Context(), h, c, userName, info)
}

// openIn is open for a request with the values of ctx.
func openIn(t *testing.T, ctx context.Context, h http.Handler, c logicalcluster.Cluster, userName string, info request.RequestInfo) <-chan struct{} {
	t.Helper()
	ctx = request.WithRequestInfo(logicalcluster.WithCluster(ctx, c), &info)
	ctx = request.WithUser(ctx, &user.DefaultInfo{Name: userName})
	r := httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx)
	running, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		h.ServeHTTP(httptest.NewRecorder(), r.WithContext(context.WithValue(r.Context(), startedKey{}, running)))
	}()
	<-running
	return done
}

type startedKey struct{}

var lasting = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
	close(r.Context().Value(startedKey{}).(chan struct{}))
	<-r.Context().Done()
})

func hasEnded(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

func mustEnd(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatalf("%s: the watch continues", what)
	}
}

var (
	watchSecrets         = request.RequestInfo{IsResourceRequest: true, Verb: "watch", APIVersion: "v1", Resource: "secrets"}
	listSecrets          = request.RequestInfo{IsResourceRequest: true, Verb: "list", APIVersion: "v1", Resource: "secrets"}
	watchLogicalClusters = request.RequestInfo{IsResourceRequest: true, Verb: "watch", APIGroup: "core.kcp.io", APIVersion: "v1alpha1", Resource: "logicalclusters"}
)

func TestWatchesEndWhenTheirClusterBecomesInactive(t *testing.T) {
	ours, theirs, all := logicalcluster.Cluster{Name: "ours"}, logicalcluster.Cluster{Name: "theirs"}, logicalcluster.Cluster{Wildcard: true}
	for _, change := range []struct {
		name     string
		event    watch.EventType
		to       *corev1alpha1.LogicalCluster
		ours, on bool // whether watches of this cluster, and of all clusters, end
	}{
		{"inactive", watch.Modified, cluster("ours", "true", "Ready"), true, true},
		{"deleting", watch.Modified, cluster("ours", "", "Deleting"), true, false},
		{"deleted", watch.Deleted, cluster("ours", "", "Ready"), true, false},
		{"another annotation value", watch.Modified, cluster("ours", "false", "Ready"), false, false},
	} {
		t.Run(change.name, func(t *testing.T) {
			lister, apply := clusters(t, cluster("ours", "", "Ready"), cluster("theirs", "", "Ready"))
			watches := NewWatches(lister)
			h := watches.WithEnd(lasting)
			// One of them is by a user who is called like the server.
			first, second := open(t, h, ours, "alice", watchSecrets), open(t, h, ours, user.APIServerUser, watchSecrets)
			wildcard := open(t, h, all, "admin", watchSecrets)
			others := map[string]<-chan struct{}{
				"of another cluster":     open(t, h, theirs, "alice", watchSecrets),
				"of the server":          openIn(t, authorization.AsServer(t.Context()), h, ours, user.APIServerUser, watchSecrets),
				"of the LogicalCluster":  open(t, h, ours, "alice", watchLogicalClusters),
				"that is only a request": open(t, h, ours, "alice", listSecrets),
			}
			apply(change.event, change.to)
			if change.ours {
				mustEnd(t, "first", first)
				mustEnd(t, "second", second)
			} else if hasEnded(first) || hasEnded(second) {
				t.Error("watches of the cluster have ended")
			}
			if change.on {
				mustEnd(t, "wildcard", wildcard)
			} else if hasEnded(wildcard) {
				t.Error("watches of all clusters have ended")
			}
			for name, done := range others {
				if hasEnded(done) {
					t.Errorf("the watch %s has ended", name)
				}
			}
		})
	}
}

func TestAWatchInAnInactiveClusterEndsImmediately(t *testing.T) {
	lister, _ := clusters(t, cluster("off", "true", "Inactive"))
	h := NewWatches(lister).WithEnd(lasting)
	mustEnd(t, "late", open(t, h, logicalcluster.Cluster{Name: "off"}, "alice", watchSecrets))
}

func TestEndedWatchesLeaveNothingInMemory(t *testing.T) {
	lister, apply := clusters(t, cluster("ours", "", "Ready"))
	watches := NewWatches(lister)
	h := watches.WithEnd(lasting)
	var all []<-chan struct{}
	for range 10 {
		all = append(all, open(t, h, logicalcluster.Cluster{Name: "ours"}, "alice", watchSecrets))
	}
	apply(watch.Modified, cluster("ours", "true", "Ready"))
	for _, done := range all {
		mustEnd(t, "one of ten", done)
	}
	if n := watches.open.Len(); n != 0 {
		t.Errorf("watches of %d clusters are in memory", n)
	}
}
