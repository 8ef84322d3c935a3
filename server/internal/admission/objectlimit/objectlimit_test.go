package objectlimit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
	testingclock "k8s.io/utils/clock/testing"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

var (
	configMaps = schema.GroupResource{Resource: "configmaps"}
	events     = schema.GroupResource{Resource: "events"}
)

const interval = time.Minute

// shard is a server with clusters, and the number of their objects in etcd.
type shard struct {
	*Limits
	clusters *informers.Informer
	clock    *testingclock.FakePassiveClock
	mu       sync.Mutex
	stored   map[logicalcluster.Name]int64
	counts   int
	failure  error
}

func newShard(t *testing.T, standard int64) *shard {
	t.Helper()
	s := &shard{clock: testingclock.NewFakePassiveClock(time.Now()), stored: map[logicalcluster.Name]int64{}}
	s.Limits = New(Config{Standard: standard, Interval: interval, Clock: s.clock, Count: func(ctx context.Context) (int64, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.counts++
		cluster, _ := logicalcluster.NameFrom(ctx)
		return s.stored[cluster], s.failure
	}})
	set := &informers.Set{}
	set.LogicalClusters.Informer = informers.New(corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters"), &corev1alpha1.LogicalCluster{}, &cache.ListWatch{}, nil)
	s.clusters = set.LogicalClusters.Informer
	s.Follow(set)
	return s
}

// cluster creates a cluster; limit is empty if it has no annotation.
func (s *shard) cluster(t *testing.T, name logicalcluster.Name, limit string, phase corev1alpha1.LogicalClusterPhase) {
	t.Helper()
	lc := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster", Annotations: map[string]string{logicalcluster.AnnotationKey: string(name)}}}
	lc.Status.Phase = phase
	if limit != "" {
		lc.Annotations[corev1alpha1.MaxTotalObjectsAnnotation] = limit
	}
	if err := s.clusters.Indexer().Add(lc); err != nil {
		t.Fatal(err)
	}
}

func as(name string, cluster logicalcluster.Name) context.Context {
	return request.WithUser(logicalcluster.WithName(context.Background(), cluster), &user.DefaultInfo{Name: name})
}

// store stores an object if it is admitted.
func (s *shard) store(ctx context.Context, resource schema.GroupResource, name string) error {
	settle, err := s.Add(ctx, resource, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}})
	if err != nil {
		return err
	}
	cluster, _ := logicalcluster.NameFrom(ctx)
	s.mu.Lock()
	s.stored[cluster]++
	s.mu.Unlock()
	settle(true)
	return nil
}

func (s *shard) remove(cluster logicalcluster.Name) {
	s.mu.Lock()
	s.stored[cluster]--
	s.mu.Unlock()
	s.Deleted(cluster, configMaps)
}

func TestALimitIsThatOfTheClusterOrOfTheShard(t *testing.T) {
	const ready = corev1alpha1.LogicalClusterPhaseReady
	s := newShard(t, 100)
	for name, test := range map[logicalcluster.Name]struct {
		own   string
		phase corev1alpha1.LogicalClusterPhase
		want  int64
	}{
		"plain": {"", ready, 100}, "own": {"5", ready, 5}, "zero": {"0", ready, 0}, "negative": {"-1", ready, 0}, "unreadable": {"many", ready, 100},
		"root": {"", ready, 0}, "system:admin": {"", ready, 0}, "initializing": {"5", corev1alpha1.LogicalClusterPhaseInitializing, 5},
		"scheduling": {"5", corev1alpha1.LogicalClusterPhaseScheduling, 5}, "inactive": {"5", corev1alpha1.LogicalClusterPhaseInactive, 5},
	} {
		s.cluster(t, name, test.own, test.phase)
		if got := s.of(name); got != test.want {
			t.Errorf("%s: got %d, want %d", name, got, test.want)
		}
	}
	s.cluster(t, "root", "7", ready)
	if got := s.of("root"); got != 7 {
		t.Errorf("the annotation of root is ignored: got %d", got)
	}
	if got := s.of("absent"); got != 0 {
		t.Errorf("a cluster that does not exist has the limit %d", got)
	}
}

func TestAFullClusterTakesNothing(t *testing.T) {
	s := newShard(t, 0)
	s.cluster(t, "full", "3", corev1alpha1.LogicalClusterPhaseReady)
	s.cluster(t, "free", "", corev1alpha1.LogicalClusterPhaseReady)
	alice, server := as("alice", "full"), authorization.AsServer(as(user.APIServerUser, "full"))
	for range 3 {
		if err := s.store(alice, configMaps, "x"); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{s.store(alice, configMaps, "x"), s.Check(alice, configMaps, "x")} {
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "holds 3 objects, and its total object count limit is 3") {
			t.Errorf("got %v", err)
		}
	}
	for what, err := range map[string]error{
		"an event": s.store(alice, events, "x"), "the server": s.store(server, configMaps, "x"), "the LogicalCluster": s.store(alice, logicalClusters, "cluster"),
		"the binding of the owner": s.store(alice, bindings, authorization.OwnersBindingName), "another cluster": s.store(as("alice", "free"), configMaps, "x"),
		"no user": s.store(logicalcluster.WithName(t.Context(), "full"), configMaps, "x"),
	} {
		if err != nil {
			t.Errorf("%s was refused: %v", what, err)
		}
	}
	if err := s.store(as(user.APIServerUser, "full"), configMaps, "x"); err == nil {
		t.Error("a user with the name of the server is not limited")
	}
	if err := s.store(alice, bindings, "another"); err == nil {
		t.Error("another binding was stored")
	}
}

