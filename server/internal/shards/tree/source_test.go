package tree

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

func workspace(parent, name, cluster string) *tenancyv1alpha1.Workspace {
	return &tenancyv1alpha1.Workspace{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", Annotations: map[string]string{
			logicalcluster.AnnotationKey: parent, tenancyv1alpha1.ShardAnnotation: "eu", tenancyv1alpha1.EpochAnnotation: "2",
			tenancyv1alpha1.ClusterUIDAnnotation: someUID.String(),
		}},
		Spec:   tenancyv1alpha1.WorkspaceSpec{Cluster: cluster},
		Status: tenancyv1alpha1.WorkspaceStatus{Phase: corev1alpha1.LogicalClusterPhaseReady},
	}
}

func logicalCluster(name string, epoch int) *corev1alpha1.LogicalCluster {
	return &corev1alpha1.LogicalCluster{
		ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.LogicalClusterName, UID: types.UID(someUID.String()), Annotations: map[string]string{
			logicalcluster.AnnotationKey: name, tenancyv1alpha1.EpochAnnotation: strconv.Itoa(epoch), tenancyv1alpha1.TypeAnnotation: "root:org",
		}},
		Spec: corev1alpha1.LogicalClusterSpec{Owner: &corev1alpha1.LogicalClusterOwner{Cluster: "root", Name: "org"}},
	}
}

