package cacheserver

import (
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/shards/peers/peerstest"
)

const exportsPath = "/apis/apis.kcp.io/v1alpha2/apiexports"

func TestAShardWritesItsOwnPartOnly(t *testing.T) {
	s := start(t, nil)
	alpha, beta := s.shard(t, "alpha"), s.shard(t, "beta")
	made := create(t, in(t, alpha, "alpha", "one").Resource(exports), object("things", nil))
	body := `{"apiVersion":"apis.kcp.io/v1alpha2","kind":"APIExport","metadata":{"name":"things"}}`
	at := "/services/cache/shards/alpha/clusters/one" + exportsPath
	strangers := peerstest.NewAuthority(t)
	forged := s.as(t, strangers.Peer(t, peers.Shard, "alpha"))
	forged.CAData = s.peers.PEM
	for name, c := range map[string]struct {
		as          *rest.Config
		read, write int
	}{
		"itself":                         {alpha, http.StatusOK, http.StatusOK},
		"another shard":                  {beta, http.StatusOK, http.StatusForbidden},
		"a front proxy of the same name": {s.as(t, s.peers.Peer(t, peers.Proxy, "alpha")), http.StatusForbidden, http.StatusForbidden},
		"an anonymous client":            {s.as(t), http.StatusUnauthorized, http.StatusUnauthorized},
		"a certificate without a shard":  {s.as(t, s.peers.Certificate(t, "alpha")), http.StatusUnauthorized, http.StatusUnauthorized},
		"a certificate with two shards": {s.as(t, s.peers.Certificate(t, "alpha", "kcp://shard/alpha", "kcp://shard/beta")),
			http.StatusUnauthorized, http.StatusUnauthorized},
		"a shard of another authority": {forged, http.StatusUnauthorized, http.StatusUnauthorized},
		"a shard of the authority of administrators": {
			func() *rest.Config {
				c := s.as(t, s.clients.Peer(t, peers.Shard, "alpha"))
				c.CAData = s.peers.PEM
				return c
			}(), http.StatusForbidden, http.StatusForbidden},
		"an administrator": {s.member(t, "system:masters"), http.StatusOK, http.StatusForbidden},
		"a user":           {s.member(t, "system:authenticated"), http.StatusForbidden, http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{at, at + "/things", at + "?watch=true&timeoutSeconds=1&resourceVersion=" + made.GetResourceVersion(),
				"/services/cache/shards/*/clusters/*" + exportsPath, "/services/cache/shards/*/clusters/*/apis"} {
				if code, message, _ := send(t, c.as, http.MethodGet, path, ""); code != c.read {
					t.Errorf("reads %s: %d %s, want %d", path, code, message, c.read)
				}
			}
			if code, message, _ := send(t, c.as, http.MethodPut, at+"/things", body, "Content-Type", "application/json"); code != c.write {
				t.Errorf("updates: %d %s, want %d", code, message, c.write)
			}
			if c.write == http.StatusOK {
				return
			}
			for _, r := range [][3]string{
				{http.MethodPost, at, "application/json"}, {http.MethodPatch, at + "/things", "application/merge-patch+json"},
				{http.MethodDelete, at + "/things", ""}, {http.MethodDelete, at, ""}, {http.MethodPost, at + "/things", "application/json"},
			} {
				code, message, header := send(t, c.as, r[0], r[1], body, "Content-Type", r[2])
				if code != c.write || header.Get(InstanceHeader) != "" {
					t.Errorf("%s %s: %d %s, want %d", r[0], r[1], code, message, c.write)
				}
			}
		})
	}
	list, err := in(t, beta, "*", "*").Resource(exports).List(t.Context(), metav1.ListOptions{})
	if err != nil || strings.Join(names(list), " ") != "alpha/one/things" {
		t.Errorf("the objects are %v: %v", names(list), err)
	}
}

func TestAdministratorsWriteOnlyWithTheOption(t *testing.T) {
	s := start(t, func(c *Config) { c.AdministratorsWrite = true })
	create(t, in(t, s.member(t, "system:masters"), "alpha", "one").Resource(exports), object("things", nil))
	for _, shard := range []string{"*", "alpha"} {
		path := "/services/cache/shards/" + shard + "/clusters/*" + exportsPath
		if code, message, _ := send(t, s.member(t, "system:masters"), http.MethodDelete, path+"/things", ""); code != http.StatusForbidden {
			t.Errorf("deleting %s: %d %s", path, code, message)
		}
	}
	path := "/services/cache/shards/alpha/clusters/one" + exportsPath + "/things"
	if code, message, _ := send(t, s.member(t, "system:authenticated"), http.MethodDelete, path, ""); code != http.StatusForbidden {
		t.Errorf("a user deletes: %d %s", code, message)
	}
}

func TestAPathHasOneMeaning(t *testing.T) {
	s := start(t, nil)
	alpha, beta := s.shard(t, "alpha"), s.shard(t, "beta")
	create(t, in(t, alpha, "alpha", "one").Resource(exports), object("things", nil))
	create(t, in(t, beta, "beta", "one").Resource(exports), object("things", nil))
	for _, path := range []string{
		"shards/alpha%2fclusters%2fone/clusters/one", "shards/alpha/clusters/one%2f..%2f..%2fbeta", "shards/alpha/clusters/..",
		"shards/../clusters/one", "shards/%2e%2e/clusters/one", "shards//clusters/one", "shards/alpha/clusters/", "shards/alpha//clusters/one",
		"shards/alpha/clusters/one/",
		"shards/ALPHA/clusters/one", "shards/alpha/clusters/One", "shards/alpha%00/clusters/one", "shards/alpha/clusters/one%00",
		"shards/alpha/../../shards/beta/clusters/one", "shards/al*/clusters/one", "shards/**/clusters/one",
		"shards/alpha/clusters/one%252fx", "clusters/one", "shards/alpha", "", "shards/" + strings.Repeat("a", 62) + "/clusters/one",
	} {
		code, message, _ := send(t, alpha, http.MethodGet, Prefix+path+exportsPath, "")
		if code != http.StatusNotFound {
			t.Errorf("GET %s: %d %s", path, code, message)
		}
		if code, message, _ = send(t, alpha, http.MethodDelete, Prefix+path+exportsPath+"/things", ""); code != http.StatusNotFound {
			t.Errorf("DELETE %s: %d %s", path, code, message)
		}
	}
	for _, path := range []string{
		"/apis/apis.kcp.io/v1alpha2/apiexports/", "/apis/apis.kcp.io/v1alpha2/apiexports//", "/apis/apis.kcp.io/v1alpha2//apiexports",
		"/apis/apis.kcp.io/v1alpha2/apiexports/things/status", "/apis/apis.kcp.io/v1alpha2/namespaces/x/apiexports",
		"/apis/apis.kcp.io/v1alpha2/apiexports/%2e%2e", "/apis/apis.kcp.io/v1alpha2/apiexports/..%2f..%2fbeta%2fone%2fthings",
		"/apis/apis.kcp.io/v1alpha1/apiexports", "/apis/apis.kcp.io/v1alpha2/apibindings", "/api/v1/secrets", "/openapi/v2",
	} {
		if code, message, _ := send(t, alpha, http.MethodGet, Prefix+"shards/alpha/clusters/one"+path, ""); code != http.StatusNotFound {
			t.Errorf("GET %s: %d %s", path, code, message)
		}
	}
	if list, err := in(t, alpha, "*", "*").Resource(exports).List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 2 {
		t.Errorf("the objects are %v: %v", names(list), err)
	}
}
