package expectation

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/shards/tree"
)

// places hold aaa.
type places struct{ err error }

func (p places) Check(_ context.Context, _ peers.Identity, e tree.Expectation) (*tree.Marker, error) {
	if p.err != nil || e.Cluster == "aaa" {
		return nil, p.err
	}
	return &tree.Marker{Shard: "eu", Incarnation: "a", Verdict: tree.Moved, To: "us", Epoch: 4}, nil
}

// unread is a body that must not be read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body is read")
	return 0, io.EOF
}

func TestOnlyProxiesGetMarkers(t *testing.T) {
	caller := func(r *http.Request) (peers.Identity, error) {
		kind, name, ok := strings.Cut(r.Header.Get("Test-Caller"), "/")
		if !ok {
			return peers.Identity{}, errors.New("no certificate")
		}
		return peers.Identity{Kind: peers.Kind(kind), Name: name}, nil
	}
	for name, c := range map[string]struct {
		caller string
		expect []string
		err    error
		code   int
		marker string
	}{
		"a proxy that is right":       {"proxy/p", []string{"aaa;;1"}, nil, http.StatusOK, ""},
		"a proxy that is wrong":       {"proxy/p", []string{"bbb;;1"}, nil, http.StatusMisdirectedRequest, "eu;a;moved;us;4"},
		"a proxy without expectation": {"proxy/p", nil, nil, http.StatusOK, ""},
		"a proxy with nonsense":       {"proxy/p", []string{"../x"}, nil, http.StatusBadRequest, ""},
		"a proxy with two":            {"proxy/p", []string{"aaa;;1", "bbb;;1"}, nil, http.StatusBadRequest, ""},
		"a proxy, without storage":    {"proxy/p", []string{"aaa;;1"}, errors.New("no etcd"), http.StatusInternalServerError, ""},
		"a shard":                     {"shard/us", []string{"bbb;;1"}, nil, http.StatusOK, ""},
		"a client":                    {"", []string{"bbb;;1"}, nil, http.StatusOK, ""},
		"a client with nonsense":      {"", []string{"../x", "y"}, nil, http.StatusOK, ""},
	} {
		served := false
		h := Config{Places: places{c.err}, Caller: caller, Serializer: legacyscheme.Codecs}.WithMarkers(
			http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				served = true
				if len(r.Header.Values(tree.ExpectHeader)) > 0 {
					t.Errorf("%s: the header is passed on", name)
				}
			}))
		r := httptest.NewRequest(http.MethodPost, "/clusters/bbb/api", unread{t})
		r.Header.Set("Test-Caller", c.caller)
		r.Header[http.CanonicalHeaderKey(tree.ExpectHeader)] = c.expect
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.code || w.Header().Get(tree.PlacementHeader) != c.marker || served != (c.code == http.StatusOK) {
			t.Errorf("%s: got %d, marker %q, served %t", name, w.Code, w.Header().Get(tree.PlacementHeader), served)
		}
	}
}