func TestAWorkspaceHasAnEdgeWhileItHasAPlace(t *testing.T) {
	const scheduling, unavailable = corev1alpha1.LogicalClusterPhaseScheduling, corev1alpha1.LogicalClusterPhaseUnavailable
	placed := Edge{Parent: "root", Name: "org", Cluster: "aaa", Shard: "eu", Epoch: 2, UID: someUID}
	none := Edge{Parent: "root", Name: "org", Deleted: true}
	for name, c := range map[string]struct {
		change func(*tenancyv1alpha1.Workspace)
		want   Edge
	}{
		"a placed one":          {func(*tenancyv1alpha1.Workspace) {}, placed},
		"one that is scheduled": {func(ws *tenancyv1alpha1.Workspace) { ws.Status.Phase = scheduling }, none},
		"one without a phase":   {func(ws *tenancyv1alpha1.Workspace) { ws.Status.Phase = "" }, none},
		"one without a cluster": {func(ws *tenancyv1alpha1.Workspace) { ws.Spec.Cluster = "" }, none},
		"a mount without a URL": {func(ws *tenancyv1alpha1.Workspace) { ws.Spec.Mount = &tenancyv1alpha1.Mount{} }, none},
		"a mount of a very long URL": {func(ws *tenancyv1alpha1.Workspace) {
			ws.Spec.Mount, ws.Spec.URL = &tenancyv1alpha1.Mount{}, strings.Repeat("x", maxString+1)
		}, Edge{Parent: "root", Name: "org", Unavailable: true}},
		"a mount": {
			func(ws *tenancyv1alpha1.Workspace) {
				ws.Spec.Mount, ws.Spec.URL = &tenancyv1alpha1.Mount{}, "https://x"
			},
			Edge{Parent: "root", Name: "org", URL: "https://x"},
		},
		"one that is unavailable": {
			func(ws *tenancyv1alpha1.Workspace) { ws.Status.Phase = unavailable },
			Edge{Parent: "root", Name: "org", Cluster: "aaa", Shard: "eu", Epoch: 2, UID: someUID, Unavailable: true},
		},
	} {
		ws := workspace("root", "org", "aaa")
		c.change(ws)
		if got := EdgeOf(ws); got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}

func TestAProxyReceivesTheTreeAndItsChanges(t *testing.T) {
	st := newStand(t)
	st.shards = []Shard{someShards[0]}
	st.workspaces.change(watch.Added, workspace("root", "org", "aaa"))
	st.clusters.change(watch.Added, logicalCluster("aaa", 2))
	c := st.follow()
	defer c.leave()
	edge := Edge{Parent: "root", Name: "org", Cluster: "aaa", Shard: "eu", Epoch: 2, UID: someUID}
	cluster := Cluster{Name: "aaa", UID: someUID, Epoch: 2, Type: "root:org", Parent: "root", Workspace: "org"}
	want := fmt.Sprintf("begin {Shard:eu Incarnation:a Revision:11}\n%+v\n%+v\n%+v\nend", someShards[0], cluster, edge)
	if got := strings.Join(c.until(t, "end"), "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	c.until(t, "bookmark 11")

	labelled := workspace("root", "org", "aaa")
	labelled.Labels = map[string]string{"a": "b"}
	st.workspaces.change(watch.Modified, labelled)
	st.clusters.change(watch.Modified, logicalCluster("aaa", 3))
	if got := c.until(t, "Epoch:3"); len(got) != 1 {
		t.Errorf("got %q, want no record of a change that concerns no field of the record", got)
	}
	st.workspaces.change(watch.Deleted, workspace("root", "org", "aaa"))
	st.clusters.change(watch.Deleted, logicalCluster("aaa", 3))
	c.until(t, fmt.Sprintf("%+v", Edge{Parent: "root", Name: "org", Deleted: true}))
	c.until(t, fmt.Sprintf("%+v", Cluster{Name: "aaa", Deleted: true}))
	st.shards = nil
	st.clock.Step(bookmarkInterval)
	if got := c.until(t, "bookmark 13"); len(got) != 2 || got[0] != "{Name:eu-1 Deleted:true BaseURL: Incarnation:}" {
		t.Errorf("got %q, want the deletion of the Shard before the bookmark", got)
	}
}

func TestAProxyResumesWithoutASnapshot(t *testing.T) {
	st := newStand(t)
	c := st.follow()
	c.until(t, "bookmark")
	c.leave()
	st.workspaces.change(watch.Added, workspace("root", "org", "aaa"))
	c.connectAgain()
	if got := c.until(t, "bookmark"); len(got) != 2 || !strings.Contains(got[0], "Name:org") {
		t.Errorf("got %q, want the change and a bookmark", got)
	}
	c.leave()

	st.log.limit = 1 // the log has one change
	st.workspaces.change(watch.Added, workspace("root", "org2", "bbb"))
	st.workspaces.change(watch.Added, workspace("root", "org3", "ccc"))
	c.connectAgain()
	if got := c.until(t, "bookmark"); !strings.HasPrefix(got[0], "begin") || len(got) != 6 {
		t.Errorf("got %q, want a snapshot of three workspaces", got)
	}
	c.leave()
}

func TestNothingIsRecordedWithoutProxies(t *testing.T) {
	st := newStand(t)
	recording := func() bool {
		st.mu.Lock()
		defer st.mu.Unlock()
		return st.log != nil
	}
	if recording() {
		t.Error("changes are recorded before the first proxy")
	}
	c := st.follow()
	c.until(t, "bookmark")
	log := st.log
	c.leave()
	for !st.clock.HasWaiters() || st.readersNow() > 0 {
		time.Sleep(time.Millisecond) // until the server has seen the end
	}
	st.clock.Step(linger - time.Second)
	if !recording() {
		t.Error("nothing is recorded a moment after the last proxy")
	}
	st.clock.Step(time.Second)
	if recording() {
		t.Error("changes are recorded a minute after the last proxy")
	}
	before := log.next()
	st.workspaces.change(watch.Added, workspace("root", "org", "aaa"))
	if log.next() != before {
		t.Error("the handlers still exist")
	}
	c.connectAgain()
	if got := c.until(t, "bookmark"); !strings.HasPrefix(got[0], "begin") {
		t.Errorf("got %q, want a snapshot", got)
	}
	c.leave()
}

func (s *Source) readersNow() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.readers
}

func TestAServerThatIsBehindTheClientWaits(t *testing.T) {
	st := newStand(t)
	ahead := Token{Incarnation: "a", Revision: 11}.String()
	w := httptest.NewRecorder()
	st.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/?token="+ahead, nil))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("a server that cannot catch up: got %d", w.Code)
	}
	st.progress = func() error {
		st.workspaces.change(watch.Bookmark, &tenancyv1alpha1.Workspace{})
		st.clusters.change(watch.Bookmark, &corev1alpha1.LogicalCluster{})
		return nil
	}
	c := st.follow()
	c.leave()
	c.token, c.seen = Token{Incarnation: "a", Revision: 11}, Token{Incarnation: "a", Revision: 11}
	for len(c.events) > 0 {
		<-c.events
	}
	c.connectAgain()
	c.until(t, "begin {Shard:eu Incarnation:a Revision:11}")
	c.leave()
	other := httptest.NewRecorder()
	if st.ServeHTTP(other, httptest.NewRequest(http.MethodGet, "/?token=x", nil)); other.Code != http.StatusBadRequest {
		t.Errorf("an invalid token: got %d", other.Code)
	}
}

