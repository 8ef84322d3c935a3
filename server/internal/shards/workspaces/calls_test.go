package workspaces

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	testingclock "k8s.io/utils/clock/testing"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/shards/peers/peerstest"
	"github.com/kcplane/kcp/server/internal/tenancy/pathindex"
	"github.com/kcplane/kcp/server/internal/tenancy/scheduling"
	"github.com/kcplane/kcp/server/internal/tenancy/workspacetypes"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// The tree of the tests: root on shard root, its child org on shard a, and the child team of org on shard b.
const (
	org  = "orgorgorgorgorg0"
	team = "teamteamteamtea0"
	uid  = types.UID("of team")
)

// graves are tombstones in memory, by the owner.
type graves map[types.UID]logicalcluster.Name

func (g graves) Put(_ context.Context, cluster logicalcluster.Name, owner types.UID) error {
	g[owner] = cluster
	return nil
}

func (g graves) Create(ctx context.Context, cluster logicalcluster.Name, owner types.UID, create func(context.Context) error) error {
	if g[owner] == cluster {
		return apierrors.NewAlreadyExists(corev1alpha1.Resource("logicalclusters"), "cluster")
	}
	return create(ctx)
}

// shard is one shard of a test.
type shard struct {
	*objecttest.Objects
	*Calls
	graves graves
	down   atomic.Bool
	// quarantined is the shard whose store was restored.
	quarantined string
	// left are the clusters that have moved away, offered the holders that shards offer.
	left    map[logicalcluster.Name]bool
	offered map[logicalcluster.Name]string
	// leftErr is the error of a shard that does not know what has moved away.
	leftErr error
	// moved are the shards to which clusters have moved.
	moved map[logicalcluster.Name]string
}

type installation struct {
	authority *peerstest.Authority
	shards    map[string]*shard
	clock     *testingclock.FakePassiveClock
	urls      map[string]string
}

// start starts shards root, a and b that call each other.
func start(t *testing.T) *installation {
	t.Helper()
	i := &installation{
		authority: peerstest.NewAuthority(t), shards: map[string]*shard{}, urls: map[string]string{},
		clock: testingclock.NewFakePassiveClock(time.Now()),
	}
	for _, name := range []string{"root", "a", "b"} {
		i.shards[name] = i.start(t, name)
	}
	i.shards["root"].Store(cluster("root", "root", ""))
	i.shards["root"].Store(workspace("root", "org", "of org", "a", org))
	lc := cluster(org, "root:org", "root")
	lc.Annotations[tenancyv1alpha1.AncestorsAnnotation] = "root"
	i.shards["a"].Store(lc)
	i.shards["a"].Objects.Show(lc)
	i.shards["a"].Store(placed())
	return i
}

func (i *installation) start(t *testing.T, name string) *shard {
	t.Helper()
	s := &shard{Objects: objecttest.New(t), graves: graves{}, left: map[logicalcluster.Name]bool{}, offered: map[logicalcluster.Name]string{}, moved: map[logicalcluster.Name]string{}}
	tree := pathindex.New(s.Set)
	clients, err := peers.NewClients(peers.Config{
		TLS: i.authority.ClientConfig(t, i.authority.Peer(t, peers.Shard, name)), Clock: i.clock,
		URL: func(shard string) (string, bool) { return i.urls[shard], i.urls[shard] != "" },
	})
	if err != nil {
		t.Fatal(err)
	}
	scheduler := &scheduling.Scheduler{
		LogicalClusters: s.Set.LogicalClusters, Shards: s.Set.Shards, Tree: tree, Types: workspacetypes.New(s.Set, tree), ShardName: name,
		ExternalURL: "https://" + name + ".test",
	}
	s.Calls = New(Config{
		Scheduler: scheduler, Clusters: s.Stored(s.Set.LogicalClusters.Informer), Workspaces: s.Stored(s.Set.Workspaces.Informer),
		Tombstones: s.graves, Clients: clients, Clock: i.clock,
		Holder:      func(c logicalcluster.Name) (string, uint64, bool) { return s.offered[c], 1, s.offered[c] != "" },
		Quarantined: func(shard string) bool { return s.quarantined == shard },
		Left: func(_ context.Context, c logicalcluster.Name) (bool, error) {
			return s.left[c] || s.moved[c] != "", s.leftErr
		},
		MovedTo: func(_ context.Context, c logicalcluster.Name) (string, error) { return s.moved[c], nil },
	})
	scheduler.Remote = s.Calls
	scheduler.Follow(s.Set)
	calls := peers.NewServer(i.authority, scheme.Codecs)
	s.Serve(calls)
	i.serve(t, name, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.down.Load() {
			panic(http.ErrAbortHandler)
		}
		calls.ServeHTTP(w, r)
	}))
	return s
}

