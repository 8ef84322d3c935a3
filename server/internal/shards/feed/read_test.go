package feed

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/cacheserver"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/shards/peers/peerstest"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/internal/storage/etcd"
	"github.com/kcplane/kcp/server/internal/tenancy/placement"
	"github.com/kcplane/kcp/server/logicalcluster"
)

var etcdClient = struct {
	sync.Mutex
	*clientv3.Client
	stop func()
}{}

func TestMain(m *testing.M) {
	code := m.Run()
	if etcdClient.stop != nil {
		etcdClient.stop()
	}
	os.Exit(code)
}

// newBackend returns the part of an etcd for one test.
func newBackend(t testing.TB, part string) *storage.Backend {
	t.Helper()
	etcdClient.Lock()
	defer etcdClient.Unlock()
	if etcdClient.Client == nil {
		directory, err := os.MkdirTemp("", "feed-test-")
		if err != nil {
			t.Fatal(err)
		}
		server, err := etcd.Start(context.Background(), etcd.Config{Directory: filepath.Join(directory, "etcd")})
		if err != nil {
			t.Fatal(err)
		}
		etcdClient.Client, etcdClient.stop = server.Client(), func() { server.Stop(); _ = os.RemoveAll(directory) }
	}
	backend := storage.NewBackend(etcdClient.Client, "/"+strings.ReplaceAll(t.Name(), "/", "_")+part, 0)
	t.Cleanup(backend.Close)
	return backend
}

// cacheServer is a cache server that can be replaced by an empty one.
type cacheServer struct {
	t     testing.TB
	peers *peerstest.Authority
	*httptest.Server

	mu      sync.Mutex
	handler http.Handler
	emptied int
}

func startCacheServer(t testing.TB) *cacheServer {
	s := &cacheServer{t: t, peers: peerstest.NewAuthority(t)}
	s.empty()
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		h := s.handler
		s.mu.Unlock()
		h.ServeHTTP(w, r)
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{s.peers.Certificate(t, "server")}, ClientAuth: tls.RequestClientCert}
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Server.Close)
	t.Cleanup(s.CloseClientConnections)
	return s
}

// empty replaces the server by one without content, and ends all connections.
func (s *cacheServer) empty() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.emptied++
	handler, err := cacheserver.New(cacheserver.Config{
		Backend: newBackend(s.t, fmt.Sprintf("-cache-%d", s.emptied)), Peers: s.peers, Clock: clock.RealClock{},
		Stopping: s.t.Context(),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.handler = handler
	if s.Server != nil {
		s.CloseClientConnections()
	}
}

func (s *cacheServer) config(shard string) *rest.Config {
	config := &rest.Config{Host: s.URL, QPS: -1, TLSClientConfig: s.peers.ClientConfig(s.t, s.peers.Peer(s.t, peers.Shard, shard))}
	config.Host += "/services/cache"
	return config
}

// in returns a client of a shard for one of its clusters.
func (s *cacheServer) in(shard, cluster string, resource schema.GroupVersionResource) dynamic.ResourceInterface {
	s.t.Helper()
	config := s.config(shard)
	config.Host += "/shards/" + shard + "/clusters/" + cluster
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		s.t.Fatal(err)
	}
	return client.Resource(resource)
}

var (
	exportsResource    = apisv1alpha2.SchemeGroupVersion.WithResource("apiexports")
	schemasResource    = apisv1alpha1.SchemeGroupVersion.WithResource("apiresourceschemas")
	clustersResource   = corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters")
	workspacesResource = tenancyv1alpha1.SchemeGroupVersion.WithResource("workspaces")
	shardsResource     = corev1alpha1.SchemeGroupVersion.WithResource("shards")
)

var kindOfResource = map[schema.GroupVersionResource]string{
	exportsResource: "APIExport", schemasResource: "APIResourceSchema", clustersResource: "LogicalCluster", workspacesResource: "Workspace",
	shardsResource: "Shard",
}

// offered is what a shard writes to the cache server for an object.
func offeredObject(t testing.TB, resource schema.GroupVersionResource, obj objecttest.Object, version int, incarnation string) *unstructured.Unstructured {
	t.Helper()
	content, err := kruntime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(resource.GroupVersion().WithKind(kindOfResource[resource]))
	annotations := map[string]string{
		cacheserver.OriginalUID: string(obj.GetUID()), cacheserver.OriginalResourceVersion: fmt.Sprint(version), cacheserver.Incarnation: incarnation,
		cacheserver.LeaderTerm: "1",
	}
	for key, value := range obj.GetAnnotations() {
		annotations[key] = value
	}
	u.SetAnnotations(annotations)
	u.SetUID("")
	u.SetResourceVersion("")
	return u
}