func TestAProxyThatMissedChangesIsCutOff(t *testing.T) {
	log := newChangelog(3 * (entryBytes + 10))
	for range 10 {
		log.add(make([]byte, 10))
	}
	if _, _, _, ok := log.read(nil, 6, 10, frameSize); ok || log.has(6) || log.has(11) {
		t.Error("a position outside of the log is read")
	}
	if got, next, _, ok := log.read(nil, 7, 10, frameSize); !ok || next != 10 || len(got) != 30 || log.bytes > log.limit {
		t.Errorf("got %d bytes up to %d, %t; the log has %d bytes", len(got), next, ok, log.bytes)
	}
	st := &stream{log: log, frame: make([]byte, headerSize)}
	if err := st.changes(10); !errors.Is(err, errSlow) {
		t.Errorf("got %v", err)
	}
}

// rising fails when the epoch of a cluster falls.
type rising struct {
	counter
	t      *testing.T
	epochs map[string]uint64
	done   chan struct{}
}

func (r *rising) Cluster(c Cluster) error {
	name := strings.Clone(string(c.Name))
	if c.Epoch < r.epochs[name] {
		r.t.Errorf("the epoch of %s falls from %d to %d", name, r.epochs[name], c.Epoch)
	}
	r.epochs[name] = c.Epoch
	return nil
}

func (r *rising) Bookmark(uint64) { close(r.done) }

func TestASnapshotHasNothingOlderThanTheChangesBeforeIt(t *testing.T) {
	const clusters = 3000
	st := newStand(t)
	name := func(i int) string { return fmt.Sprintf("cluster%d", i) }
	for i := range clusters {
		st.clusters.events.Add(logicalCluster(name(i), 1))
	}
	st.clusters.change(watch.Added, logicalCluster("last", 1))
	sink := &rising{t: t, epochs: map[string]uint64{}, done: make(chan struct{})}
	f := &follower{streams: st, shard: "eu", sink: sink, clock: clock.RealClock{}}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- f.connect(ctx) }()
	for epoch := 2; ; epoch++ {
		st.clusters.events.Modify(logicalCluster(name(rand.IntN(clusters)), epoch))
		select {
		case <-sink.done:
		default:
			continue
		}
		break
	}
	cancel()
	<-ended
}

func TestSnapshotsAreLimitedAndTheOthersWait(t *testing.T) {
	st := newStand(t)
	for range maxSnapshots {
		st.snapshots <- struct{}{}
	}
	c := st.follow()
	c.until(t, "begin")
	for range 3 { // the client would give up
		for !st.clock.HasWaiters() {
			time.Sleep(time.Millisecond) // until the stream waits
		}
		st.clock.Step(bookmarkInterval)
	}
	select {
	case event := <-c.events:
		t.Errorf("got %s without a place for the snapshot", event)
	default:
	}
	<-st.snapshots
	c.until(t, "bookmark")
	c.leave()
}

func TestErrorsOfTheServerAreStatuses(t *testing.T) {
	unfilled := informers.New(corev1alpha1.SchemeGroupVersion.WithResource("x"), &corev1alpha1.LogicalCluster{}, &cache.ListWatch{}, nil)
	source := NewSource(Config{
		Workspaces: informers.Lister[*tenancyv1alpha1.Workspace]{Informer: unfilled},
		Clusters:   informers.Lister[*corev1alpha1.LogicalCluster]{Informer: unfilled},
	})
	if err := source.serve(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("got %v before the informers are filled", err)
	}
}
