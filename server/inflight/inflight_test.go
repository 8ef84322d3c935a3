package inflight

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kcplane/kcp/server/authorization"
	"github.com/kcplane/kcp/server/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
	"github.com/kcplane/kcp/server/mount"
)

func newLimits(requests, watches int) *Limits {
	return New(Config{
		Requests: requests, Watches: watches, Serializer: scheme.Codecs,
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
	if got := code(ours, "list"); got != http.StatusOK || len(l.open) > 0 {
		t.Errorf("when all have ended: got %d, and %v are open", got, l.open)
	}
}

// What fails is over, too.
func TestAPanicLeavesNothingOpen(t *testing.T) {
	l := newLimits(1, 1)
	h := l.WithLimits(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	func() {
		defer func() { _ = recover() }()
		h.ServeHTTP(httptest.NewRecorder(), requestOf(as(logicalcluster.WithName(t.Context(), "ours"), "alice"), "get"))
	}()
	if len(l.open) > 0 {
		t.Errorf("%v are open", l.open)
	}
}

func TestOnWhoseAccountARequestIs(t *testing.T) {
	root := logicalcluster.WithName(t.Context(), logicalcluster.Root)
	mounted, err := mount.Enter(httptest.NewRequest(http.MethodGet, "/api", nil), "root:org:m", informers.Key{Cluster: "org", Name: "m"}, "https://elsewhere")
	if err != nil {
		t.Fatal(err)
	}
	robot := request.WithUser(root, &user.DefaultInfo{Name: "system:serviceaccount:default:robot", Extra: map[string][]string{authorization.ClusterNameKey: {"theirs"}}})
	for what, test := range map[string]struct {
		ctx  context.Context
		want holder
	}{
		"a cluster": {as(logicalcluster.WithName(t.Context(), "ours"), "alice"), holder{cluster: "ours"}}, "root": {as(root, "alice"), holder{"root", "alice"}},
		"a robot in root": {robot, holder{cluster: "theirs"}}, "a mount": {as(mounted, "alice"), holder{cluster: "org"}},
		"all clusters": {as(logicalcluster.WithWildcard(t.Context()), "alice"), holder{user: "alice"}},
	} {
		if got, ok := holderOf(test.ctx); !ok || got != test.want {
			t.Errorf("%s: got %+v, %t", what, got, ok)
		}
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
