package logicalclustermigration

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/client-go/kubernetes/scheme"
	testingclock "k8s.io/utils/clock/testing"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	migrationv1alpha1 "github.com/kcplane/kcp/api/migration/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/internal/shards/migration"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/shards/peers/peerstest"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/internal/storage/etcd"
	"github.com/kcplane/kcp/server/internal/tenancy/placement"
	"github.com/kcplane/kcp/server/internal/tenancy/scheduling"
	"github.com/kcplane/kcp/server/logicalcluster"
)

var database *etcd.Server

func TestMain(m *testing.M) {
	os.Exit(func() int {
		directory, err := os.MkdirTemp("", "logicalclustermigration-test-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(directory)
		if database, err = etcd.Start(context.Background(), etcd.Config{Directory: directory, WALSizeBytes: 1 << 20}); err != nil {
			panic(err)
		}
		defer database.Stop()
		return m.Run()
	}())
}

const (
	moving = logicalcluster.Name("moving")
	// collections is the number of collections with one key of the cluster, its LogicalCluster included.
	collections = 10
)

var key = informers.Key{Cluster: logicalcluster.Root, Name: "move"}

// move returns a migration to a shard.
func move(to string, change ...func(*migrationv1alpha1.LogicalClusterMigration)) *migrationv1alpha1.LogicalClusterMigration {
	obj := objecttest.In("root", &migrationv1alpha1.LogicalClusterMigration{
		ObjectMeta: metav1.ObjectMeta{Name: key.Name, UID: "uid"},
		Spec:       migrationv1alpha1.LogicalClusterMigrationSpec{LogicalCluster: string(moving), DestinationShard: to},
		Status:     migrationv1alpha1.LogicalClusterMigrationStatus{Phase: migrationv1alpha1.PhasePreparing},
	})
	for _, c := range change {
		c(obj)
	}
	return obj
}

func isDeleted(obj *migrationv1alpha1.LogicalClusterMigration) {
	now := metav1.Now()
	obj.DeletionTimestamp, obj.Finalizers = &now, []string{migrationv1alpha1.RunningFinalizer}
}

func shard(name string) *corev1alpha1.Shard {
	return objecttest.In("root", &corev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

// root has the migrations, and receives the reports of a shard.
type root struct {
	*objecttest.Objects
	reports *migration.Reports
	shard   string
	clock   *testingclock.FakeClock

	// refuse, if it is not nil, returns the error of a report that does not arrive; lose that of one whose response is lost.
	refuse, lose func(migration.Report) error
	reported     []migration.Report
	at           []time.Time // when reports have arrived
}

func newRoot(t *testing.T, name string, objects ...objecttest.Object) *root {
	t.Helper()
	r := &root{Objects: objecttest.New(t, objects...), shard: name, clock: testingclock.NewFakeClock(time.Now())}
	r.reports = &migration.Reports{Migrations: r.Stored(r.Set.LogicalClusterMigrations.Informer)}
	return r
}

func (r *root) report(ctx context.Context, in migration.Report) (*migrationv1alpha1.LogicalClusterMigration, error) {
	if r.refuse != nil {
		if err := r.refuse(in); err != nil {
			return nil, err
		}
	}
	r.reported, r.at = append(r.reported, in), append(r.at, r.clock.Now())
	live, err := r.reports.Show(ctx, peers.Identity{Kind: peers.Shard, Name: r.shard}, in)
	if err == nil && r.lose != nil {
		err = r.lose(in)
	}
	return live, err
}

// controller returns the controller of the shard, which remembers nothing.
func (r *root) controller(destination *migration.Destination) *runner.Controller {
	return New(Inputs{Set: r.Set, ShardName: r.shard, Destination: destination, Report: r.report, Clock: r.clock})
}

// stored returns the migration, and false if it does not exist.
func (r *root) stored(t *testing.T) (*migrationv1alpha1.LogicalClusterMigration, bool) {
	t.Helper()
	live := &migrationv1alpha1.LogicalClusterMigration{}
	err := r.reports.Migrations.Get(logicalcluster.WithName(t.Context(), logicalcluster.Root), key.Name, live)
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return live, err == nil
}

// delete deletes the migration.
func (r *root) delete(t *testing.T) {
	t.Helper()
	live, exists := r.stored(t)
	if !exists || live.DeletionTimestamp != nil {
		return
	}
	now := metav1.Now()
	live.DeletionTimestamp = &now
	r.Store(live)
	r.Show(live)
}

// store is the etcd of a shard. No process follows its fences, so nothing waits for one.
type store struct {
	root    string
	client  *clientv3.Client
	backend *storage.Backend
	copies  *storage.Copies
}

func newStore(t *testing.T, shard string) *store {
	t.Helper()
	s := &store{root: "/" + t.Name() + "/" + shard, client: database.Client()}
	s.backend = storage.NewBackend(s.client, s.root, 0)
	t.Cleanup(func() { _ = s.client.Close() })
	t.Cleanup(s.backend.Close)
	s.backend.EnableFences()
	s.copies = s.backend.Copies(func(schema.GroupResource) (value.Transformer, error) { return nil, nil })
	return s
}

// fill stores the cluster, and returns its LogicalCluster.
func (s *store) fill(t *testing.T) *corev1alpha1.LogicalCluster {
	t.Helper()
	lc := objecttest.In(string(moving), &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.LogicalClusterName}})
	lc.Spec.Owner = &corev1alpha1.LogicalClusterOwner{Resource: "workspaces", Cluster: "root", Name: "team", UID: "workspace"}
	object, err := json.Marshal(lc)
	if err != nil {
		t.Fatal(err)
	}
	put := func(collection, name, object string) {
		if _, err := s.client.Put(t.Context(), s.root+collection+"/"+string(moving)+"/"+name, object); err != nil {
			t.Fatal(err)
		}
	}
	put(storage.CollectionOfCustom(corev1alpha1.Resource("logicalclusters")), corev1alpha1.LogicalClusterName, string(object))
	for n := range collections - 1 {
		put(fmt.Sprintf("/core/things-%d", n), "default/one", "{}")
	}
	return lc
}

// keys returns the number of keys of the cluster.
func (s *store) keys(t *testing.T) int64 {
	t.Helper()
	ctx := logicalcluster.WithName(t.Context(), moving)
	found, _, _, err := s.copies.Collections(ctx, 0, "")
	if err != nil {
		t.Fatal(err)
	}
	digest, err := s.copies.Digest(ctx, 0, found)
	if err != nil {
		t.Fatal(err)
	}
	return digest.Keys
}

// fence returns the state of the fence of the cluster, which is empty without one.
func (s *store) fence(t *testing.T) storage.FenceState {
	t.Helper()
	fence, _, err := s.backend.Fence(t.Context(), moving)
	if err != nil {
		t.Fatal(err)
	}
	if fence == nil {
		return ""
	}
	return fence.State
}

// world is shard west, which has the cluster and its Workspace, and shard east, to which it moves.
type world struct {
	*root
	west, east  *store
	destination *migration.Destination
	// before, if it is not nil, is called before each call of shard west, and returns its error. Its argument for a digest behind the fence
	// is digestBehindFence.
	before func(call string) error
	// late means that shard west does not know of deletions.
	late bool
	// current is the controller of shard east.
	current *runner.Controller
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ws := objecttest.In("root", &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: "team", UID: "workspace"}})
	scheduling.SetPlacement(ws, "west", moving)
	w := &world{west: newStore(t, "west"), east: newStore(t, "east")}
	w.root = newRoot(t, "east", ws, move("east"), shard("west"), shard("east"))
	w.Store(w.west.fill(t))
	known := migration.AcceptsFrom(w.Set.LogicalClusterMigrations)
	accepts := func(ctx context.Context, m migration.Migration) error {
		if err := known(ctx, m); err != nil && !(w.late && migration.IsCanceled(err)) {
			return err
		}
		return nil
	}
	owner := func(context.Context, *corev1alpha1.LogicalCluster, bool) (string, error) { return "west", nil }
	parents := &migration.Parents{
		Shard: "west", Workspaces: w.Stored(w.Set.Workspaces.Informer), OwnerShard: owner, Accepts: accepts,
	}
	clients := w.serve(t, parents.Serve, (&migration.Origin{
		Shard: "west", Store: w.west.backend, Copies: w.west.copies, Accepts: accepts,
		Records: parents.OriginRecords(w.west.backend, w.west.copies),
	}).Serve, (&migration.Preparer{
		Shard: "west", Version: "v1.4.0", Copies: w.west.copies, Clusters: w.Stored(w.Set.LogicalClusters.Informer), Set: w.Set, Accepts: accepts,
		Ancestors: func(logicalcluster.Name) ([]logicalcluster.Name, bool) { return []logicalcluster.Name{"root"}, true },
	}).Serve)
	w.destination = &migration.Destination{
		Shard: "east", Version: "v1.4.0", Store: w.east.backend, Copies: w.east.copies, Clients: clients, Clock: w.clock,
		Parents: &migration.Parents{Shard: "east", Clients: clients, OwnerShard: owner, Accepts: accepts},
		Shards:  func() []string { return []string{"east", "west"} },
	}
	w.restart()
	return w
}

