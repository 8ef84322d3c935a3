package feed

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/internal/cacheserver"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/shards/peers/peerstest"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/internal/storage/etcd"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// installation is a cache server, and the authority of the certificates of its shards.
type installation struct {
	server *httptest.Server
	peers  *peerstest.Authority
}

// startInstallation starts a cache server on an etcd of its own.
func startInstallation(t *testing.T) *installation {
	t.Helper()
	store, err := etcd.Start(t.Context(), etcd.Config{Directory: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Stop)
	backend := storage.NewBackend(store.Client(), "/cache", 0)
	t.Cleanup(backend.Close)
	i := &installation{peers: peerstest.NewAuthority(t)}
	handler, err := cacheserver.New(cacheserver.Config{
		Backend: backend, Peers: i.peers, Clock: clocktesting.NewFakeClock(time.Unix(1e9, 0)),
	})
	if err != nil {
		t.Fatal(err)
	}
	i.server = httptest.NewUnstartedServer(cacheserver.WithCache(handler, http.NotFoundHandler()))
	i.server.TLS = &tls.Config{Certificates: []tls.Certificate{i.peers.Certificate(t, "server")}, ClientAuth: tls.RequestClientCert}
	i.server.EnableHTTP2 = true
	i.server.StartTLS()
	t.Cleanup(func() { i.server.CloseClientConnections(); i.server.Close() })
	return i
}

// client returns the client of a shard.
func (i *installation) client(t *testing.T, shard string) *Client {
	t.Helper()
	return i.clientThrough(t, shard, nil)
}

// clientThrough returns the client of a shard whose requests go through a wrapper.
func (i *installation) clientThrough(t *testing.T, shard string, wrapper func(http.RoundTripper) http.RoundTripper) *Client {
	t.Helper()
	client, err := NewClient(&rest.Config{
		Host: i.server.URL + "/services/cache", TLSClientConfig: i.peers.ClientConfig(t, i.peers.Peer(t, peers.Shard, shard)),
		WrapTransport: wrapper,
	}, shard)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// paths returns what a shard reads of all shards.
func paths(t *testing.T, reader *Client, o *Offer) []string {
	t.Helper()
	var found []string
	for _, k := range append(slices.Clone(o.kinds), o.clusters, o.workspaces) {
		err := reader.list(t.Context(), "*", k.resource, "*", func(u *unstructured.Unstructured) {
			found = append(found, u.GetAnnotations()[cacheserver.Shard]+" "+string(logicalcluster.Of(u))+" "+k.name+" "+u.GetName())
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(found)
	return found
}

// inRoot are the kinds of which only the objects in root are offered.
var inRoot = map[string]bool{"Shard": true, "LogicalClusterMigration": true}

func TestACacheServerAcceptsEveryKindAndKeepsIt(t *testing.T) {
	i := startInstallation(t)
	w := newWorld(t)
	w.offer.cache = i.client(t, "here")
	w.connect()
	w.has("root", logicalCluster("", ""), workspace("org", "o", "here"))
	w.has("o", logicalCluster("root", "org"), export("widgets"), role("binder", resourceRule(apisGroup, "apiexports", "bind")),
		bindingTo("binder", subject("User", "bob")))
	for _, k := range w.offer.kinds {
		if k.isRBAC() || k.name == "APIExport" {
			continue
		}
		obj := w.example(k)
		obj.SetName("one")
		w.has(map[bool]string{true: "root", false: "o"}[inRoot[k.name]], obj)
	}
	w.settle()
	want := []string{"here root LogicalCluster cluster", "here o LogicalCluster cluster", "here root Workspace org"}
	for _, k := range w.offer.kinds {
		switch {
		case inRoot[k.name]:
			want = append(want, "here root "+k.name+" one")
		case k.name == "APIExport":
			want = append(want, "here o APIExport widgets")
		case k.rank == rankRole:
			want = append(want, "here o ClusterRole binder")
		case k.rank == rankBinding:
			want = append(want, "here o ClusterRoleBinding binding")
		default:
			want = append(want, "here o "+k.name+" one")
		}
	}
	slices.Sort(want)
	reader := i.client(t, "there")
	equal(t, "what another shard reads", paths(t, reader, w.offer), want...)

	before := versionsOf(w.offer)
	w.connect()
	w.settle()
	if after := versionsOf(w.offer); !slices.Equal(after, before) {
		t.Errorf("a comparison wrote objects that were equal: before %v, after %v", before, after)
	}
	e := export("widgets")
	e.Status = apisv1alpha2.APIExportStatus{IdentityHash: "h"}
	w.has("o", e)
	w.settle()
	w.hasNot("o", export("widgets"))
	w.settle()
	if slices.Contains(paths(t, reader, w.offer), "here o APIExport widgets") {
		t.Error("a deleted export is still read")
	}
}

// versionsOf returns the resource versions of the cache server.
func versionsOf(o *Offer) []string {
	var versions []string
	for cluster, k := range o.known {
		for i, e := range k.objects {
			versions = append(versions, string(cluster)+" "+i.kind.name+" "+i.name+" "+e.version)
		}
	}
	slices.Sort(versions)
	return versions
}

func TestAShardCannotWriteThePartOfAnother(t *testing.T) {
	i := startInstallation(t)
	w := newWorld(t)
	thief := i.client(t, "thief")
	thief.shard = "here" // with the certificate of thief
	w.offer.cache = thief
	if err := w.offer.compare(t.Context()); err == nil {
		t.Error("it may claim to be the leader of another shard")
	}
	w.offer.connected = true
	w.has("root", logicalCluster("", ""), export("widgets"))
	if errs := w.try(); len(errs) == 0 {
		t.Error("the write succeeds")
	}
	equal(t, "what a shard reads", paths(t, i.client(t, "here"), w.offer))
}

func TestAFormerLeaderCannotWriteToACacheServer(t *testing.T) {
	i := startInstallation(t)
	w := newWorld(t)
	w.offer.cache = i.client(t, "here")
	w.connect()
	w.has("root", logicalCluster("", ""), export("widgets"))
	w.settle()
	former := w.offer
	w.term = 8
	w.offer = w.leader()
	w.offer.cache = i.client(t, "here")
	later := export("widgets")
	later.Labels = map[string]string{"written-by": "leader"}
	w.has("root", later)
	w.connect()
	w.settle()

	w.offer = former
	stale := export("widgets")
	stale.Labels = map[string]string{"written-by": "former"}
	w.has("root", stale)
	for range 3 {
		w.offer.pending.add("root")
		if errs := w.try(); len(errs) == 0 {
			t.Error("the former leader writes")
		}
	}
	content := map[string]string{}
	err := former.cache.list(t.Context(), "here", w.Set.APIExports.Resource(), "*", func(u *unstructured.Unstructured) { content = u.GetLabels() })
	if err != nil || content["written-by"] != "leader" {
		t.Errorf("got %v, %v", content, err)
	}
}

// delaying keeps the first request with a method and fails, as if the network were slow.
type delaying struct {
	next   http.RoundTripper
	method string
	kept   *http.Request
}

func (d *delaying) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != d.method || d.kept != nil {
		return d.next.RoundTrip(r)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	d.kept = r.Clone(context.WithoutCancel(r.Context()))
	d.kept.Body = io.NopCloser(bytes.NewReader(body))
	return nil, errors.New("the connection was lost")
}

func TestAWriteThatArrivesLateIsRefused(t *testing.T) {
	for _, method := range []string{http.MethodPost, http.MethodDelete} {
		t.Run(method, func(t *testing.T) {
			i := startInstallation(t)
			w := newWorld(t)
			d := &delaying{method: method}
			w.offer.cache = i.clientThrough(t, "here", func(next http.RoundTripper) http.RoundTripper { d.next = next; return d })
			w.connect()
			w.has("root", logicalCluster("", ""), export("stays"))
			w.offer.pending.add("root")
			if method == http.MethodDelete {
				w.has("root", export("widgets"))
				w.settle()
				w.hasNot("root", export("widgets"))
			}
			if errs := w.try(); len(errs) == 0 {
				t.Fatal("the lost write has no error")
			}
			if method == http.MethodDelete {
				w.has("root", export("widgets"))
			} else {
				w.hasNot("root", export("stays"))
			}
			if err := w.offer.check(t.Context(), w.offer.cache.Instance(), w.clock.Now()); err != nil || w.offer.isConnected() {
				t.Errorf("what the cache server has is not read again: %v", err)
			}
			w.connect()
			w.offer.pending.add("root")
			w.settle()
			before := paths(t, i.client(t, "there"), w.offer)
			response, err := d.next.RoundTrip(d.kept)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			if response.StatusCode != http.StatusConflict {
				t.Errorf("the write that arrives late got %s", response.Status)
			}
			equal(t, "what another shard reads", paths(t, i.client(t, "there"), w.offer), before...)
		})
	}
}