// put writes an object to the cache server as its shard.
func (s *cacheServer) put(shard string, resource schema.GroupVersionResource, obj objecttest.Object, version int, incarnation string) {
	s.t.Helper()
	client := s.in(shard, logicalcluster.Of(obj).String(), resource)
	u := offeredObject(s.t, resource, obj, version, incarnation)
	_, err := client.Create(s.t.Context(), u, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = client.Update(s.t.Context(), u, metav1.UpdateOptions{})
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *cacheServer) remove(shard string, resource schema.GroupVersionResource, obj objecttest.Object) {
	s.t.Helper()
	client := s.in(shard, logicalcluster.Of(obj).String(), resource)
	if err := client.Delete(s.t.Context(), obj.GetName(), metav1.DeleteOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// tree offers the clusters root (shard root) and org (shard east).
func (s *cacheServer) tree() {
	s.t.Helper()
	s.put("root", clustersResource, rootCluster(), 1, "a")
	s.put("root", workspacesResource, orgWorkspace(), 2, "a")
	s.put("east", clustersResource, orgCluster(), 1, "b")
}

func rootCluster() *corev1alpha1.LogicalCluster {
	return objecttest.In("root", &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster", UID: "root"}})
}

func orgWorkspace() *tenancyv1alpha1.Workspace {
	ws := objecttest.In("root", &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: "org", UID: "ws"}})
	ws.Annotations[tenancyv1alpha1.ShardAnnotation] = "east"
	ws.Spec.Cluster = "org"
	return ws
}

func orgCluster() *corev1alpha1.LogicalCluster {
	lc := objecttest.In("org", &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster", UID: "lc"}})
	lc.Spec.Owner = &corev1alpha1.LogicalClusterOwner{APIVersion: "tenancy.kcp.io/v1alpha1", Resource: "workspaces", Cluster: "root", Name: "org", UID: "ws"}
	return lc
}

func widgets(cluster, uid string) *apisv1alpha2.APIExport {
	export := objecttest.In(cluster, &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: "widgets", UID: types.UID(uid)}})
	export.Spec.Resources = []apisv1alpha2.ResourceSchema{{Group: "example.org", Name: "widgets", Schema: "v1.widgets.example.org"}}
	export.Status.IdentityHash = "hash"
	return export
}

// reading is a shard named west that reads.
type reading struct {
	*objecttest.Objects
	*Reader
	elsewhere *informers.Elsewhere
	clock     *testclock.FakeClock
}

func newReading(t testing.TB, cache *rest.Config, objects ...objecttest.Object) *reading {
	t.Helper()
	r := &reading{Objects: objecttest.New(t, objects...), clock: testclock.NewFakeClock(time.Now())}
	r.elsewhere = r.Share(placement.New(r.Set, "west").Placement)
	var err error
	r.Reader, err = NewReader(ReaderInputs{Set: r.Set, Elsewhere: r.elsewhere, Shard: "west", Cache: cache, Clock: r.clock})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *reading) start(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.Reader.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
}

// eventually waits until a condition is true.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
		runtime.Gosched()
		time.Sleep(time.Millisecond)
	}
}

func (r *reading) uid() string {
	found, err := r.Set.APIExports.Get("org", "", "widgets")
	if err != nil {
		return ""
	}
	return string(found.UID)
}

