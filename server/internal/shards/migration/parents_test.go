package migration

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/shards/peers/peerstest"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/internal/tenancy/placement"
	"github.com/kcplane/kcp/server/internal/tenancy/scheduling"
	"github.com/kcplane/kcp/server/logicalcluster"
)

var (
	// ours identifies the record of the example.
	ours       = owned{Parent: "parent", Name: "team", UID: "workspace", Cluster: moving}
	errStorage = errors.New("etcd is away")
	errCancel  = canceled{apierrors.NewConflict(migrationResource, "move", errCanceled)}
)

// team returns the Workspace of the example, placed on a shard.
func team(shard string) *tenancyv1alpha1.Workspace {
	ws := objecttest.In("parent", &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: ours.Name, UID: ours.UID}})
	scheduling.SetPlacement(ws, shard, moving)
	return ws
}

// newParents returns the Parents of a shard that has the Workspace of the example. accepts is the verdict on all migrations.
func newParents(t *testing.T, shard string, ws *tenancyv1alpha1.Workspace, accepts error) (*Parents, *objecttest.Stored) {
	t.Helper()
	objects := objecttest.New(t, ws)
	stored := objects.Stored(objects.Set.Workspaces.Informer)
	return &Parents{
		Shard: shard, Workspaces: stored, Accepts: func(context.Context, Migration) error { return accepts },
		OwnerShard: func(_ context.Context, _ *corev1alpha1.LogicalCluster, current bool) (string, error) {
			if !current {
				t.Error("the shard of the Workspace may be one that is remembered")
			}
			return shard, nil
		},
	}, stored
}

func (p *Parents) stored(t *testing.T) *tenancyv1alpha1.Workspace {
	t.Helper()
	ws := &tenancyv1alpha1.Workspace{}
	if err := p.Workspaces.Get(in("parent"), ours.Name, ws); err != nil {
		t.Fatal(err)
	}
	return ws
}

