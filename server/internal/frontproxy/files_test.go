package frontproxy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kcplane/kcp/server/internal/frontproxy/index"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/shards/tree"
)

func replace(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestAnInvalidMappingChangesNothing(t *testing.T) {
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "mapping.yaml")
	root := w.shards["root"].server.URL
	entry := func(path, backend string) string {
		certFile, keyFile := w.files(filepath.Dir(file), "entry", w.authority.Peer(t, peers.Proxy, "front"))
		return "- path: " + path + "\n  backend: " + backend + "\n  backend_server_ca: " + w.authority.File + "\n  proxy_client_cert: " + certFile +
			"\n  proxy_client_key: " + keyFile + "\n"
	}
	clusters := entry("/clusters/", root)
	replace(t, file, clusters)
	f := w.start(func(o *Options) { o.MappingFile = file })
	alice := f.client("alice")
	stale := map[string]bool{}
	reload := func() { f.loader.reloadOnce(&f.proxy.files, func(file string, invalid bool) { stale[file] = invalid }) }
	status := func(path string) int {
		_, response, _ := f.ask(alice, http.MethodGet, path, nil, nil)
		return response.StatusCode
	}
	if got := status("/clusters/team0/api"); got != http.StatusOK {
		t.Fatal(got)
	}
	if got := status("/custom/x"); got != http.StatusNotFound {
		t.Errorf("a path that is not mapped: %d", got)
	}
	for _, invalid := range []string{clusters + "- path: /custom/", "", clusters + strings.Replace(entry("/custom/", root), "entry.crt", "none.crt", 1)} {
		replace(t, file, invalid)
		if reload(); !stale["mapping"] || status("/clusters/team0/api") != http.StatusOK || status("/custom/x") != http.StatusNotFound {
			t.Errorf("%q: %v", invalid, stale)
		}
	}
	replace(t, file, clusters+entry("/custom/", w.shards["two"].server.URL))
	if reload(); stale["mapping"] || status("/clusters/team0/api") != http.StatusOK || status("/custom/x") != http.StatusOK {
		t.Errorf("a valid mapping is not in use: %v", stale)
	}
	replace(t, filepath.Join(filepath.Dir(file), "entry.crt"), "broken")
	if reload(); !stale["certificates"] || status("/clusters/team0/api") != http.StatusOK {
		t.Errorf("a broken certificate: %v", stale)
	}
}

func TestTheProxyDoesNotStartWithAnInvalidMapping(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mapping.yaml")
	replace(t, file, "- path: /clusters/\n  backend: https://root\n  unknown: x\n")
	l := &loader{mappingFile: file}
	if _, err := l.load(nil); err == nil || !strings.Contains(err.Error(), file+":3: unknown field") {
		t.Errorf("got %v", err)
	}
	replace(t, file, "# the shards\n- path: /clusters/\n  backend: https://root\n  proxy_client_cert: none\n  proxy_client_key: none\n")
	if _, err := l.load(nil); err == nil || !strings.Contains(err.Error(), file+`:2: path "/clusters/": `) {
		t.Errorf("an absent certificate: got %v", err)
	}
	if _, err := (&loader{}).load(nil); err == nil || !strings.Contains(err.Error(), "--mapping-file or --root-kubeconfig is required") {
		t.Errorf("got %v", err)
	}
}

