package frontproxy

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kcplane/kcp/server/internal/shards/tree"
)

func TestAProxyRoutesWithoutTheRootShardFromItsStart(t *testing.T) {
	w, directory := newWorld(t), t.TempDir()
	stored := func(o *Options) { o.RootDirectory = directory }
	w.start(stored).stop()
	root, two := w.shards["root"], w.shards["two"]
	root.set(func() {
		root.down = true
		root.answer = func(tree.Question) (tree.Answer, error) { return tree.Answer{}, errors.New("down") }
	})
	f := w.start(stored)
	alice := f.client("alice")
	for _, path := range []string{"root:org:team", "team0"} {
		if got, _, _ := f.ask(alice, http.MethodGet, "/clusters/"+path+"/api", nil, nil); got.Shard != "two" {
			t.Errorf("%s: got %+v", path, got)
		}
	}
	two.set(func() { two.markers["team0"] = tree.Marker{Shard: "two", Incarnation: "x", Verdict: tree.Deleted} })
	for _, path := range []string{"root:org:team", "root:new"} { // perhaps there is another one now
		if _, response, _ := f.ask(alice, http.MethodGet, "/clusters/"+path+"/api", nil, nil); response.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("%s: got %s, want 503", path, response.Status)
		}
	}
}

func TestAnInvalidStateIsIgnored(t *testing.T) {
	directory := t.TempDir()
	file := filepath.Join(directory, stateFile)
	replace(t, file, `{"shards": {"two": "https://two"`)
	s := newSet(t, directory, map[string]string{"root": "https://root"})
	if names := s.Names(); len(names) != 1 {
		t.Errorf("got %v", names)
	}
	s.store()
	if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), `"root": "https://root"`) {
		t.Errorf("got %s, %v", text, err)
	}
	entries, err := os.ReadDir(directory)
	if err != nil || len(entries) != 1 {
		t.Errorf("got %v, %v", entries, err)
	}
}