// serve makes a handler respond for a shard.
func (i *installation) serve(t *testing.T, name string, handler http.Handler) {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, Certificates: []tls.Certificate{i.authority.Certificate(t, name)}}
	server.StartTLS()
	t.Cleanup(server.Close)
	i.urls[name] = server.URL
}

// stop makes a shard not respond, and resume respond again to all.
func (i *installation) stop(name string) { i.shards[name].down.Store(true) }

func (i *installation) resume(name string) {
	i.shards[name].down.Store(false)
	i.clock.SetTime(i.clock.Now().Add(time.Hour))
}

func cluster(name, path, parent string) *corev1alpha1.LogicalCluster {
	lc := objecttest.In(name, &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster", UID: types.UID("uid of " + name)}})
	lc.Annotations[corev1alpha1.PathAnnotation] = path
	if parent != "" {
		_, last := cutLast(path)
		lc.Spec.Owner = &corev1alpha1.LogicalClusterOwner{Resource: "workspaces", Cluster: parent, Name: last, UID: types.UID("of " + last)}
	}
	return lc
}

func workspace(parent, name string, uid types.UID, shard, cluster string) *tenancyv1alpha1.Workspace {
	ws := objecttest.In(parent, &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid}})
	scheduling.SetPlacement(ws, shard, logicalcluster.Name(cluster))
	return ws
}

// placed returns Workspace team of org, which is placed on shard b.
func placed() *tenancyv1alpha1.Workspace { return workspace(org, "team", uid, "b", team) }

// create creates the logical cluster of team on shard b from a shard.
func (i *installation) create(t *testing.T, from string, change ...func(*Creation)) (State, error) {
	t.Helper()
	in := Creation{
		Cluster: team, Epoch: 1, Parent: Parent{Cluster: org, Path: "root:org", Ancestors: []logicalcluster.Name{"root"}}, Name: "team", UID: uid,
		Type: "root:universal", CreatedBy: &corev1alpha1.UserInfo{Username: "ada", Groups: []string{"devs", "system:masters"}},
	}
	for _, c := range change {
		c(&in)
	}
	return peers.Call[Creation, State](t.Context(), i.shards[from].Clients, "b", callCreate, in)
}

func (i *installation) delete(t *testing.T, from string, owner types.UID) (State, error) {
	t.Helper()
	return peers.Call[Deletion, State](t.Context(), i.shards[from].Clients, "b", callDelete, Deletion{
		Cluster: team, Parent: Parent{Cluster: org, Path: "root:org", Ancestors: []logicalcluster.Name{"root"}}, Name: "team", UID: owner,
	})
}

// stored returns what a shard stores as the LogicalCluster of a cluster, nil if there is none.
func (s *shard) stored(t *testing.T, name logicalcluster.Name) *corev1alpha1.LogicalCluster {
	t.Helper()
	lc := &corev1alpha1.LogicalCluster{}
	err := s.Clusters.Get(logicalcluster.WithName(t.Context(), name), "cluster", lc)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return lc
}

func (s *shard) workspace(t *testing.T) *tenancyv1alpha1.Workspace {
	t.Helper()
	ws := &tenancyv1alpha1.Workspace{}
	if err := s.Workspaces.Get(logicalcluster.WithName(t.Context(), org), "team", ws); err != nil {
		t.Fatal(err)
	}
	return ws
}

