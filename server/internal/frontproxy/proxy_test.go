package frontproxy

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/server/internal/auth/clientcertificates"
	"github.com/kcplane/kcp/server/internal/shards/peers/peerstest"
	"github.com/kcplane/kcp/server/internal/shards/tree"
)

func TestARequestGoesToTheShardThatHoldsTheWorkspace(t *testing.T) {
	f := newWorld(t).start(nil)
	alice := f.client("alice", "team-a", "system:masters", "system:kcp:initializer:root:x")
	for path, want := range map[string]struct{ shard, uri, expect string }{
		"/clusters/root/api":                              {"root", "/clusters/root/api", "root;" + id(0).String() + ";1"},
		"/clusters/root:org/api?x=1;2&watch=%20":          {"root", "/clusters/org0/api?x=1;2&watch=%20", "org0;" + id(1).String() + ";1"},
		"/clusters/root:org:team/apis/a/v1":               {"two", "/clusters/team0/apis/a/v1", "team0;" + id(2).String() + ";1"},
		"/clusters/team0/api":                             {"two", "/clusters/team0/api", "team0;" + id(2).String() + ";1"},
		"/clusters/root:org:team":                         {"two", "/clusters/team0/", "team0;" + id(2).String() + ";1"},
		"/clusters/root:mounted/api":                      {"root", "/clusters/root:mounted/api", "root;" + id(0).String() + ";1"},
		"/services/apiexport/a/b/clusters/root:org:team/": {"two", "/services/apiexport/a/b/clusters/team0/", "team0;" + id(2).String() + ";1"},
		"/services/apiexport/a/b/clusters/*/api":          {"root", "/services/apiexport/a/b/clusters/%2A/api", ""},
		"/services/initializingworkspaces/root:x/clusters/team0/": {"two", "/services/initializingworkspaces/root:x/clusters/team0/",
			"team0;" + id(2).String() + ";1"},
		"/services/apiresourceschema/team0/apis":        {"two", "/services/apiresourceschema/team0/apis", "team0;" + id(2).String() + ";1"},
		"/services/other/clusters/team0":                {"root", "/services/other/clusters/team0", ""},
		"/shards/two/services/apiexport/a/b/clusters/*": {"two", "/services/apiexport/a/b/clusters/%2A", ""},
	} {
		got, response, status := f.ask(alice, http.MethodGet, path, nil, nil)
		if got.Shard != want.shard || got.URI != want.uri || got.Header.Get(tree.ExpectHeader) != want.expect {
			t.Errorf("%s: %s %s %q (%d %s)", path, got.Shard, got.URI, got.Header.Get(tree.ExpectHeader), response.StatusCode, status.Message)
		}
		if response.Header.Get(tree.PlacementHeader) != "" {
			t.Errorf("%s: the client sees a marker", path)
		}
		if user, groups := got.Header.Get("X-Remote-User"), got.Header["X-Remote-Group"]; user != "alice" || !slices.Equal(groups, []string{"team-a", "system:authenticated"}) {
			t.Errorf("%s: the user is %s in %v", path, user, groups)
		}
	}
}

func TestAHomeIsServedByItsShard(t *testing.T) {
	f := newWorld(t).start(nil)
	path := "/clusters/root" + homeOfUser
	impersonate := http.Header{"Impersonate-User": {"bob"}}
	for name, test := range map[string]struct {
		user, method, path string
		header             http.Header
		want               string
	}{
		"a home on another shard":     {"ada", http.MethodGet, path, nil, "two"},
		"a home that does not exist":  {"bob", http.MethodGet, path, nil, "root"},
		"an impersonated user":        {"ada", http.MethodGet, path, impersonate, "root"},
		"another verb":                {"ada", http.MethodDelete, path, nil, "root"},
		"another object":              {"ada", http.MethodGet, path + "x", nil, "root"},
		"a subresource":               {"ada", http.MethodGet, path + "/status", nil, "root"},
		"the name in another cluster": {"ada", http.MethodGet, "/clusters/team0" + homeOfUser, nil, "two"},
	} {
		got, _, status := f.ask(f.client(test.user), test.method, test.path, test.header, nil)
		wantCluster := strings.HasPrefix(test.path, "/clusters/root/") && test.want == "two"
		if got.Shard != test.want || got.URI != test.path || (got.Header.Get(tree.ExpectHeader) == "") != wantCluster {
			t.Errorf("%s: shard %q, %s, expecting %q (%s), want shard %q", name, got.Shard, got.URI, got.Header.Get(tree.ExpectHeader), status.Message,
				test.want)
		}
	}
}