func TestWhatIsDeletedMakesRoom(t *testing.T) {
	s := newShard(t, 2)
	s.cluster(t, "c", "", corev1alpha1.LogicalClusterPhaseReady)
	alice := as("alice", "c")
	for round := range 5 {
		for s.store(alice, configMaps, "x") == nil {
		}
		if s.stored["c"] != 2 {
			t.Fatalf("round %d: it holds %d", round, s.stored["c"])
		}
		s.remove("c")
	}
	settle, err := s.Add(alice, configMaps, &metav1.PartialObjectMetadata{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Check(alice, configMaps, "x"); err == nil {
		t.Error("an object that is being written does not count")
	}
	settle(false)
	if err := s.Check(alice, configMaps, "x"); err != nil {
		t.Errorf("an object that was not stored counts: %v", err)
	}
}

func TestManyAtATimeAreNotMoreThanTheLimit(t *testing.T) {
	s := newShard(t, 50)
	s.cluster(t, "c", "", corev1alpha1.LogicalClusterPhaseReady)
	var stored atomic.Int64
	var clients sync.WaitGroup
	for range 200 {
		clients.Go(func() {
			if s.store(as("alice", "c"), configMaps, "x") == nil {
				stored.Add(1)
			}
		})
	}
	clients.Wait()
	if stored.Load() != 50 {
		t.Errorf("%d were stored", stored.Load())
	}
}

func TestACountIsTakenWhenItMatters(t *testing.T) {
	s := newShard(t, 10)
	s.cluster(t, "c", "", corev1alpha1.LogicalClusterPhaseReady)
	alice := as("alice", "c")
	s.stored["c"] = 5
	for range 4 {
		_ = s.store(alice, configMaps, "x")
	}
	if s.counts != 1 {
		t.Errorf("it was counted %d times", s.counts)
	}
	s.stored["c"] = 0 // by another server
	_ = s.store(alice, configMaps, "x")
	for range 5 {
		if err := s.store(alice, configMaps, "x"); err == nil {
			t.Fatal("a full cluster is counted again without a pause")
		}
	}
	s.clock.SetTime(s.clock.Now().Add(pause))
	if err := s.store(alice, configMaps, "x"); err != nil || s.counts != 2 {
		t.Errorf("after %d counts: %v", s.counts, err)
	}
	s.stored["c"] = 10
	s.clock.SetTime(s.clock.Now().Add(interval))
	if err := s.store(alice, configMaps, "x"); err == nil {
		t.Error("an old count is used")
	}
	s.failure = errors.New("etcd is slow")
	s.clock.SetTime(s.clock.Now().Add(interval))
	if err := s.store(alice, configMaps, "x"); err != nil {
		t.Errorf("writes are refused when counting fails: %v", err)
	}
}

func TestIdleClustersCostNothing(t *testing.T) {
	s := newShard(t, 10)
	for n := range 20 {
		name := logicalcluster.Name(fmt.Sprintf("c%d", n))
		s.cluster(t, name, "", corev1alpha1.LogicalClusterPhaseReady)
		if n < 5 {
			s.stored[name] = 9 // nearly full, with the one that follows
		}
		if err := s.store(as("alice", name), configMaps, "x"); err != nil {
			t.Fatal(err)
		}
	}
	s.cluster(t, "free", "0", corev1alpha1.LogicalClusterPhaseReady)
	_ = s.store(as("alice", "free"), configMaps, "x")
	if len(s.tallies) != 20 {
		t.Errorf("%d clusters are known", len(s.tallies))
	}
	s.clock.SetTime(s.clock.Now().Add(interval))
	if list := s.fullest(); len(list) != 5 || len(s.tallies) != 5 {
		t.Errorf("%d clusters are nearly full, %d known", len(list), len(s.tallies))
	}
	s.forget("c0")
	if len(s.tallies) != 4 {
		t.Errorf("%d clusters are known", len(s.tallies))
	}
}

func TestTheMetricsShowTheFullest(t *testing.T) {
	s := newShard(t, 10)
	for n := range maxSeries + 50 {
		name := logicalcluster.Name(fmt.Sprintf("c%03d", n))
		s.cluster(t, name, "", corev1alpha1.LogicalClusterPhaseReady)
		s.stored[name] = []int64{3, 8, 9}[n%3]
		_ = s.store(as("alice", name), configMaps, "x")
	}
	list := s.fullest()
	if len(list) != maxSeries || list[0].held != 10 || list[0].limit != 10 || list[maxSeries-1].held != 9 {
		t.Errorf("got %v", list)
	}
	registry := metrics.NewKubeRegistry()
	if err := s.Register(registry.CustomRegister, "root"); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil || len(families) != 2 {
		t.Fatalf("%d metrics, %v", len(families), err)
	}
	for _, family := range families {
		if len(family.Metric) != maxSeries || len(family.Metric[0].Label) != 2 {
			t.Errorf("%s has %d series", family.GetName(), len(family.Metric))
		}
	}
}