func TestAShardCreatesTheClusterOfAWorkspaceOnTheShardOfTheParent(t *testing.T) {
	i := start(t)
	lc, err := i.shards["a"].Scheduler.LogicalCluster(placed(), team)
	if err != nil {
		t.Fatal(err)
	}
	lc.Spec.CreatedBy = &corev1alpha1.UserInfo{Username: "ada", Groups: []string{"devs", "system:masters"}}
	lc.Annotations[corev1alpha1.MaxTotalObjectsAnnotation] = "-1" // is not sent
	created, err := i.shards["a"].Create(t.Context(), "b", team, lc)
	if err != nil {
		t.Fatal(err)
	}
	stored := i.shards["b"].stored(t, team)
	if stored == nil || stored.UID == lc.UID || created.UID != stored.UID || created.Status.Phase != corev1alpha1.LogicalClusterPhaseReady {
		t.Fatalf("stored is %+v, created %+v", stored, created)
	}
	for key, want := range map[string]string{
		corev1alpha1.PathAnnotation: "root:org:team", tenancyv1alpha1.ShardAnnotation: "b", tenancyv1alpha1.OwnerShardAnnotation: "a",
		tenancyv1alpha1.AncestorsAnnotation: "root," + org, corev1alpha1.MaxTotalObjectsAnnotation: "",
	} {
		if got := stored.Annotations[key]; got != want {
			t.Errorf("annotation %s is %q, want %q", key, got, want)
		}
	}
	if got := stored.Spec.CreatedBy; got.Username != "ada" || !slices.Equal(got.Groups, []string{"devs"}) {
		t.Errorf("the creator is %+v", got)
	}
	if stored.Status.URL != "https://b.test/clusters/"+team || stored.Spec.Owner.UID != uid || stored.Spec.Owner.Cluster != org {
		t.Errorf("the LogicalCluster is %+v", stored)
	}
	again, err := i.shards["a"].Create(t.Context(), "b", team, lc)
	if err != nil || again.UID != created.UID {
		t.Errorf("the same creation again: %+v, %v", again, err)
	}
}

func TestWhichCreationsAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		from    string
		prepare func(*installation)
		change  func(*Creation)
		want    func(error) bool
	}{
		"a shard that does not hold the parent":     {"root", nil, nil, apierrors.IsForbidden},
		"the shard that gets the cluster, itself":   {"b", nil, nil, apierrors.IsForbidden},
		"a shard that says its parent is elsewhere": {"root", nil, func(c *Creation) { c.Parent = Parent{Cluster: org, Path: "root"} }, apierrors.IsBadRequest},
		"a parent that is not below the ancestors": {"a", nil, func(c *Creation) { c.Parent.Cluster = "forgedforgedforg" },
			apierrors.IsServiceUnavailable},
		"another name of the parent in the path": {"a", nil, func(c *Creation) { c.Parent.Path = "root:other" }, apierrors.IsServiceUnavailable},
		"a path with too few names":              {"a", nil, func(c *Creation) { c.Parent.Path = "root" }, apierrors.IsBadRequest},
		"a parent that is offered by another shard": {"a", func(i *installation) { i.shards["b"].offered[org] = "root" }, nil,
			apierrors.IsForbidden},
		"while the record of the parent cannot be read": {"a", func(i *installation) { i.stop("root") }, nil, apierrors.IsServiceUnavailable},
		"the name of a cluster of another shard": {"a", func(i *installation) { i.shards["b"].offered[team] = "root" }, nil,
			apierrors.IsAlreadyExists},
		"the name of the cluster of another Workspace": {"a", func(i *installation) {
			lc := cluster(team, "root:org:team", org)
			lc.Spec.Owner.UID = "another"
			i.shards["b"].Store(lc)
		}, nil, apierrors.IsAlreadyExists},
		"a deleted cluster": {"a", func(i *installation) { i.shards["b"].graves[uid] = team }, nil, apierrors.IsAlreadyExists},
		"a cluster that has moved": {"a", func(i *installation) {
			i.shards["b"].Store(cluster(team, "root:org:team", org))
			i.shards["b"].left[team] = true
		}, nil, apierrors.IsConflict},
		"the name of a home":         {"a", nil, func(c *Creation) { c.Cluster = "v1u4alow0iv9" }, apierrors.IsBadRequest},
		"root":                       {"a", nil, func(c *Creation) { c.Cluster = "root" }, apierrors.IsBadRequest},
		"a name with a slash":        {"a", nil, func(c *Creation) { c.Cluster = "teamteamteam/../" }, apierrors.IsBadRequest},
		"no UID":                     {"a", nil, func(c *Creation) { c.UID = "" }, apierrors.IsBadRequest},
		"epoch zero":                 {"a", nil, func(c *Creation) { c.Epoch = 0 }, apierrors.IsBadRequest},
		"a name with a colon":        {"a", nil, func(c *Creation) { c.Name = "team:b" }, apierrors.IsBadRequest},
		"an invalid initializer":     {"a", nil, func(c *Creation) { c.Initializers = []corev1alpha1.LogicalClusterInitializer{"X"} }, apierrors.IsBadRequest},
		"an invalid terminator":      {"a", nil, func(c *Creation) { c.Terminators = []corev1alpha1.LogicalClusterTerminator{"X"} }, apierrors.IsBadRequest},
		"a creator that is too long": {"a", nil, func(c *Creation) { c.CreatedBy.UID = strings.Repeat("x", maxCreation) }, apierrors.IsBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			i := start(t)
			if tc.prepare != nil {
				tc.prepare(i)
			}
			change := tc.change
			if change == nil {
				change = func(*Creation) {}
			}
			before := i.shards["b"].Stored(i.shards["b"].Set.LogicalClusters.Informer).Writes
			if _, err := i.create(t, tc.from, change); !tc.want(err) {
				t.Errorf("got %v", err)
			}
			if after := i.shards["b"].Stored(i.shards["b"].Set.LogicalClusters.Informer).Writes; after != before {
				t.Error("something was stored")
			}
		})
	}
}

