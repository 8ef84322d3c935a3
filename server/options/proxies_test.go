package options

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/kcplane/kcp/server/internal/shards/peers/peerstest"
)

func TestAShardAcceptsHeadersFromNamedProxiesOnly(t *testing.T) {
	proxies, clients := peerstest.NewAuthority(t), peerstest.NewAuthority(t)
	together := filepath.Join(t.TempDir(), "both.crt")
	if err := os.WriteFile(together, bytes.Join([][]byte{clients.PEM, proxies.PEM}, nil), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		peerCA, headerCA, clientCA string
		names                      []string
		valid                      bool
	}{
		"named proxies":                          {"peers", proxies.File, clients.File, []string{"p"}, true},
		"named proxies without users":            {"peers", proxies.File, "", []string{"p"}, true},
		"no proxies":                             {"peers", "", clients.File, nil, true},
		"no names":                               {"peers", proxies.File, clients.File, nil, false},
		"the authority of users":                 {"peers", clients.File, clients.File, []string{"p"}, false},
		"the authority of users among others":    {"peers", together, clients.File, []string{"p"}, false},
		"one of the authorities of users":        {"peers", proxies.File, together, []string{"p"}, false},
		"a file that does not exist":             {"peers", "absent", clients.File, []string{"p"}, false},
		"a server without other shards, as ever": {"", clients.File, clients.File, nil, true},
	} {
		o := New()
		o.Sharding.PeerCA = c.peerCA
		o.Generic.Authentication.RequestHeader.ClientCAFile = c.headerCA
		o.Generic.Authentication.RequestHeader.AllowedNames = c.names
		o.Generic.Authentication.ClientCert.ClientCA = c.clientCA
		if err := o.validateProxies(); (err == nil) != c.valid {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