func TestARecordIsThatOfTheWorkspaceOfTheCluster(t *testing.T) {
	for _, c := range []struct {
		what   string
		change func(*owned)
		want   func(error) bool
	}{
		{"the Workspace", func(*owned) {}, isAccepted},
		{"a Workspace that was created again", func(o *owned) { o.UID = "former" }, isAbsent},
		{"the Workspace of another cluster", func(o *owned) { o.Cluster = "other" }, apierrors.IsConflict},
		{"a Workspace that does not exist", func(o *owned) { o.Name = "absent" }, apierrors.IsNotFound},
		{"the Workspace of another parent", func(o *owned) { o.Parent = "other" }, apierrors.IsNotFound},
		{"a Workspace that cannot be read", func(o *owned) { o.Name = "unreadable" }, func(err error) bool { return errors.Is(err, errStorage) }},
	} {
		t.Run(c.what, func(t *testing.T) {
			p, stored := newParents(t, "west", team("west"), nil)
			stored.Fail("parent", "unreadable", errStorage)
			asked := ours
			c.change(&asked)
			got, err := p.record(t.Context(), east, asked)
			if want := record("west", 1); !c.want(err) || err == nil && got != want || err != nil && got.Valid() {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func TestARecordChangesToTheCommitOrTheAbortOfAnAcceptedMigration(t *testing.T) {
	before, commit, abort := record("west", 1), record("east", 2), record("west", 2)
	denied := apierrors.NewForbidden(migrationResource, "move", errors.New("it is another migration"))
	isCanceled := func(err error) bool { return IsCanceled(err) }
	for _, c := range []struct {
		what    string
		after   placement.Record
		accepts error
		change  func(*replacement, *peers.Identity)
		want    func(error) bool
	}{
		{"a commit", commit, nil, nil, isAccepted},
		{"an abort", abort, nil, nil, isAccepted},
		{"a commit of a canceled migration", commit, errCancel, nil, isCanceled},
		{"an abort of a canceled migration", abort, errCancel, nil, isAccepted},
		{"a commit of a migration that is not accepted", commit, denied, nil, apierrors.IsForbidden},
		{"an abort of a migration that is not accepted", abort, denied, nil, apierrors.IsForbidden},

		{"another shard", commit, nil, func(_ *replacement, caller *peers.Identity) { caller.Name = "north" }, apierrors.IsForbidden},
		{"the origin", abort, nil, func(_ *replacement, caller *peers.Identity) { caller.Name = "west" }, apierrors.IsForbidden},
		{"a front proxy", commit, nil, func(_ *replacement, caller *peers.Identity) { caller.Kind = peers.Proxy }, apierrors.IsForbidden},
		{"a migration of another cluster", commit, nil, func(in *replacement, _ *peers.Identity) { in.Migration.Cluster = "other" },
			apierrors.IsForbidden},
		{"the Workspace of another cluster", commit, nil, func(in *replacement, _ *peers.Identity) { in.Owned.Cluster = "other" },
			apierrors.IsForbidden},
		{"the record of another cluster", commit, nil, func(in *replacement, _ *peers.Identity) {
			in.Before.Cluster, in.After.Cluster = "other", "other"
		}, apierrors.IsForbidden},
		{"a record that is committed", commit, nil, func(in *replacement, _ *peers.Identity) { in.Before = commit }, apierrors.IsForbidden},
		{"a record that is aborted", commit, nil, func(in *replacement, _ *peers.Identity) { in.Before = abort }, apierrors.IsForbidden},
		{"a record of another shard", commit, nil, func(in *replacement, _ *peers.Identity) { in.Before.Shard = "north" }, apierrors.IsForbidden},
		{"no change", before, nil, nil, apierrors.IsForbidden},
		{"a commit to another shard", record("north", 2), nil, nil, apierrors.IsForbidden},
		{"a commit at another epoch", record("east", 3), nil, nil, apierrors.IsForbidden},
		{"an abort at another epoch", record("west", 3), nil, nil, apierrors.IsForbidden},
		{"a commit with another UID", placement.Record{Shard: "east", Epoch: 2, Cluster: moving, UID: "other"}, nil, nil, apierrors.IsForbidden},
		{"a commit of another name", placement.Record{Shard: "east", Epoch: 2, Cluster: "other"}, nil, nil, apierrors.IsForbidden},

		{"a Workspace that was created again", commit, nil, func(in *replacement, _ *peers.Identity) { in.Owned.UID = "former" },
			isAbsent},
		{"a Workspace that does not exist", commit, nil, func(in *replacement, _ *peers.Identity) { in.Owned.Name = "absent" },
			apierrors.IsNotFound},
		{"a record that has changed since", record("east", 5), nil, func(in *replacement, _ *peers.Identity) {
			in.Before.Epoch, in.Migration.Epoch = 4, 5
		}, apierrors.IsConflict},
		{"a record with a UID that it does not have", placement.Record{Shard: "east", Epoch: 2, Cluster: moving, UID: "other"}, nil,
			func(in *replacement, _ *peers.Identity) { in.Before.UID = "other" }, apierrors.IsConflict},
	} {
		t.Run(c.what, func(t *testing.T) {
			p, _ := newParents(t, "west", team("west"), c.accepts)
			asked, caller := replacement{Owned: ours, Migration: example, Before: before, After: c.after}, east
			if c.change != nil {
				c.change(&asked, &caller)
			}
			_, err := p.replace(t.Context(), caller, asked)
			ws, want := p.stored(t), before
			if err == nil {
				want = c.after
			}
			if got := placement.Of(ws); !c.want(err) || got != want {
				t.Errorf("%v: the record is %+v, want %+v", err, got, want)
			}
			if ws.Annotations[tenancyv1alpha1.ShardHashAnnotation] != scheduling.ShardHash(want.Shard) {
				t.Errorf("the hash of the shard is not that of %s", want.Shard)
			}
		})
	}
}

func TestACommitRecordsTheUIDOfTheLogicalCluster(t *testing.T) {
	for _, c := range []struct{ what, recorded, sent, want string }{
		{"of a cluster that was created on the shard of its parent", "", "uid of cluster", "uid of cluster"},
		{"which is recorded already", "uid of cluster", "other", "uid of cluster"},
		{"which is not known", "", "", ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			ws := team("west")
			if c.recorded != "" {
				ws.Annotations[tenancyv1alpha1.ClusterUIDAnnotation] = c.recorded
			}
			p, _ := newParents(t, "east", ws, nil)
			lc := logicalCluster(moving)
			lc.UID = types.UID(c.sent)
			before := placement.Of(ws)
			if err := (placed{p, example, lc}).Replace(t.Context(), before, example.after(before)); err != nil {
				t.Fatal(err)
			}
			if got := placement.Of(p.stored(t)); got.Shard != "east" || string(got.UID) != c.want {
				t.Errorf("the record is %+v", got)
			}
			if _, is := p.stored(t).Annotations[tenancyv1alpha1.ClusterUIDAnnotation]; is != (c.want != "") {
				t.Error("the UID is recorded although it is not known")
			}
		})
	}
}

// network calls one shard, west, as other peers.
type network struct {
	authority *peerstest.Authority
	server    *httptest.Server
}

func newNetwork(t *testing.T, serve ...func(*peers.Server)) *network {
	t.Helper()
	n := &network{authority: peerstest.NewAuthority(t)}
	calls := peers.NewServer(n.authority, scheme.Codecs)
	for _, add := range serve {
		add(calls)
	}
	n.server = httptest.NewUnstartedServer(calls)
	n.server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, Certificates: []tls.Certificate{n.authority.Certificate(t, "west")}}
	n.server.StartTLS()
	t.Cleanup(n.server.Close)
	return n
}

func (n *network) clients(t *testing.T, caller peers.Identity) *peers.Clients {
	t.Helper()
	clients, err := peers.NewClients(peers.Config{
		TLS: n.authority.ClientConfig(t, n.authority.Peer(t, caller.Kind, caller.Name)), Clock: clock.RealClock{},
		URL: func(shard string) (string, bool) { return n.server.URL, shard == "west" },
	})
	if err != nil {
		t.Fatal(err)
	}
	return clients
}

func TestARecordIsReadAndChangedOnTheShardOfTheWorkspace(t *testing.T) {
	there, _ := newParents(t, "west", team("west"), nil)
	n := newNetwork(t, there.Serve)
	for _, c := range []struct {
		caller string
		want   func(error) bool
	}{{"north", apierrors.IsForbidden}, {"east", isAccepted}} {
		here, _ := newParents(t, "west", team("north"), nil) // the own Workspace must not be asked
		here.Shard, here.Clients = c.caller, n.clients(t, peers.Identity{Kind: peers.Shard, Name: c.caller})
		records := placed{here, example, logicalCluster(moving)}
		before, err := records.Record(t.Context(), moving)
		if err != nil || before != record("west", 1) {
			t.Fatalf("%s reads %+v, %v", c.caller, before, err)
		}
		err = records.Replace(t.Context(), before, example.after(before))
		if got := placement.Of(there.stored(t)); !c.want(err) || err == nil && got != record("east", 2) || err != nil && got != before {
			t.Errorf("%s changes the record to %+v: %v", c.caller, got, err)
		}
	}
}

func TestAnUnknownShardOfTheWorkspaceIsAnError(t *testing.T) {
	p, stored := newParents(t, "east", team("west"), nil)
	p.OwnerShard = func(context.Context, *corev1alpha1.LogicalCluster, bool) (string, error) { return "east", errStorage }
	records := placed{p, example, logicalCluster(moving)}
	if got, err := records.Record(t.Context(), moving); !errors.Is(err, errStorage) || got.Valid() {
		t.Errorf("got %+v, %v", got, err)
	}
	before := record("west", 1)
	if err := records.Replace(t.Context(), before, example.after(before)); !errors.Is(err, errStorage) || stored.Writes > 0 {
		t.Errorf("%d writes: %v", stored.Writes, err)
	}
}

func TestOnlyShardsMakeTheCallsOfMigrations(t *testing.T) {
	p, _ := newParents(t, "west", team("west"), nil)
	n := newNetwork(t, p.Serve, (&Preparer{}).Serve, (&Reports{}).Serve, (&Origin{}).Serve)
	clients := n.clients(t, peers.Identity{Kind: peers.Proxy, Name: "east"})
	for _, name := range []string{
		callRecord, callReplace, callPrepare, callReport, callState, callStep, callCollections, callPage, callChanges, callDigest,
	} {
		_, err := peers.Call[owned, done](t.Context(), clients, "west", name, ours)
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "may not make it") {
			t.Errorf("a front proxy calls %s: %v", name, err)
		}
	}
}

func TestAnOriginReadsTheRecordUntilItIsCleaned(t *testing.T) {
	s := newShard(t, "west")
	p, _ := newParents(t, "west", team("west"), nil)
	records := p.OriginRecords(s.store, s.copies)
	read := func(what string, want placement.Record, as func(error) bool) {
		t.Helper()
		if got, err := records.Record(t.Context(), moving); got != want || !as(err) {
			t.Errorf("%s: got %+v, %v", what, got, err)
		}
	}
	swap := func(from, to *storage.Fence) {
		t.Helper()
		if _, err := s.store.SwapFence(t.Context(), moving, from, to); err != nil {
			t.Fatal(err)
		}
	}
	leaving, settling := example.Fence(storage.FenceLeaving, "west"), example.Fence(storage.FenceSettling, "west")
	moved := example.Fence(storage.FenceMoved, "west")
	read("without the cluster", placement.Record{}, apierrors.IsNotFound)
	s.create(t, logicalCluster(moving))
	read("without a fence", record("west", 1), isAccepted)
	swap(nil, leaving)
	read("behind the fence", record("west", 1), isAccepted)
	swap(leaving, settling)
	read("while it settles", record("west", 1), isAccepted)
	swap(settling, moved)
	read("after it has moved", record("east", 2), isAccepted)
	if err := records.Replace(t.Context(), record("west", 1), record("east", 2)); err == nil {
		t.Error("the origin can change the record")
	}

	home := logicalCluster("home")
	home.Spec.Owner = nil
	s.create(t, home)
	if _, err := records.Record(t.Context(), "home"); !apierrors.IsNotFound(err) {
		t.Errorf("the record of a cluster without a Workspace: %v", err)
	}
}

// logicalCluster returns the LogicalCluster of a cluster that the Workspace of the example owns.
func logicalCluster(cluster logicalcluster.Name) *corev1alpha1.LogicalCluster {
	lc := objecttest.In(string(cluster), &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.LogicalClusterName}})
	lc.SetGroupVersionKind(corev1alpha1.SchemeGroupVersion.WithKind("LogicalCluster"))
	lc.Spec.Owner = &corev1alpha1.LogicalClusterOwner{
		APIVersion: tenancyv1alpha1.SchemeGroupVersion.String(), Resource: "workspaces", Cluster: "parent", Name: ours.Name, UID: ours.UID,
	}
	return lc
}

func (s *shard) create(t *testing.T, lc *corev1alpha1.LogicalCluster) {
	t.Helper()
	if err := s.cluster.Create(in(logicalcluster.Of(lc)), lc.Name, lc); err != nil {
		t.Fatal(err)
	}
}