func TestRecordsAreRememberedWhileTheirShardIsSilent(t *testing.T) {
	i := start(t)
	if _, err := i.create(t, "a"); err != nil {
		t.Fatal(err)
	}
	i.stop("root")
	i.clock.SetTime(i.clock.Now().Add(10 * knownFor))
	other := func(c *Creation) { c.Cluster, c.UID, c.Name = "nextnextnextnex0", "of next", "next" }
	if _, err := i.create(t, "a", other); err != nil {
		t.Errorf("the record was not remembered: %v", err)
	}
	i.resume("root")
	moved := workspace("root", "org", "of org", "root", org)
	i.shards["root"].Store(moved)
	if _, err := i.create(t, "a", func(c *Creation) { c.Cluster, c.UID, c.Name = "lastlastlastlas0", "of last", "last" }); !apierrors.IsForbidden(err) {
		t.Errorf("the former holder of the parent created a cluster: %v", err)
	}
}

func TestADeletionIsFinal(t *testing.T) {
	i := start(t)
	if _, err := i.create(t, "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := i.delete(t, "root", uid); !apierrors.IsForbidden(err) {
		t.Errorf("a shard that does not hold the Workspace deleted the cluster: %v", err)
	}
	if got, err := i.delete(t, "a", "another"); err != nil || got.Existence != Deleted {
		t.Errorf("the cluster of another Workspace: %+v, %v", got, err)
	}
	if lc := i.shards["b"].stored(t, team); lc.DeletionTimestamp != nil {
		t.Fatal("the cluster of another Workspace is deleted")
	}
	i.stop("root") // the shard that created the cluster is known
	got, err := i.delete(t, "a", uid)
	if err != nil || got.Existence != Exists || !got.Deleting {
		t.Fatalf("the first deletion: %+v, %v", got, err)
	}
	if lc := i.shards["b"].stored(t, team); lc.DeletionTimestamp == nil || i.shards["b"].graves[uid] != team {
		t.Error("the cluster is not deleted, or there is no tombstone")
	}
	b := i.shards["b"]
	if err := b.Clusters.Delete(logicalcluster.WithName(t.Context(), team), "cluster", &corev1alpha1.LogicalCluster{},
		func(runtime.Object) error { return nil }); err != nil {
		t.Fatal(err)
	}
	i.resume("root")
	if got, err := i.delete(t, "a", uid); err != nil || got.Existence != Deleted {
		t.Errorf("after the deletion: %+v, %v", got, err)
	}
	if _, err := i.create(t, "a"); !apierrors.IsAlreadyExists(err) {
		t.Errorf("a creation that is late: %v", err)
	}
}