func newSet(t *testing.T, directory string, seeds map[string]string) *shardSet {
	t.Helper()
	s, err := newShards(index.New(), directory, seeds, testingclock.NewFakePassiveClock(time.Now()))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func feed(t *testing.T, sink *sink, incarnation string, records ...any) {
	t.Helper()
	errs := []error{sink.Begin(tree.Start{Shard: sink.name, Incarnation: incarnation})}
	for _, r := range records {
		switch r := r.(type) {
		case tree.Shard:
			errs = append(errs, sink.Shard(r))
		case tree.Edge:
			errs = append(errs, sink.Edge(r))
		}
	}
	for _, err := range append(errs, sink.End()) {
		if err != nil {
			t.Error(err)
		}
	}
}

func TestShardsAreKeptOnDisk(t *testing.T) {
	directory := t.TempDir()
	s := newSet(t, directory, map[string]string{"root": "https://root", "seed": "https://seed"})
	feed(t, &sink{set: s, name: "root"}, "x", tree.Shard{Name: "root", BaseURL: "https://root"}, tree.Shard{Name: "two", BaseURL: "https://two"})
	s.store()
	again := newSet(t, directory, map[string]string{"root": "https://moved"})
	for name, want := range map[string]string{"root": "https://moved", "two": "https://two", "seed": ""} {
		got, known := again.URL(name)
		if known != (want != "") || known && got.String() != want {
			t.Errorf("%s: %v, %t", name, got, known)
		}
	}
}

func TestOnlyTheRootShardSaysWhichShardsThereAre(t *testing.T) {
	s := newSet(t, "", map[string]string{"root": "https://root", "two": "https://two"})
	evil := &sink{set: s, name: "two"}
	feed(t, evil, "x", tree.Shard{Name: "root", BaseURL: "https://evil"}, tree.Shard{Name: "three", BaseURL: "https://evil"}, tree.Shard{Name: "root", Deleted: true})
	if got, _ := s.URL("root"); got.String() != "https://root" || len(s.Names()) != 2 {
		t.Errorf("%v, %v", got, s.Names())
	}
	root := &sink{set: s, name: "root"}
	feed(t, root, "x", tree.Shard{Name: "two", BaseURL: "https://new"}, tree.Shard{Name: "bad", BaseURL: "http://bad"}, tree.Shard{Name: "../bad", BaseURL: "https://bad"})
	if got, _ := s.URL("two"); got.String() != "https://new" || len(s.Names()) != 2 {
		t.Errorf("%v, %v", got, s.Names())
	}
	if err := root.Shard(tree.Shard{Name: "two", Deleted: true}); err != nil || len(s.Names()) != 1 {
		t.Errorf("%v, %v", err, s.Names())
	}
}

func TestTheProxyIsReadyWhenTheTreesOfAllShardsThatRespondAreComplete(t *testing.T) {
	s := newSet(t, "", map[string]string{"root": "https://root", "two": "https://two"})
	root, two := &sink{set: s, name: "root"}, &sink{set: s, name: "two"}
	if s.Ready() == nil {
		t.Error("ready without any tree")
	}
	two.Lost(os.ErrDeadlineExceeded)
	root.Lost(os.ErrDeadlineExceeded)
	if s.Ready() == nil {
		t.Error("ready although no shard responds")
	}
	feed(t, root, "x", tree.Shard{Name: "two", BaseURL: "https://two"})
	if err := s.Ready(); err != nil {
		t.Errorf("not ready because a shard is down: %v", err)
	}
	two.Bookmark(1) // it responds
	if s.Ready() == nil {
		t.Error("ready without the tree of a shard that responds")
	}
	feed(t, two, "x")
	if err := s.Ready(); err != nil {
		t.Error(err)
	}
}

func TestAProxyWhoseCertificateIsRefusedSaysSo(t *testing.T) {
	s := newSet(t, "", map[string]string{"root": "https://root", "two": "https://two"})
	root, two := &sink{set: s, name: "root"}, &sink{set: s, name: "two"}
	root.Lost(apierrors.NewForbidden(schema.GroupResource{Resource: "peer call"}, "tree", errors.New("kcp://shard/two may not make it")))
	two.Lost(os.ErrDeadlineExceeded)
	if err := s.Ready(); err == nil || !strings.Contains(err.Error(), "kcp://shard/two may not make it: add its authority to") {
		t.Errorf("with the certificate of a shard: got %v", err)
	}
	refusal := fmt.Errorf("following: %w", apierrors.NewUnauthorized("certificate signed by unknown authority"))
	root.Lost(refusal)
	two.Lost(os.ErrDeadlineExceeded)
	err := s.Ready()
	if err == nil || !strings.Contains(err.Error(), "the shards [root] refuse the certificate of this front proxy") ||
		!strings.Contains(err.Error(), "signed by unknown authority") || !strings.Contains(err.Error(), "--peer-client-ca-file") {
		t.Errorf("got %v", err)
	}
	root.Lost(os.ErrDeadlineExceeded)
	if err := s.Ready(); err == nil || strings.Contains(err.Error(), "refuse") {
		t.Errorf("after the shard has stopped: got %v", err)
	}
	feed(t, two, "x")
	root.Lost(refusal)
	if err := s.Ready(); err != nil {
		t.Errorf("one shard that refuses ends the service for all others: %v", err)
	}
}

func TestAShardThatWasRestoredRemovesNothing(t *testing.T) {
	s := newSet(t, "", map[string]string{"root": "https://root"})
	root := &sink{set: s, name: "root"}
	org, team := tree.Edge{Parent: "root", Name: "org", Cluster: "org0"}, tree.Edge{Parent: "root", Name: "team", Cluster: "team0"}
	feed(t, root, "before", org, team)
	for _, step := range []struct {
		incarnation string
		known       bool
	}{{"restored", true}, {"restored", false}} { // the second snapshot is that of the same store
		feed(t, root, step.incarnation, org)
		if got := s.index.Lookup("root:team").State == index.Found; got != step.known || s.index.Lookup("root:org").State != index.Found {
			t.Errorf("after a snapshot of %s, root:team is known: %t", step.incarnation, got)
		}
	}
}

func TestMetricsAreForUsersThatRootAllows(t *testing.T) {
	w := newWorld(t)
	f := w.start(nil)
	w.shards["root"].set(func() {
		w.shards["root"].serve = func(rw http.ResponseWriter, r *http.Request) {
			text := new(strings.Builder)
			if _, err := io.Copy(text, r.Body); err != nil || r.URL.Path != reviews || !strings.Contains(text.String(), `{"path":"/metrics","verb":"get"}`) {
				http.Error(rw, "unexpected", http.StatusTeapot)
				return
			}
			allowed := "false"
			if r.Header.Get("X-Remote-User") == "alice" || r.Header.Get("Authorization") == "Bearer of-a-shard" {
				allowed = "true"
			}
			rw.Header().Set("Content-Type", "application/json")
			rw.WriteHeader(http.StatusCreated)
			_, _ = rw.Write([]byte(`{"status":{"allowed":` + allowed + `}}`))
		}
	})
	status := func(user string, header http.Header) int {
		r, err := http.NewRequest(http.MethodGet, f.url+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = header
		response, err := f.client(user).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		return response.StatusCode
	}
	for name, tc := range map[string]struct {
		user   string
		header http.Header
		want   int
	}{
		"a user that root allows":      {"alice", http.Header{}, 200},
		"another user":                 {"bob", http.Header{}, 403},
		"another user with headers":    {"bob", http.Header{"X-Remote-User": {"alice"}}, 403},
		"no credentials":               {"", http.Header{}, 401},
		"only headers":                 {"", http.Header{"X-Remote-User": {"alice"}}, 401},
		"a token that root verifies":   {"", http.Header{"Authorization": {"Bearer of-a-shard"}}, 200},
		"a token that root refuses":    {"", http.Header{"Authorization": {"Bearer other"}}, 403},
		"a token that the proxy knows": {"", http.Header{"Authorization": {"Bearer secret"}}, 403},
	} {
		if got := status(tc.user, tc.header); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
	for _, path := range []string{"/livez", "/readyz", "/healthz", "/readyz/ping"} {
		response, err := f.client("").Get(f.url + path)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", path, response.Status)
		}
	}
}