func TestWhatTheProxyRefuses(t *testing.T) {
	w := newWorld(t)
	f := w.start(nil)
	alice := f.client("alice")
	for path, want := range map[string]int{
		"/clusters/root:none/api": 403, "/clusters/none0/api": 403, "/clusters/*/api": 403, "/clusters/system:admin/api": 403,
		"/clusters/root:down/api": 503, "/clusters/user:bob": 403, "/clusters/root:mounted:x/api": 403,
		"/api": 404, "/": 404, "/Clusters/root/api": 404, "/clusters": 404, "/clusters/": 400, "/clusters/root/clusters/team0/api": 404,
		"/clusters/a%2fb/api": 400, "/clusters/root/..%2fteam0": 400, "/clusters/root/%2e%2e/team0/api": 400, "/clusters/root/../team0/api": 400,
		"/clusters//api": 400, "//clusters/root/api": 400, "/clusters/root//api": 400, "/clusters/ROOT/api": 400, "/clusters/root%00/api": 400,
		"/clusters/root/%252e": 400, "/clusters/root;x/api": 400, "/clusters/root%5capi": 400,
		"/services/peers/v1/resolve": 403, "/services/peers": 403, "/services/%70eers/v1/resolve": 403, "/services/cache/shards/x": 403,
		"/shards/two/services/peers/v1/resolve": 403, "/shards/two/services/cache/shards/x": 403, "/services/x/../peers/v1/resolve": 400,
		"/services//peers/v1/resolve": 400, "/shards/two/clusters/team0/api": 404, "/shards/none/services/apiexport/a": 404,
		"/services/apiexport/a/b/clusters/root:none/api": 403, "/services/apiexport/a/b/clusters/A/api": 400,
		"/services/apiexport/a/b/clusters/root:down/api": 503, "/services/apiexport/a/b/clusters/root:mounted/api": 403,
		"/services/other/a%2fb": 400, "/services/other/a%5cb": 400, "/services/other/a%00b": 400, "/services/other/a%25b": 400,
		"/services/other/./b": 400, "/services/other//b": 400, "/shards/two/services/other/a%2Fb": 400,
	} {
		r, err := http.NewRequest(http.MethodPost, f.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		base, _, _ := strings.Cut(strings.TrimPrefix(f.url, "https://"), "/")
		r.URL = &url.URL{Scheme: "https", Host: base, Opaque: "//" + base + path} // as it is
		response, err := alice.Do(r)
		if err != nil {
			t.Fatal(path, err)
		}
		var status metav1.Status
		if err := json.NewDecoder(response.Body).Decode(&status); err != nil || len(status.Message) < 10 || status.Reason == "" {
			t.Errorf("%s: %v, %+v", path, err, status)
		}
		response.Body.Close()
		if response.StatusCode != want || int(status.Code) != want {
			t.Errorf("%s: %s, want %d: %s", path, response.Status, want, status.Message)
		}
		if delay := response.Header.Get("Retry-After"); want == 503 && delay == "" {
			t.Errorf("%s: without Retry-After", path)
		}
	}
	for name, shard := range w.shards {
		if got := shard.requests(); len(got) != 0 {
			t.Errorf("shard %s got %+v", name, got)
		}
	}
}

func TestAClientCannotSayWhoItIs(t *testing.T) {
	f := newWorld(t).start(nil)
	forged := http.Header{
		"X-Remote-User": {"admin"}, "X-Remote-Group": {"system:masters"}, "X-Remote-Extra-Scopes": {"x"}, "X-Remote-Uid": {"x"}, "X_Remote_User": {"admin"},
		"X-Kcp-Expect": {"root;;1"}, "X-Kcp-Internal-Deep-SubjectAccessReview": {"true"}, "X-Forwarded-For": {"10.0.0.1"}, "X-Real-Ip": {"10.0.0.1"},
		"Connection": {"X-Remote-Group, X-Remote-User, X-Kcp-Expect"}, "X-Kcp-Mount-Hops": {"3"},
	}
	oneOne := func(c *http.Client) *http.Client {
		transport := c.Transport.(*http.Transport)
		transport.ForceAttemptHTTP2, transport.TLSClientConfig.NextProtos = false, []string{"http/1.1"}
		return c
	}
	for name, client := range map[string]*http.Client{"alice": oneOne(f.client("alice", "team-a")), "": oneOne(f.client(""))} {
		got, response, _ := f.ask(client, http.MethodGet, "/clusters/team0/api", forged, nil)
		if response.StatusCode != http.StatusOK {
			t.Fatal(response.Status)
		}
		if user := got.Header.Get("X-Remote-User"); user != name || len(got.Header.Values("X-Remote-User")) > 1 {
			t.Errorf("%q is %q", name, user)
		}
		for header := range got.Header {
			folded := strings.ReplaceAll(strings.ToLower(header), "_", "-")
			allowed := []string{"x-kcp-expect", "x-kcp-mount-hops"}
			if name != "" {
				allowed = append(allowed, "x-remote-user", "x-remote-group")
			}
			if (strings.HasPrefix(folded, "x-remote-") || strings.HasPrefix(folded, "x-kcp-") || folded == "x-real-ip") && !slices.Contains(allowed, folded) &&
				folded != "x-remote-extra-authentication.kubernetes.io%2fcredential-id" {
				t.Errorf("%q: the shard got %s: %v", name, header, got.Header[header])
			}
		}
		if got.Header.Get(tree.ExpectHeader) != "team0;"+id(2).String()+";1" || got.Header.Get("X-Forwarded-For") != "127.0.0.1" ||
			got.Header.Get("X-Kcp-Mount-Hops") != "3" || slices.Contains(got.Header["X-Remote-Group"], "system:masters") {
			t.Errorf("%q: the shard got %v", name, got.Header)
		}
	}
}

// A trailer is no header, but a program could take it for one.
func TestTrailersAreDropped(t *testing.T) {
	f := newWorld(t).start(nil)
	conn, err := tls.Dial("tcp", strings.TrimPrefix(f.url, "https://"), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "POST https://other.test/clusters/team0/api HTTP/1.1\r\nHost: other.test\r\nTransfer-Encoding: chunked\r\n"+
		"Trailer: X-Remote-User\r\n\r\n1\r\na\r\n0\r\nX-Remote-User: admin\r\n\r\n")
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	var got seen
	if err := json.NewDecoder(response.Body).Decode(&got); err != nil || got.Body != "a" || got.URI != "/clusters/team0/api" {
		t.Errorf("%v, %+v", err, got)
	}
	if len(got.Trailer) != 0 || got.Header.Get("X-Remote-User") != "" {
		t.Errorf("the shard got %v, %v", got.Header, got.Trailer)
	}
}

// token returns a token that claims a logical cluster.
func token(claims string) string {
	encode := func(s string) string { return strings.TrimRight(base64.URLEncoding.EncodeToString([]byte(s)), "=") }
	return encode(`{"alg":"RS256"}`) + "." + encode(claims) + ".c2lnbmF0dXJl"
}

func TestTokensThatOnlyAShardCanVerifyPass(t *testing.T) {
	f := newWorld(t).start(nil)
	account := token(`{"iss":"https://kcp.default.svc","kubernetes.io":{"clusterName":"team0"}}`)
	for name, tc := range map[string]struct {
		path, bearer string
		user         string
		kept         bool
	}{
		"a service account":                        {"/clusters/team0/api", account, "", true},
		"a service account without a cluster":      {"/api", account, "", true},
		"a token of the issuer of a workspace":     {"/clusters/team0/api", token(`{"iss":"https://other"}`), "", true},
		"a token that the proxy knows":             {"/clusters/team0/api", "secret", "bob", false},
		"a token that the proxy knows, at a mount": {"/clusters/root:mounted/api", "secret", "bob", true},
	} {
		got, response, status := f.ask(f.client(""), http.MethodGet, tc.path, http.Header{"Authorization": {"Bearer " + tc.bearer}}, nil)
		if response.StatusCode != http.StatusOK || got.Header.Get("X-Remote-User") != tc.user || (got.Header.Get("Authorization") != "") != tc.kept {
			t.Errorf("%s: %s %q, the shard got %v", name, response.Status, status.Message, got.Header)
		}
		if tc.path == "/api" && (got.URI != "/clusters/team0/api" || got.Shard != "two") {
			t.Errorf("%s: %s %s", name, got.Shard, got.URI)
		}
	}
	if got, _, _ := f.ask(f.client("alice"), http.MethodGet, "/clusters/team0/api", http.Header{"Authorization": {"Bearer " + account}}, nil); got.Header.Get("Authorization") != "" ||
		got.Header.Get("X-Remote-User") != "alice" {
		t.Errorf("a request with two identities has %v", got.Header)
	}
	stranger := &front{f.server, &world{t: t, authority: f.world.authority, users: peerstest.NewAuthority(t)}, f.url, nil}
	if _, response, _ := f.ask(stranger.client("alice"), http.MethodGet, "/clusters/team0/api", nil, nil); response.StatusCode != http.StatusUnauthorized {
		t.Errorf("a certificate of another authority: %s", response.Status)
	}
}

func TestClientCertificatesOfLogicalClustersAreForwarded(t *testing.T) {
	f := newWorld(t).start(nil)
	ofCluster := &front{f.server, &world{t: t, authority: f.world.authority, users: peerstest.NewNamedAuthority(t, "kcp-logical-cluster-clients")}, f.url, nil}
	forged := http.Header{clientcertificates.Header: {"forged"}, "X-Remote-User": {"root"}, "Authorization": {"Bearer secret"}}
	for path, shard := range map[string]string{"/clusters/team0/api": "two", "/clusters/root:org/api": "root", "/services/apiexport/a/b/clusters/team0/": "two"} {
		got, response, status := f.ask(ofCluster.client("carol"), http.MethodGet, path, forged, nil)
		if response.StatusCode != http.StatusOK || got.Shard != shard || got.Header.Get("X-Remote-User") != "" {
			t.Errorf("%s: %s %q, shard %q got %v", path, response.Status, status.Message, got.Shard, got.Header)
			continue
		}
		certificate, err := clientcertificates.Parse(got.Header.Get(clientcertificates.Header))
		if err != nil || certificate.Subject.CommonName != "carol" {
			t.Errorf("%s: the shard got %v, %v", path, certificate, err)
		}
	}
	for name, client := range map[string]*http.Client{"a user of the proxy": f.client("alice"), "an anonymous user": f.client("")} {
		if got, _, _ := f.ask(client, http.MethodGet, "/clusters/team0/api", forged, nil); got.Header.Get(clientcertificates.Header) != "" {
			t.Errorf("%s: the shard got the forged certificate", name)
		}
	}
}

func TestARequestIsSentOnByAMarkerAndAMissIsAsked(t *testing.T) {
	w := newWorld(t)
	f := w.start(nil)
	alice, body := f.client("alice"), bytes.Repeat([]byte("x"), 1000)
	w.shards["two"].set(func() {
		w.shards["two"].markers["team0"] = tree.Marker{Shard: "two", Incarnation: "x", Verdict: tree.Moved, To: "root", Epoch: 2}
	})
	got, _, status := f.ask(alice, http.MethodPost, "/clusters/root:org:team/api", nil, bytes.NewReader(body))
	if got.Shard != "root" || got.Header.Get(tree.ExpectHeader) != "team0;"+id(2).String()+";2" || got.Body != string(body) {
		t.Errorf("after a marker: %+v (%s)", got, status.Message)
	}
	// The workspace was deleted and created again at another shard, and the index is late.
	w.shards["two"].set(func() {
		w.shards["two"].markers["team0"] = tree.Marker{Shard: "two", Incarnation: "x", Verdict: tree.Never}
	})
	w.shards["root"].set(func() {
		w.shards["root"].answer = func(q tree.Question) (tree.Answer, error) {
			if !q.Stored || q.Path != "root:org:team" {
				return tree.Answer{}, nil
			}
			return tree.Answer{Edges: []tree.Edge{{Parent: "root", Name: "org", Cluster: "org0", Epoch: 1}, {Parent: "org0", Name: "team", Cluster: "again0", Epoch: 1}}}, nil
		}
	})
	if got, _, status = f.ask(alice, http.MethodPost, "/clusters/root:org:team/api", nil, bytes.NewReader(body)); got.Shard != "root" || got.URI != "/clusters/again0/api" {
		t.Errorf("after a new workspace: %+v (%s)", got, status.Message)
	}
	w.shards["root"].set(func() {
		w.shards["root"].answer = func(q tree.Question) (tree.Answer, error) {
			return tree.Answer{Edges: []tree.Edge{{Parent: "root", Name: "org", Cluster: "org0"}, {Parent: "org0", Name: "team", Cluster: "team0", Shard: "two", UID: id(2)}}}, nil
		}
	})
	if _, response, _ := f.ask(alice, http.MethodPost, "/clusters/root:org:team/api", nil, nil); response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") == "" {
		t.Errorf("a shard that should hold a cluster: %s", response.Status)
	}
	w.shards["root"].set(func() { w.shards["root"].answer = nil })
	if _, response, _ := f.ask(alice, http.MethodPost, "/clusters/root:org:team/api", nil, nil); response.StatusCode != http.StatusForbidden {
		t.Errorf("a deleted workspace: %s", response.Status)
	}
	// A new workspace that is not in the index yet.
	w.shards["root"].set(func() {
		w.shards["root"].answer = func(q tree.Question) (tree.Answer, error) {
			if q.Path != "root:new" {
				return tree.Answer{}, nil
			}
			return tree.Answer{Edges: []tree.Edge{{Parent: "root", Name: "new", Cluster: "new0", Shard: "two", Epoch: 1, UID: id(9)}}}, nil
		}
	})
	if got, _, status = f.ask(alice, http.MethodGet, "/clusters/root:new/api", nil, nil); got.Shard != "two" || got.URI != "/clusters/new0/api" {
		t.Errorf("a new workspace: %+v (%s)", got, status.Message)
	}
	if _, response, _ := f.ask(f.client(""), http.MethodGet, "/clusters/root:new/api", nil, nil); response.StatusCode != http.StatusForbidden {
		t.Errorf("an anonymous client makes the proxy ask: %s", response.Status)
	}
}