func TestADeletionBeforeTheCreationIsFinal(t *testing.T) {
	i := start(t)
	if got, err := i.delete(t, "a", uid); err != nil || got.Existence != Deleted {
		t.Fatalf("got %+v, %v", got, err)
	}
	if _, err := i.create(t, "a"); !apierrors.IsAlreadyExists(err) {
		t.Errorf("a creation that is late: %v", err)
	}
	if _, err := i.delete(t, "root", "of other"); !apierrors.IsForbidden(err) {
		t.Errorf("a tombstone by a shard that does not hold the parent: %v", err)
	}
}

func TestAMovedClusterIsNotDeclaredDeleted(t *testing.T) {
	i := start(t)
	i.shards["b"].left[team] = true
	if got, err := i.delete(t, "a", uid); !apierrors.IsConflict(err) {
		t.Errorf("got %+v, %v", got, err)
	}
	if len(i.shards["b"].graves) != 0 {
		t.Error("there is a tombstone")
	}
}

func TestDeleteReturnsNilForDeletedClustersOnly(t *testing.T) {
	i := start(t)
	if lc, err := i.shards["a"].Delete(t.Context(), placed(), team); err != nil || lc != nil {
		t.Errorf("got %+v, %v", lc, err)
	}
	i.stop("b")
	if lc, err := i.shards["a"].Delete(t.Context(), placed(), team); !peers.IsUnreachable(err) || lc != nil {
		t.Errorf("a silent shard: %+v, %v", lc, err)
	}
}

func ready(change ...func(*State)) State {
	s := State{Owner: Owner{Cluster: org, Name: "team", UID: uid}, Cluster: team, Epoch: 1, UID: "made", Phase: corev1alpha1.LogicalClusterPhaseReady}
	for _, c := range change {
		c(&s)
	}
	return s
}

func TestOnlyTheRecordedShardReportsAState(t *testing.T) {
	for name, tc := range map[string]struct {
		from   string
		report State
		want   Verdict
	}{
		"the shard in the record": {"b", ready(), Accepted},
		"another shard":           {"root", ready(), Refused},
		"another cluster":         {"b", ready(func(s *State) { s.Cluster = "forgedforgedforg" }), Refused},
		"another epoch":           {"b", ready(func(s *State) { s.Epoch = 2 }), Refused},
		"another Workspace":       {"b", ready(func(s *State) { s.Owner.UID = "former" }), Orphan},
		"no such Workspace":       {"b", ready(func(s *State) { s.Owner.Name = "none" }), Orphan},
		"a parent elsewhere":      {"b", ready(func(s *State) { s.Owner.Cluster = "elsewhereelsewhe" }), NotHeld},
		"an unknown phase":        {"b", ready(func(s *State) { s.Phase = "Forged" }), Refused},
		"an initializer that is no name": {"b", ready(func(s *State) {
			s.Initializers = []corev1alpha1.LogicalClusterInitializer{"\n"}
		}), Refused},
		"a message that is too long": {"b", ready(func(s *State) {
			s.Content = &corev1alpha1.Condition{Message: strings.Repeat("x", maxMessage+1)}
		}), Refused},
	} {
		i := start(t)
		before := i.shards["a"].workspace(t)
		got, err := i.shards[tc.from].Report(t.Context(), "a", []State{tc.report})
		if err != nil || !slices.Equal(got, []Verdict{tc.want}) {
			t.Errorf("%s: got %v, %v, want %s", name, got, err, tc.want)
		}
		after := i.shards["a"].workspace(t)
		if changed := after.ResourceVersion != before.ResourceVersion; changed != (tc.want == Accepted) {
			t.Errorf("%s: the Workspace has changed: %t", name, changed)
		}
	}
}

