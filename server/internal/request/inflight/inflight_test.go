package inflight

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/process/fairqueue"
	"github.com/kcplane/kcp/server/internal/request/mount"
	"github.com/kcplane/kcp/server/logicalcluster"
)

func newLimits(requests, watches int, clusters ...*corev1alpha1.LogicalCluster) *Limits {
	lister := informers.Lister[*corev1alpha1.LogicalCluster]{
		Informer: informers.New(corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters"), &corev1alpha1.LogicalCluster{}, &cache.ListWatch{}, nil),
	}
	for _, lc := range clusters {
		if err := lister.Indexer().Add(lc); err != nil {
			panic(err)
		}
	}
	return New(Config{
		Requests: requests, Watches: watches, Serializer: scheme.Codecs, Clusters: lister, MaxBody: 3 << 20,
		LongRunning: func(_ *http.Request, info *request.RequestInfo) bool { return info.Verb == "watch" },
	})
}

func as(ctx context.Context, name string, groups ...string) context.Context {
	return request.WithUser(ctx, &user.DefaultInfo{Name: name, Groups: groups})
}

func requestOf(ctx context.Context, verb string) *http.Request {
	ctx = request.WithRequestInfo(ctx, &request.RequestInfo{Verb: verb, APIVersion: "v1"})
	return httptest.NewRequest(http.MethodGet, "/api", nil).WithContext(ctx)
}

func TestAClusterTakesNothingFromOthers(t *testing.T) {
	l := newLimits(2, 3)
	inside, end := make(chan struct{}), make(chan struct{})
	blocking := l.WithLimits(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		inside <- struct{}{}
		<-end
	}))
	answering := l.WithLimits(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	ours, theirs := as(logicalcluster.WithName(t.Context(), "ours"), "alice"), as(logicalcluster.WithName(t.Context(), "theirs"), "alice")
	var open sync.WaitGroup
	for verb, n := range map[string]int{"list": 2, "watch": 3} {
		for range n {
			open.Go(func() { blocking.ServeHTTP(httptest.NewRecorder(), requestOf(ours, verb)) })
			<-inside
		}
	}
	code := func(ctx context.Context, verb string) int {
		w := httptest.NewRecorder()
		answering.ServeHTTP(w, requestOf(ctx, verb))
		if w.Code == http.StatusTooManyRequests && (w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), "may have no more at a time")) {
			t.Errorf("it is refused by %v %s", w.Header(), w.Body)
		}
		return w.Code
	}
	for _, verb := range []string{"list", "create", "watch"} {
		for who, test := range map[string]struct {
			ctx  context.Context
			want int
		}{
			"ours": {ours, http.StatusTooManyRequests}, "another user": {as(ours, "bob"), http.StatusTooManyRequests}, "theirs": {theirs, http.StatusOK},
			"masters": {as(ours, "admin", user.SystemPrivilegedGroup), http.StatusOK}, "administrators": {as(ours, "admin", authorization.AdminGroup), http.StatusOK},
			"nowhere": {as(t.Context(), "alice"), http.StatusOK},
		} {
			if got := code(test.ctx, verb); got != test.want {
				t.Errorf("%s, %s: got %d, want %d", who, verb, got, test.want)
			}
		}
	}
	close(end)
	open.Wait()
	if got := code(ours, "list"); got != http.StatusOK {
		t.Errorf("when all have ended: got %d", got)
	}
}