func TestAShardThatIsDownMakesItsWorkspacesUnavailableOnly(t *testing.T) {
	w := newWorld(t)
	f := w.start(nil)
	alice := f.client("alice")
	w.shards["two"].server.Close()
	if _, response, status := f.ask(alice, http.MethodPost, "/clusters/root:org:team/api", nil, strings.NewReader("x")); response.StatusCode != http.StatusServiceUnavailable ||
		!strings.Contains(status.Message, `shard "two"`) || response.Header.Get("Retry-After") == "" {
		t.Errorf("%s: %s", response.Status, status.Message)
	}
	if got, _, _ := f.ask(alice, http.MethodGet, "/clusters/root:org/api", nil, nil); got.Shard != "root" {
		t.Errorf("another shard: %+v", got)
	}
}

func TestUpgradesPass(t *testing.T) {
	w := newWorld(t)
	f := w.start(nil)
	w.shards["two"].set(func() {
		w.shards["two"].serve = func(rw http.ResponseWriter, r *http.Request) {
			conn, buffered, err := http.NewResponseController(rw).Hijack()
			if err != nil {
				http.Error(rw, err.Error(), http.StatusTeapot)
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+r.Header.Get("Upgrade")+"\r\n\r\n")
			line, _ := buffered.ReadString('\n')
			_, _ = io.WriteString(conn, r.Header.Get("X-Remote-User")+" "+line)
		}
	})
	for protocol, want := range map[string]int{"websocket": 101, "SPDY/3.1": 101, "h2c": 400} {
		transport := f.client("alice").Transport.(*http.Transport)
		config := transport.TLSClientConfig.Clone()
		config.NextProtos = []string{"http/1.1"}
		conn, err := tls.Dial("tcp", strings.TrimPrefix(f.url, "https://"), config)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprintf(conn, "GET /clusters/root:org:team/exec HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", protocol)
		reader := bufio.NewReader(conn)
		response, err := http.ReadResponse(reader, nil)
		if err != nil || response.StatusCode != want {
			t.Fatalf("%s: %v, %v", protocol, response, err)
		}
		if want == 101 {
			_, _ = io.WriteString(conn, "hello\n")
			if line, err := reader.ReadString('\n'); err != nil || line != "alice hello\n" {
				t.Errorf("%s: %q, %v", protocol, line, err)
			}
		}
		conn.Close()
	}
}