func TestTheUIDOfTheClusterMustBeTheRecordedOne(t *testing.T) {
	ws := placed()
	ws.Annotations[tenancyv1alpha1.ClusterUIDAnnotation] = "made"
	if got := judge(ws, "b", ready(func(s *State) { s.UID = "other" })); got != Refused {
		t.Errorf("got %s", got)
	}
	if got := judge(ws, "b", ready()); got != Accepted {
		t.Errorf("got %s", got)
	}
}

func TestWhatAWorkspaceShowsOfAReport(t *testing.T) {
	settled := func(ws *tenancyv1alpha1.Workspace) {
		ws.Spec.Cluster, ws.Spec.URL, ws.Status.Phase = team, "https://b.test/clusters/root:org:team", corev1alpha1.LogicalClusterPhaseReady
	}
	deleting := func(ws *tenancyv1alpha1.Workspace) {
		settled(ws)
		now := metav1.Now()
		ws.DeletionTimestamp = &now
	}
	initializing := func(s *State) {
		s.Phase = corev1alpha1.LogicalClusterPhaseInitializing
		s.Initializers = []corev1alpha1.LogicalClusterInitializer{"root:x"}
	}
	for name, tc := range map[string]struct {
		before func(*tenancyv1alpha1.Workspace)
		report State
		want   func(*tenancyv1alpha1.Workspace) bool
	}{
		"it is ready after the response to the creation was lost": {func(*tenancyv1alpha1.Workspace) {}, ready(), func(ws *tenancyv1alpha1.Workspace) bool {
			return ws.Spec.Cluster == team && strings.HasSuffix(ws.Spec.URL, "/clusters/root:org:team") && ws.Status.Phase == "Ready" &&
				ws.Annotations[tenancyv1alpha1.ClusterUIDAnnotation] == "made" && ws.Generation == 1
		}},
		"it is initializing": {settled, ready(initializing), func(ws *tenancyv1alpha1.Workspace) bool {
			return ws.Status.Phase == "Initializing" && len(ws.Status.Initializers) == 1
		}},
		"its cluster is lost": {settled, ready(func(s *State) { s.Existence = Missing }), func(ws *tenancyv1alpha1.Workspace) bool {
			return ws.Status.Phase == "Unavailable" && ws.Spec.Cluster == team
		}},
		"it terminates": {deleting, ready(func(s *State) {
			s.Deleting, s.Terminators = true, []corev1alpha1.LogicalClusterTerminator{"root:x"}
		}), func(ws *tenancyv1alpha1.Workspace) bool {
			return ws.Status.Phase == "Terminating" && len(ws.Finalizers) == 1
		}},
		"its cluster is deleted: the finalizer stays until the shard says so in answer to a deletion": {
			deleting, ready(func(s *State) { s.Existence = Deleted }), func(ws *tenancyv1alpha1.Workspace) bool {
				return len(ws.Finalizers) == 1 && ws.Status.Conditions[0].Status == metav1.ConditionTrue
			},
		},
		"it is deleted and its cluster is lost: nothing": {deleting, ready(func(s *State) { s.Existence = Missing }),
			func(ws *tenancyv1alpha1.Workspace) bool {
				return len(ws.Finalizers) == 1 && len(ws.Status.Conditions) == 0
			}},
	} {
		i := start(t)
		ws := placed()
		tc.before(ws)
		i.shards["a"].Store(ws)
		if got, err := i.shards["b"].Report(t.Context(), "a", []State{tc.report}); err != nil || got[0] != Accepted {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if got := i.shards["a"].workspace(t); !tc.want(got) {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

func TestAComparisonShowsLostClusters(t *testing.T) {
	i := start(t)
	ws := placed()
	ws.Spec.Cluster, ws.Status.Phase = team, corev1alpha1.LogicalClusterPhaseReady
	i.shards["a"].Store(ws)
	if err := i.shards["a"].Compare(t.Context(), "b", []*tenancyv1alpha1.Workspace{ws}); err != nil {
		t.Fatal(err)
	}
	lost := func(what string) {
		t.Helper()
		got := i.shards["a"].workspace(t)
		says := slices.ContainsFunc(got.Status.Conditions, func(c corev1alpha1.Condition) bool {
			return strings.Contains(c.Message, `shard "b" does not have the logical cluster`)
		})
		if got.Status.Phase != corev1alpha1.LogicalClusterPhaseUnavailable || !says {
			t.Errorf("%s: got %+v", what, got.Status)
		}
	}
	lost("without a cluster")
	other := cluster(team, "root:org:team", org)
	other.Spec.Owner.UID, other.Status.Phase = "another", corev1alpha1.LogicalClusterPhaseReady
	i.shards["b"].Store(other)
	if err := i.shards["a"].Compare(t.Context(), "b", []*tenancyv1alpha1.Workspace{ws}); err != nil {
		t.Fatal(err)
	}
	lost("with the cluster of another Workspace")
	if err := i.shards["b"].Clusters.Delete(logicalcluster.WithName(t.Context(), team), "cluster", &corev1alpha1.LogicalCluster{},
		func(runtime.Object) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := i.create(t, "a"); err != nil {
		t.Fatal(err)
	}
	if err := i.shards["a"].Compare(t.Context(), "b", []*tenancyv1alpha1.Workspace{ws}); err != nil {
		t.Fatal(err)
	}
	if got := i.shards["a"].workspace(t); got.Status.Phase != corev1alpha1.LogicalClusterPhaseReady {
		t.Errorf("with a cluster the phase is %s", got.Status.Phase)
	}
}

// A shard that does not know whether it holds the parent must not say that another one does, or that there is no Workspace.
func TestAReportFailsWhileTheParentCannotBeRead(t *testing.T) {
	i := start(t)
	i.shards["a"].leftErr = errors.New("etcd is away")
	for _, cluster := range []logicalcluster.Name{org, "elsewhereelsewhe"} {
		report := ready(func(s *State) { s.Owner.Name, s.Owner.Cluster = "none", cluster })
		if got, err := i.shards["b"].Report(t.Context(), "a", []State{report}); err != nil || !slices.Equal(got, []Verdict{Failed}) {
			t.Errorf("of a Workspace in %s: got %v, %v", cluster, got, err)
		}
	}
}

// While the owner of a cluster cannot be found out, its Workspace must not become unavailable.
func TestAComparisonFailsIfTheOwnerCannotBeVerified(t *testing.T) {
	i := start(t)
	if _, err := i.create(t, "a"); err != nil {
		t.Fatal(err)
	}
	lc := i.shards["b"].stored(t, team)
	lc.Annotations[tenancyv1alpha1.OwnerShardAnnotation] = "former"
	i.shards["b"].Store(objecttest.In(team, lc))
	i.shards["b"].Calls = New(i.shards["b"].Config)
	i.shards["b"].holders.read = func(context.Context, string, question) (string, error) { return "", errors.New("nothing is known") }
	_, err := i.shards["b"].states(t.Context(), peers.Identity{Kind: peers.Shard, Name: "a"},
		references{Items: []Reference{{Cluster: team, Owner: Owner{Cluster: org, Name: "team", UID: uid}}}})
	if !apierrors.IsServiceUnavailable(err) {
		t.Errorf("got %v", err)
	}
}

func TestTheOwnerOfAClusterIsFoundAfterItMoved(t *testing.T) {
	i := start(t)
	if _, err := i.create(t, "a"); err != nil {
		t.Fatal(err)
	}
	lc := i.shards["b"].stored(t, team)
	for moved, want := range map[bool]string{false: "a", true: "root"} {
		if moved {
			i.shards["root"].Store(workspace("root", "org", "of org", "root", org))
		}
		if got, err := i.shards["b"].OwnerShard(t.Context(), lc, moved); err != nil || got != want {
			t.Errorf("moved %t: got %q, %v, want %s", moved, got, err, want)
		}
	}
}

func TestPagesAreBounded(t *testing.T) {
	i := start(t)
	if _, err := i.shards["b"].Report(t.Context(), "a", make([]State, PageSize+1)); !apierrors.IsBadRequest(err) {
		t.Errorf("a report: %v", err)
	}
	if err := i.shards["a"].Compare(t.Context(), "b", slices.Repeat([]*tenancyv1alpha1.Workspace{placed()}, PageSize+1)); !apierrors.IsBadRequest(err) {
		t.Errorf("a comparison: %v", err)
	}
}