// What fails is over, too.
func TestAPanicLeavesNoRequestOpen(t *testing.T) {
	l := newLimits(1, 1)
	h := l.WithLimits(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	func() {
		defer func() { _ = recover() }()
		h.ServeHTTP(httptest.NewRecorder(), requestOf(as(logicalcluster.WithName(t.Context(), "ours"), "alice"), "get"))
	}()
	w := httptest.NewRecorder()
	l.WithLimits(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, requestOf(as(logicalcluster.WithName(t.Context(), "ours"), "alice"), "get"))
	if w.Code != http.StatusOK {
		t.Errorf("the next one gets %d %s", w.Code, w.Body)
	}
}

func TestTheHolderOfARequest(t *testing.T) {
	root := logicalcluster.WithName(t.Context(), logicalcluster.Root)
	mounted, err := mount.Enter(httptest.NewRequest(http.MethodGet, "/api", nil), "root:org:m", informers.Key{Cluster: "org", Name: "m"}, "https://elsewhere")
	if err != nil {
		t.Fatal(err)
	}
	robot := request.WithUser(root, &user.DefaultInfo{Name: "system:serviceaccount:default:robot", Extra: map[string][]string{logicalcluster.UserExtraKey: {"theirs"}}})
	for what, test := range map[string]struct {
		ctx  context.Context
		want fairqueue.Holder
	}{
		"a cluster": {as(logicalcluster.WithName(t.Context(), "ours"), "alice"), fairqueue.Holder{Cluster: "ours"}}, "root": {as(root, "alice"), fairqueue.Holder{Cluster: "root", User: "alice"}},
		"a robot in root": {robot, fairqueue.Holder{Cluster: "theirs"}}, "a mount": {as(mounted, "alice"), fairqueue.Holder{Cluster: "org"}},
		"all clusters": {as(logicalcluster.WithWildcard(t.Context()), "alice"), fairqueue.Holder{User: "alice"}},
	} {
		if got, ok := holderOf(test.ctx); !ok || got != test.want {
			t.Errorf("%s: got %+v, %t", what, got, ok)
		}
	}
}

func made(name, parent string, by *corev1alpha1.UserInfo) *corev1alpha1.LogicalCluster {
	lc := &corev1alpha1.LogicalCluster{}
	lc.Name, lc.Annotations = corev1alpha1.LogicalClusterName, map[string]string{logicalcluster.AnnotationKey: name}
	if lc.Spec.CreatedBy = by; parent != "" {
		lc.Spec.Owner = &corev1alpha1.LogicalClusterOwner{Cluster: parent}
	}
	return lc
}

func TestThePlaceOfAClusterAmongAllTenants(t *testing.T) {
	alice, bob := &corev1alpha1.UserInfo{Username: "alice"}, &corev1alpha1.UserInfo{Username: "bob"}
	robotOf := func(cluster string) *corev1alpha1.UserInfo {
		return &corev1alpha1.UserInfo{Username: "system:serviceaccount:default:robot", Extra: map[string]corev1alpha1.ExtraValue{logicalcluster.UserExtraKey: {cluster}}}
	}
	a := accounts{newLimits(0, 0,
		made("root", "", nil), made("org", "root", &corev1alpha1.UserInfo{Username: "admin", Groups: []string{authorization.AdminGroup}}),
		made("team", "org", alice), made("deep", "team", bob), made("own1", "root", alice), made("own2", "root", alice), made("home", "", alice), made("toys", "home", alice),
		made("plain", "", nil), made("automated", "root", robotOf("root")), made("byrobot", "root", robotOf("own1")), made("byteam", "root", robotOf("team")),
		made("circle1", "circle2", robotOf("circle2")), made("circle2", "circle1", robotOf("circle1")),
	).config.Clusters}
	for cluster, want := range map[string]fairqueue.Place{
		"org": {Account: "cluster:org", Unit: "org", Owner: "cluster:org"}, "team": {Account: "cluster:org", Unit: "org", Owner: "user:alice"},
		"deep": {Account: "cluster:org", Unit: "org", Owner: "user:bob"}, "own1": {Account: "user:alice", Unit: "own1", Owner: "user:alice"},
		"own2": {Account: "user:alice", Unit: "own2", Owner: "user:alice"}, "home": {Account: "user:alice", Unit: "home", Owner: "user:alice"},
		"toys": {Account: "user:alice", Unit: "home", Owner: "user:alice"}, "plain": {Account: "cluster:plain", Unit: "plain", Owner: "cluster:plain"},
		"automated": {Account: "cluster:automated", Unit: "automated", Owner: "cluster:automated"},
		"byrobot":   {Account: "user:alice", Unit: "byrobot", Owner: "user:alice"}, "byteam": {Account: "cluster:org", Unit: "byteam", Owner: "cluster:org"},
		"none": {Account: "cluster:none", Unit: "none", Owner: "cluster:none"}, "system:admin": {Account: "cluster:system:admin", Unit: "system:admin", Owner: "cluster:system:admin"},
	} {
		if got := a.place(fairqueue.Holder{Cluster: cluster}); got != want {
			t.Errorf("%s: got %+v, want %+v", cluster, got, want)
		}
	}
	if got := a.place(fairqueue.Holder{Cluster: "root", User: "alice"}); got != (fairqueue.Place{Account: "user:alice", Unit: "root", Owner: "user:alice"}) {
		t.Errorf("a user of root: got %+v", got)
	}
	a.place(fairqueue.Holder{Cluster: "circle1"}) // it ends
}

// A client that sends a body slowly has no seat, neither before the first byte nor between two of them.
func TestSlowBodiesTakeNoSeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimits(400, 2000)
		ours, theirs := as(logicalcluster.WithName(t.Context(), "ours"), "alice"), as(logicalcluster.WithName(t.Context(), "theirs"), "alice")
		begun, end := make(chan struct{}), make(chan struct{})
		var open sync.WaitGroup
		open.Go(func() { // both are active
			l.WithLimits(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				close(begun)
				<-end
			})).ServeHTTP(httptest.NewRecorder(), requestOf(theirs, "get"))
		})
		<-begun
		var mu sync.Mutex
		got := map[string]int{}
		storing := l.WithLimits(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			content, err := io.ReadAll(r.Body)
			mu.Lock()
			defer mu.Unlock()
			got[fmt.Sprintf("%d bytes, %v", len(content), err)]++
		}))
		const length = 100_000
		var clients []*io.PipeWriter
		upload := func(announced int64) {
			sent, client := io.Pipe()
			clients = append(clients, client)
			r := requestOf(ours, "create")
			r.Body, r.ContentLength = sent, announced
			open.Go(func() { storing.ServeHTTP(httptest.NewRecorder(), r) })
		}
		for range 50 {
			upload(length)
			upload(-1)
		}
		quick := func() {
			t.Helper()
			w, since := httptest.NewRecorder(), time.Now()
			l.WithLimits(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, requestOf(ours, "get"))
			if w.Code != http.StatusOK || time.Since(since) != 0 {
				t.Errorf("another request of the cluster is answered %d after %s", w.Code, time.Since(since))
			}
		}
		half := make([]byte, length/2)
		synctest.Wait()
		quick()
		for _, c := range clients {
			_, _ = c.Write(half)
		}
		quick()
		if len(got) > 0 {
			t.Errorf("requests run before their bodies have arrived: %v", got)
		}
		for i, c := range clients {
			_, _ = c.Write(half)
			if i == 0 {
				c.CloseWithError(errors.New("it went away"))
			} else {
				c.Close()
			}
		}
		close(end)
		open.Wait()
		if want := map[string]int{"100000 bytes, <nil>": 99, "100000 bytes, it went away": 1}; !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

