package mount

import (
	"bufio"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/core/install"

	"github.com/kcplane/kcp/server/internal/process/outbound"
)

// mounted starts a server behind a mount, and returns its URL and a client that enters the mount with a header.
func mounted(t *testing.T, behind http.Handler) (url string, enter func(url, path string, header http.Header) *httptest.ResponseRecorder) {
	t.Helper()
	server := httptest.NewTLSServer(behind)
	t.Cleanup(server.Close)
	proxy := newProxy(t, server)
	return server.URL, func(url, path string, header http.Header) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		serve(t, proxy, w, url, path, header)
		return w
	}
}

func newProxy(t *testing.T, server *httptest.Server) *Proxy {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	hosts, err := NewHosts([]string{"https://kcp.example.com"}, []string{strings.TrimPrefix(server.URL, "https://")})
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := NewProxy(Config{Hosts: hosts, Workspaces: workspaces(), Files: outbound.Files{CA: file}, Serializer: legacyscheme.Codecs})
	if err != nil {
		t.Fatal(err)
	}
	return proxy
}

func serve(t *testing.T, proxy *Proxy, w http.ResponseWriter, url, path string, header http.Header) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Header = header.Clone()
	serveAs(t, proxy, w, r, url)
}

// serveAs serves a request for a workspace that is mounted from url.
func serveAs(t *testing.T, proxy *Proxy, w http.ResponseWriter, r *http.Request, url string) {
	t.Helper()
	ctx, err := Enter(r, "root:mounted", mountKey, url)
	if err == nil {
		err = proxy.connections.workspaces.Indexer().Add(mountedFrom(url))
	}
	if err != nil {
		t.Error(err)
		return
	}
	r.Header.Del("Authorization") // as authentication does
	proxy.WithMounts(http.NotFoundHandler()).ServeHTTP(w, r.WithContext(ctx))
}

func TestARequestReachesTheServerWithTheCredentialsOfTheClientAlone(t *testing.T) {
	var got *http.Request
	url, enter := mounted(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		w.Header().Set("Set-Cookie", "a=b")
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "short and stout")
	}))
	w := enter(url+"/below/", "/api/v1/configmaps?limit=5&a;b", http.Header{
		"Authorization": {"Bearer mine"}, "Accept": {"application/json"}, "Cookie": {"a=b"}, "X-Forwarded-For": {"1.2.3.4"},
		"X-Remote-User": {"admin"}, "X-Remote-Group": {"system:masters"}, "X-Remote-Extra-Scopes": {"all"}, "X-Remote-Uid": {"1"},
	})
	if w.Code != http.StatusTeapot || w.Body.String() != "short and stout" || w.Header().Get("Set-Cookie") != "" {
		t.Errorf("the answer is %d %s %v", w.Code, w.Body, w.Header())
	}
	if got.URL.Path != "/below/api/v1/configmaps" || got.URL.RawQuery != "limit=5&a;b" || got.Host != strings.TrimPrefix(url, "https://") {
		t.Errorf("it reached %s%s", got.Host, got.URL)
	}
	got.Header.Del("Accept-Encoding")
	got.Header.Del("User-Agent")
	want := http.Header{"Authorization": {"Bearer mine"}, "Accept": {"application/json"}, "X-Kcp-Mount-Hops": {"1"}}
	if len(got.Header) != len(want) || got.Header.Get("Authorization") != "Bearer mine" || got.Header.Get("X-Kcp-Mount-Hops") != "1" {
		t.Errorf("its header is %v, want %v", got.Header, want)
	}
}

func TestAMountThatDoesNotServeIsUnavailable(t *testing.T) {
	url, enter := mounted(t, http.RedirectHandler("https://evil.example.com", http.StatusFound))
	stranger := httptest.NewTLSServer(http.NotFoundHandler())
	defer stranger.Close()
	for name, test := range map[string]struct {
		url  string
		hops string
		code int32
		want string
	}{
		"a redirect":                  {url, "", 503, "redirect"},
		"another host":                {stranger.URL, "", 503, "may not use the host"},
		"no HTTPS":                    {"http://" + strings.TrimPrefix(url, "https://"), "", 503, "https://"},
		"too many mounts":             {url, "4", 500, "loop"},
		"an invalid number of mounts": {url, "x", 500, "loop"},
		"a negative number of mounts": {url, "-1", 500, "loop"},
	} {
		w := enter(test.url, "/api", http.Header{hopsHeader: {test.hops}})
		status := metav1.Status{}
		if err := json.Unmarshal(w.Body.Bytes(), &status); err != nil || status.Code != test.code || !strings.Contains(status.Message, test.want) || status.Reason == "" {
			t.Errorf("%s: got %d %s", name, w.Code, w.Body)
		}
	}
}

