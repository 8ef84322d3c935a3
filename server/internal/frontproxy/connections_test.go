package frontproxy

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// serveTwo lets shard two serve requests by f.
func (w *world) serveTwo(f http.HandlerFunc) {
	w.shards["two"].set(func() { w.shards["two"].serve = f })
}

func TestAClientThatClosesItsConnectionLeavesThatToTheShardOpen(t *testing.T) {
	w := newWorld(t)
	f := w.start(nil)
	addresses := map[string]bool{}
	w.serveTwo(func(_ http.ResponseWriter, r *http.Request) { addresses[r.RemoteAddr] = true })
	for range 3 {
		client := f.client("alice")
		transport := client.Transport.(*http.Transport)
		transport.ForceAttemptHTTP2, transport.TLSClientConfig.NextProtos = false, []string{"http/1.1"}
		r, err := http.NewRequest(http.MethodGet, f.url+"/clusters/team0/api", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Close = true
		response, err := client.Do(r)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatal(response, err)
		}
		_ = response.Body.Close()
	}
	if len(addresses) != 1 {
		t.Errorf("3 requests came to the shard on %d connections, want 1", len(addresses))
	}
}

func TestAResponseThatBreaksIsNotComplete(t *testing.T) {
	w := newWorld(t)
	f := w.start(nil)
	w.serveTwo(func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(rw, "half")
		_ = http.NewResponseController(rw).Flush()
		panic(http.ErrAbortHandler)
	})
	for _, query := range []string{"", "?watch=true"} {
		response, err := f.client("alice").Get(f.url + "/clusters/team0/api" + query)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(response.Body); err == nil {
			t.Errorf("%q: the client takes %q for the whole response", query, text)
		}
		_ = response.Body.Close()
	}
}

func TestAResponseThatComesBeforeTheBodyIsReadPasses(t *testing.T) {
	w := newWorld(t)
	f := w.start(nil)
	w.serveTwo(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusTeapot) })
	for name, body := range map[string]io.Reader{
		"a small body": strings.NewReader("x"), "a body of unknown length": io.MultiReader(strings.NewReader("x")),
		"a large body": strings.NewReader(strings.Repeat("x", 1<<20)),
	} {
		response, err := f.client("alice").Post(f.url+"/clusters/team0/api", "text/plain", body)
		if err != nil {
			t.Fatal(name, err)
		}
		if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != http.StatusTeapot {
			t.Errorf("%s: %s, %v", name, response.Status, err)
		}
		_ = response.Body.Close()
	}
}

func TestABackendCannotUpgradeAConnectionOnItsOwn(t *testing.T) {
	w := newWorld(t)
	w.shards["two"].server.TLS.NextProtos = []string{"http/1.1"}
	f := w.start(nil)
	w.serveTwo(func(rw http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	})
	if _, response, _ := f.ask(f.client("alice"), http.MethodGet, "/clusters/team0/api", nil, nil); response.StatusCode != http.StatusInternalServerError {
		t.Errorf("got %s", response.Status)
	}
}