func TestWatchesAreStreamedAndEndWhenTheProxyStops(t *testing.T) {
	w := newWorld(t)
	f := w.start(nil)
	alice, events := f.client("alice"), make(chan string)
	w.shards["two"].set(func() {
		w.shards["two"].serve = func(rw http.ResponseWriter, r *http.Request) {
			for {
				select {
				case e := <-events:
					_, _ = io.WriteString(rw, e)
					_ = http.NewResponseController(rw).Flush()
				case <-r.Context().Done():
					return
				}
			}
		}
	})
	go func() { events <- "one\n" }()
	response, err := alice.Get(f.url + "/clusters/team0/api/v1/configmaps?watch=true")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	reader := bufio.NewReader(response.Body)
	if line, err := reader.ReadString('\n'); err != nil || line != "one\n" {
		t.Fatalf("%q, %v", line, err)
	}
	events <- "two\n"
	if line, err := reader.ReadString('\n'); err != nil || line != "two\n" {
		t.Fatalf("%q, %v", line, err)
	}
	f.stop()
	if rest, err := io.ReadAll(reader); err != nil || len(rest) != 0 {
		t.Errorf("the watch ended with %q, %v", rest, err)
	}
}

func TestTwoProxiesServeTheSame(t *testing.T) {
	w := newWorld(t)
	one, two := w.start(nil), w.start(nil)
	for _, f := range []*front{one, two} {
		if got, _, _ := f.ask(f.client("alice"), http.MethodGet, "/clusters/root:org:team/api", nil, nil); got.Shard != "two" {
			t.Errorf("got %+v", got)
		}
	}
	one.stop()
	if got, _, _ := two.ask(two.client("alice"), http.MethodGet, "/clusters/root:org:team/api", nil, nil); got.Shard != "two" {
		t.Errorf("after the other one has stopped: %+v", got)
	}
}