func TestResponsesOfMountsHaveSmallHeaders(t *testing.T) {
	url, enter := mounted(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Large", strings.Repeat("x", 2*maxHeaderBytes))
	}))
	if w := enter(url, "/api", http.Header{}); w.Code != http.StatusServiceUnavailable {
		t.Errorf("the answer is %d %s", w.Code, w.Body)
	}
}

func TestAnUntrustedServerGetsNoRequest(t *testing.T) {
	asked := false
	stranger := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	stranger.StartTLS()
	defer stranger.Close()
	hosts, err := NewHosts(nil, []string{strings.TrimPrefix(stranger.URL, "https://")})
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := NewProxy(Config{Hosts: hosts, Workspaces: workspaces(), Serializer: legacyscheme.Codecs})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	serve(t, proxy, w, stranger.URL, "/api", http.Header{"Authorization": {"Bearer mine"}})
	if w.Code != http.StatusServiceUnavailable || asked || strings.Contains(w.Body.String(), "certificate") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

func TestAWatchThroughAMountEndsWithoutError(t *testing.T) {
	behind := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "an event")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(behind.Close)
	proxy := newProxy(t, behind)
	ended := make(chan any, 1)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { ended <- recover() }()
		r = r.WithContext(request.WithRequestInfo(r.Context(), &request.RequestInfo{Verb: "watch"}))
		serveAs(t, proxy, w, r, behind.URL)
	}))
	t.Cleanup(front.Close)
	response, err := http.Get(front.URL)
	if err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(response.Body)
	if line, err := reader.ReadString('\n'); line != "an event\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	proxy.connections.open.End(mountKey)
	if rest, err := io.ReadAll(reader); err != nil || len(rest) > 0 {
		t.Errorf("after the end: %q, %v", rest, err)
	}
	if failure := <-ended; failure != nil {
		t.Errorf("it panicked: %v", failure)
	}
}

func TestOtherRequestsAreNotProxied(t *testing.T) {
	proxy := &Proxy{}
	w := httptest.NewRecorder()
	proxy.WithMounts(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) })).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api", nil))
	if w.Code != http.StatusAccepted {
		t.Errorf("got %d", w.Code)
	}
}

func TestImpersonationIsRefused(t *testing.T) {
	for _, header := range []string{"Impersonate-User", "Impersonate-Group", "Impersonate-Extra-Scopes"} {
		r := httptest.NewRequest(http.MethodGet, "/api", nil)
		r.Header.Set(header, "admin")
		if _, err := Enter(r, "root:mounted", mountKey, "https://elsewhere"); err == nil || !strings.Contains(err.Error(), "root:mounted") {
			t.Errorf("%s: got %v", header, err)
		}
	}
}

func TestOnlyAuthenticatedUsersMayEnterAMount(t *testing.T) {
	none := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionNoOpinion, "", nil
	})
	mount, err := Enter(httptest.NewRequest(http.MethodGet, "/api", nil), "root:mounted", mountKey, "https://elsewhere")
	if err != nil {
		t.Fatal(err)
	}
	var got []authorizer.Decision
	for _, ctx := range []context.Context{mount, t.Context()} {
		for _, name := range []string{"alice", user.Anonymous} {
			decision, _, _ := Authorizer(none).Authorize(ctx, authorizer.AttributesRecord{User: &user.DefaultInfo{Name: name}})
			got = append(got, decision)
		}
	}
	if want := []authorizer.Decision{authorizer.DecisionAllow, authorizer.DecisionDeny, authorizer.DecisionNoOpinion, authorizer.DecisionNoOpinion}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