// digestBehindFence is the call that compares the last changes.
const digestBehindFence = "migrations.digest behind the fence"

// serve serves calls of shard west, and returns the clients of shard east.
func (w *world) serve(t *testing.T, add ...func(*peers.Server)) *peers.Clients {
	t.Helper()
	authority := peerstest.NewAuthority(t)
	calls := peers.NewServer(authority, scheme.Codecs)
	for _, a := range add {
		a(calls)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(response http.ResponseWriter, r *http.Request) {
		if w.before != nil {
			call := path.Base(r.URL.Path)
			if call == "migrations.digest" && w.west.fence(t) == storage.FenceLeaving {
				call = digestBehindFence
			}
			if err := w.before(call); err != nil {
				unavailable := apierrors.NewServiceUnavailable(err.Error()).Status()
				unavailable.Kind = "Status"
				response.WriteHeader(http.StatusServiceUnavailable)
				_ = json.NewEncoder(response).Encode(unavailable)
				return
			}
		}
		calls.ServeHTTP(response, r)
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, Certificates: []tls.Certificate{authority.Certificate(t, "west")}}
	server.StartTLS()
	t.Cleanup(server.Close)
	clients, err := peers.NewClients(peers.Config{
		TLS: authority.ClientConfig(t, authority.Peer(t, peers.Shard, "east")), Clock: w.clock,
		URL: func(shard string) (string, bool) { return server.URL, shard == "west" },
	})
	if err != nil {
		t.Fatal(err)
	}
	return clients
}

// restart replaces the controller by one that remembers nothing.
func (w *world) restart() { w.current = w.controller(w.destination) }

// reconcile drives the migration until it ends, or a step fails.
func (w *world) reconcile(t *testing.T) {
	t.Helper()
	if err := w.current.Reconcile(t.Context(), key); err != nil {
		t.Fatal(err)
	}
}

// record returns the placement of the cluster: the shard and the epoch.
func (w *world) record(t *testing.T) string {
	t.Helper()
	ws := &tenancyv1alpha1.Workspace{}
	err := w.Stored(w.Set.Workspaces.Informer).Get(logicalcluster.WithName(t.Context(), logicalcluster.Root), "team", ws)
	if err != nil {
		t.Fatal(err)
	}
	of := placement.Of(ws)
	return fmt.Sprintf("%s %d", of.Shard, of.Epoch)
}

// isMoved checks that shard east serves the cluster, and shard west has nothing of it.
func (w *world) isMoved(t *testing.T) {
	t.Helper()
	live, exists := w.stored(t)
	if live.Status.Phase != migrationv1alpha1.PhaseCompleted || condition(live.Status, migrationv1alpha1.Completed) != "True Completed" {
		t.Errorf("exists %t, the status is %+v", exists, live.Status)
	}
	if record := w.record(t); record != "east 2" || w.east.keys(t) != collections || w.west.keys(t) != 0 {
		t.Errorf("the record is %s, east has %d keys, and west %d", record, w.east.keys(t), w.west.keys(t))
	}
	if w.east.fence(t) != "" || w.west.fence(t) != storage.FenceMoved {
		t.Errorf("the fences are %q and %q", w.east.fence(t), w.west.fence(t))
	}
}

// isCanceled checks that shard west serves the cluster, shard east has nothing of it, and the deleted migration is gone.
func (w *world) isCanceled(t *testing.T, record string) {
	t.Helper()
	if live, exists := w.stored(t); exists {
		t.Errorf("the migration exists: %+v", live.Status)
	}
	last := migrationv1alpha1.LogicalClusterMigrationStatus{}
	if n := len(w.reported); n > 0 && w.reported[n-1].Status != nil {
		last = *w.reported[n-1].Status
	}
	if last.Phase != migrationv1alpha1.PhaseFailed || condition(last, migrationv1alpha1.Completed) != "False Canceled" {
		t.Errorf("it has ended with %+v", last)
	}
	if got := w.record(t); got != record || w.east.keys(t) != 0 || w.west.keys(t) != collections {
		t.Errorf("the record is %s, east has %d keys, and west %d", got, w.east.keys(t), w.west.keys(t))
	}
	if fence := w.east.fence(t); w.west.fence(t) != "" || fence != "" && fence != storage.FenceMoved {
		t.Errorf("the fences are %q and %q", fence, w.west.fence(t))
	}
}

// condition returns the status and the reason of a condition.
func condition(status migrationv1alpha1.LogicalClusterMigrationStatus, kind string) string {
	for _, c := range status.Conditions {
		if c.Type == kind {
			return string(c.Status) + " " + c.Reason
		}
	}
	return ""
}

// message returns the message of a condition.
func message(status migrationv1alpha1.LogicalClusterMigrationStatus, kind string) string {
	for _, c := range status.Conditions {
		if c.Type == kind {
			return c.Message
		}
	}
	return ""
}