func TestAReaderFollowsTheCacheServer(t *testing.T) {
	cache := startCacheServer(t)
	cache.tree()
	cache.put("east", exportsResource, widgets("org", "first"), 5, "b")
	cache.put("evil", exportsResource, widgets("org", "forged"), 9, "e")
	cache.put("west", exportsResource, widgets("org", "own"), 9, "w")
	r := newReading(t, cache.config("west"))
	if r.Loaded("org") {
		t.Error("everything is loaded before it is read")
	}
	r.start(t)
	if err := r.Listed(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !r.Loaded("org") {
		t.Error("not everything is loaded after it is read")
	}
	found, err := r.Set.APIExports.Get("org", "", "widgets")
	if err != nil || found.UID != "first" || found.ResourceVersion != "5" || found.Status.IdentityHash != "hash" {
		t.Fatalf("got %+v, %v", found, err)
	}
	for _, key := range []string{cacheserver.Shard, cacheserver.OriginalUID, cacheserver.LeaderTerm} {
		if _, ok := found.Annotations[key]; ok {
			t.Errorf("the annotation %s is kept", key)
		}
	}
	if offers := r.Set.APIExports.Offers("org"); len(offers) != 2 {
		t.Errorf("got offers %v, want those of east and evil, and not our own", offers)
	}
	changed := widgets("org", "first")
	changed.Status.IdentityHash = "changed"
	cache.put("east", exportsResource, changed, 7, "b")
	eventually(t, "the export changes", func() bool {
		found, err := r.Set.APIExports.Get("org", "", "widgets")
		return err == nil && found.Status.IdentityHash == "changed"
	})
	cache.remove("east", exportsResource, changed)
	eventually(t, "the export is removed", func() bool { return r.uid() == "" })
}

func TestOnlySchemasOfNeededClustersAreRead(t *testing.T) {
	widget := objecttest.In("org", &apisv1alpha1.APIResourceSchema{ObjectMeta: metav1.ObjectMeta{Name: "v1.widgets.example.org", UID: "schema"}})
	widget.Spec.Group = "example.org"
	cache := startCacheServer(t)
	cache.tree()
	cache.put("east", schemasResource, widget, 5, "b")
	r := newReading(t, cache.config("west"))
	r.start(t)
	if err := r.Listed(t.Context()); err != nil {
		t.Fatal(err)
	}
	if keys := r.elsewhere.AllOffered(r.Set.APIResourceSchemas.Informer); len(keys) > 0 {
		t.Errorf("schemas that nothing needs are kept: %v", keys)
	}
	has := func() bool {
		found, err := r.Set.APIResourceSchemas.Get("org", "", widget.Name)
		return err == nil && found.UID == "schema" && found.Spec.Group == "example.org"
	}
	r.schemas.need(map[logicalcluster.Name]bool{"org": true})
	eventually(t, "the schema is read", has)
	second := widget.DeepCopy()
	second.Name, second.UID = "v2.widgets.example.org", "second"
	cache.put("east", schemasResource, second, 6, "b")
	eventually(t, "a new schema is read", func() bool {
		_, err := r.Set.APIResourceSchemas.Get("org", "", second.Name)
		return err == nil
	})
	cache.remove("east", schemasResource, second)
	eventually(t, "a schema is removed", func() bool {
		_, err := r.Set.APIResourceSchemas.Get("org", "", second.Name)
		return apierrors.IsNotFound(err) && has()
	})
	r.schemas.need(nil)
	eventually(t, "the schema is forgotten", func() bool { return len(r.elsewhere.AllOffered(r.Set.APIResourceSchemas.Informer)) == 0 })
}

func TestAnEmptyCacheServerTakesNothingAway(t *testing.T) {
	cache := startCacheServer(t)
	cache.tree()
	cache.put("east", exportsResource, widgets("org", "first"), 5, "b")
	r := newReading(t, cache.config("west"))
	r.start(t)
	if err := r.Listed(t.Context()); err != nil {
		t.Fatal(err)
	}
	cache.empty()
	cache.put("root", clustersResource, rootCluster(), 1, "a")
	cache.put("root", workspacesResource, orgWorkspace(), 2, "a")
	eventually(t, "the new cache server is read", func() bool {
		offering := map[string]bool{}
		for _, s := range r.sources {
			s.addShards(offering)
		}
		return offering["root"] && !offering["east"]
	})
	r.sweepOnce(r.clock.Now().Add(100 * absentGrace))
	if r.uid() != "first" {
		t.Error("an object of a silent shard is removed")
	}
	cache.put("east", clustersResource, orgCluster(), 1, "b")
	eventually(t, "east offers something again", func() bool {
		offering := map[string]bool{}
		for _, s := range r.sources {
			s.addShards(offering)
		}
		return offering["east"]
	})
	r.sweepOnce(r.clock.Now().Add(absentGrace - time.Second))
	if r.uid() != "first" {
		t.Error("an object is removed before its shard has compared what it offers")
	}
	r.sweepOnce(r.clock.Now().Add(absentGrace))
	eventually(t, "the object is removed that its shard does not offer", func() bool {
		r.sweepOnce(r.clock.Now().Add(absentGrace)) // the exports may be listed later than the clusters
		return r.uid() == ""
	})
}

func TestPositionsOfAnIncarnationOnlyRise(t *testing.T) {
	for name, test := range map[string]struct {
		now, held  position
		registered string
		want       bool
	}{
		"newer":                                {position{"a", 6}, position{"a", 5}, "a", true},
		"equal":                                {position{"a", 5}, position{"a", 5}, "a", true},
		"older":                                {position{"a", 4}, position{"a", 5}, "a", false},
		"the registered incarnation":           {position{"b", 1}, position{"a", 5}, "b", true},
		"an earlier incarnation":               {position{"a", 9}, position{"b", 5}, "b", false},
		"an unknown incarnation of the shard":  {position{"b", 1}, position{"a", 5}, "", true},
		"two incarnations, neither registered": {position{"b", 1}, position{"a", 5}, "c", true},
	} {
		if got := test.now.follows(test.held, test.registered); got != test.want {
			t.Errorf("%s: got %t, want %t", name, got, test.want)
		}
	}
}