func TestAClientHasALimitedNumberOfOpenRequests(t *testing.T) {
	w := newWorld(t)
	f := w.start(func(o *Options) { o.MaxOpenRequestsPerClient = 2 })
	alice := f.client("alice")
	entered, leave := make(chan struct{}), make(chan struct{})
	w.shards["two"].set(func() {
		w.shards["two"].serve = func(http.ResponseWriter, *http.Request) {
			entered <- struct{}{}
			<-leave
		}
	})
	var open sync.WaitGroup
	for range 2 {
		open.Go(func() {
			if response, err := alice.Get(f.url + "/clusters/team0/api"); err != nil {
				t.Error(err)
			} else {
				response.Body.Close()
			}
		})
		<-entered
	}
	if _, response, _ := f.ask(alice, http.MethodGet, "/clusters/root/api", nil, nil); response.StatusCode != http.StatusTooManyRequests {
		t.Errorf("one request more: %s", response.Status)
	}
	if got, _, _ := f.ask(f.client("bob"), http.MethodGet, "/clusters/root/api", nil, nil); got.Shard != "root" {
		t.Errorf("another client: %+v", got)
	}
	close(leave)
	open.Wait()
	if got, _, _ := f.ask(alice, http.MethodGet, "/clusters/root/api", nil, nil); got.Shard != "root" {
		t.Errorf("afterwards: %+v", got)
	}
}