// What is too long is not kept, but for the byte that shows it.
func TestTheHandlerReadsALongBody(t *testing.T) {
	l := newLimits(400, 2000)
	l.config.MaxBody = 1000
	r := requestOf(as(logicalcluster.WithName(t.Context(), "ours"), "alice"), "create")
	content := strings.NewReader(strings.Repeat("x", 5000))
	r.Body, r.ContentLength = io.NopCloser(content), -1
	l.WithLimits(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if kept := 5000 - content.Len(); kept != 1001 {
			t.Errorf("%d bytes are read before it", kept)
		}
		if all, err := io.ReadAll(r.Body); len(all) != 5000 || err != nil {
			t.Errorf("it reads %d bytes, %v", len(all), err)
		}
	})).ServeHTTP(httptest.NewRecorder(), r)
}

func BenchmarkBodies(b *testing.B) {
	for _, length := range []int{300, 4 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("bytes=%d", length), func(b *testing.B) {
			l := newLimits(400, 2000)
			h := l.WithLimits(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.ReadAll(r.Body) }))
			r, content, w := requestOf(as(logicalcluster.WithName(b.Context(), "ours"), "alice"), "create"), make([]byte, length), httptest.NewRecorder()
			b.ReportAllocs()
			for b.Loop() {
				r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(content)), int64(length)
				h.ServeHTTP(w, r)
			}
		})
	}
}

func BenchmarkWithLimits(b *testing.B) {
	for _, clusters := range []int{1, 10000} {
		b.Run(fmt.Sprintf("clusters=%d", clusters), func(b *testing.B) {
			l := newLimits(400, 2000)
			h := l.WithLimits(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			requests := make([]*http.Request, clusters)
			for i := range requests {
				requests[i] = requestOf(as(logicalcluster.WithName(b.Context(), logicalcluster.Name(fmt.Sprintf("cluster%09d", i))), "alice", user.AllAuthenticated), "get")
			}
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(p *testing.PB) {
				w := httptest.NewRecorder()
				for i := 0; p.Next(); i++ {
					h.ServeHTTP(w, requests[i%clusters])
				}
			})
		})
	}
}
