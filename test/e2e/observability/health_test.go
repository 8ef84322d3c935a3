package observability

import (
	"net/http"
	"strings"
	"testing"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

func TestAllUsersCanReadHealth(t *testing.T) {
	t.Parallel()
	for _, user := range []kcptest.User{kcptest.Anonymous, kcptest.Alice, kcptest.Masters} {
		for _, path := range []string{"/healthz", "/livez", "/readyz"} {
			if code, body := get(t, user, path); code != http.StatusOK || string(body) != "ok" {
				t.Errorf("as %s: got %d %s from %s", user.Name, code, body, path)
			}
		}
	}
}

func TestReadinessListsChecks(t *testing.T) {
	t.Parallel()
	code, body := get(t, kcptest.Anonymous, "/readyz?verbose")
	if code != http.StatusOK {
		t.Fatalf("got %d %s", code, body)
	}
	for _, check := range []string{"etcd", "informer-sync", "poststarthook/kcp-informers", "poststarthook/kcp-bootstrap", "poststarthook/kcp-controllers", "shutdown"} {
		if !strings.Contains(string(body), "[+]"+check+" ok") {
			t.Errorf("%s is missing in\n%s", check, body)
		}
	}
	if code, _ := get(t, kcptest.Masters, "/readyz/etcd"); code != http.StatusOK {
		t.Errorf("a single check: got %d", code)
	}
	if code, _ := get(t, kcptest.Masters, "/readyz/nonsense"); code != http.StatusNotFound {
		t.Errorf("a check that does not exist: got %d", code)
	}
}

func TestVersionIsServed(t *testing.T) {
	t.Parallel()
	if code, body := get(t, kcptest.Masters, "/version"); code != http.StatusOK || !strings.Contains(string(body), "gitVersion") {
		t.Errorf("got %d %s", code, body)
	}
}
