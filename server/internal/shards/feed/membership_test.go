package feed

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/kcplane/kcp/server/internal/cacheserver"
)

func TestACacheServerOfAnotherInstallationIsNoticed(t *testing.T) {
	own, owner, got := "", "", ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Get(cacheserver.InstallationHeader)
		if owner != "" {
			w.Header().Set(cacheserver.InstallationHeader, owner)
		}
	}))
	defer server.Close()
	m := &Membership{Installation: func(context.Context) string { return own }}
	client := http.Client{Transport: m.Wrap(http.DefaultTransport)}
	for _, step := range []struct{ own, owner, other string }{
		{"", "theirs", ""}, {"ours", "", ""}, {"ours", "ours", ""}, {"ours", "theirs", "theirs"}, {"ours", "theirs", "theirs"},
		{"ours", "ours", ""},
	} {
		own, owner = step.own, step.owner
		response, err := client.Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if got != own || m.Other() != step.other {
			t.Errorf("%+v: the request names %q, and the other installation is %q", step, got, m.Other())
		}
	}
}
