package shards

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	testingclock "k8s.io/utils/clock/testing"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/logicalcluster"
)

var one = peers.Identity{Kind: peers.Shard, Name: "one"}

func registration(incarnation string, adopt bool) Registration {
	return Registration{
		BaseURL: "https://one.test", ExternalURL: "https://kcp.test", VirtualWorkspaceURL: "https://one.test", Incarnation: incarnation, Adopt: adopt,
	}
}

func TestAShardRegistersItselfAndKeepsItsStore(t *testing.T) {
	o := objecttest.New(t)
	r := Registry{Shards: o.Stored(o.Set.Shards.Informer), Installation: "here"}
	for _, step := range []struct {
		name    string
		in      Registration
		refused func(error) bool
		store   string
	}{
		{"a new shard", registration("a", false), nil, "a"},
		{"a restart", registration("a", false), nil, "a"},
		{"another store", registration("b", false), apierrors.IsConflict, "a"},
		{"another store that is adopted", registration("b", true), nil, "b"},
		{"the former store", registration("a", false), apierrors.IsConflict, "b"},
		{"no store", registration("", false), apierrors.IsBadRequest, "b"},
		{"no URL", Registration{Incarnation: "b"}, apierrors.IsBadRequest, "b"},
	} {
		got, err := r.Register(t.Context(), one, step.in)
		if (err == nil) != (step.refused == nil) || (err != nil && !step.refused(err)) || (err == nil && got.ID != "here") {
			t.Errorf("%s: %+v, %v", step.name, got, err)
		}
		shard, err := o.Set.Shards.Get(logicalcluster.Root, "", "one")
		if err != nil || shard.Annotations[corev1alpha1.IncarnationAnnotation] != step.store || shard.Spec.BaseURL != "https://one.test" ||
			shard.Labels["name"] != "one" {
			t.Errorf("%s: stored %+v, %v", step.name, shard, err)
		}
	}
}

func TestARegistrationKeepsWhatAdministratorsSetOnTheShard(t *testing.T) {
	existing := &corev1alpha1.Shard{}
	existing.Name, existing.Labels = "one", map[string]string{"region": "eu", "name": "first"}
	existing.Annotations = map[string]string{corev1alpha1.UnschedulableAnnotation: ""}
	o := objecttest.New(t, objecttest.In("root", existing))
	r := Registry{Shards: o.Stored(o.Set.Shards.Informer), Installation: "here"}
	if _, err := r.Register(t.Context(), one, registration("a", false)); err != nil {
		t.Fatal(err)
	}
	shard, err := o.Set.Shards.Get(logicalcluster.Root, "", "one")
	_, excluded := shard.Annotations[corev1alpha1.UnschedulableAnnotation]
	if err != nil || !excluded || shard.Labels["region"] != "eu" || shard.Labels["name"] != "first" {
		t.Errorf("stored %+v, %v", shard, err)
	}
}

// records are in memory.
type records map[string]string

func (r records) Record(_ context.Context, name string) (string, error) { return r[name], nil }
func (r records) SetRecord(_ context.Context, name, value string) error { r[name] = value; return nil }

func TestAStoreBelongsToOneInstallation(t *testing.T) {
	down := &peers.Unreachable{Shard: "root", Err: errors.New("refused")}
	for name, tc := range map[string]struct {
		known    string
		answers  []any // IDs of installations, and errors
		problem  string
		later    bool
		recorded string
	}{
		"the first time":                       {"", []any{"here"}, "", false, "here"},
		"again":                                {"here", []any{"here"}, "", false, "here"},
		"the root of another installation":     {"here", []any{"there"}, "this store belongs to installation here", false, "here"},
		"a refusal":                            {"", []any{apierrors.NewConflict(shardResource, "one", errors.New("other store"))}, "other store", false, ""},
		"the root is down, the first time":     {"", []any{down, apierrors.NewServiceUnavailable("not filled"), "here"}, "", false, "here"},
		"the root is down, and known":          {"here", []any{down, down, "here"}, "", true, "here"},
		"the root is down, refuses afterwards": {"", []any{down, apierrors.NewUnauthorized("no")}, "no", false, ""},
		"a root without an installation":       {"", []any{""}, "did not name its installation", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			store := records{}
			if tc.known != "" {
				store[InstallationRecord] = tc.known
			}
			clock := testingclock.NewFakeClock(time.Now())
			sent := 0
			r := Registrar{Name: "one", Records: store, Clock: &steppingClock{clock}, Send: func(context.Context, Registration) (Installation, error) {
				answer := tc.answers[min(sent, len(tc.answers)-1)]
				sent++
				if err, failed := answer.(error); failed {
					return Installation{}, err
				}
				return Installation{ID: answer.(string)}, nil
			}}
			later, err := r.Start(t.Context())
			if (err == nil) != (tc.problem == "") || (err != nil && !strings.Contains(err.Error(), tc.problem)) {
				t.Errorf("Start returned %v", err)
			}
			if (later != nil) != tc.later {
				t.Errorf("it continues later: %t", later != nil)
			}
			if later != nil {
				later(t.Context())
			}
			if store[InstallationRecord] != tc.recorded || sent != len(tc.answers) {
				t.Errorf("recorded %q after %d calls", store[InstallationRecord], sent)
			}
		})
	}
}

// steppingClock does not wait.
type steppingClock struct{ *testingclock.FakeClock }

func (c *steppingClock) After(d time.Duration) <-chan time.Time {
	after := c.FakeClock.After(d)
	c.Step(d)
	return after
}

func TestTheStateOfAShard(t *testing.T) {
	now := time.Now()
	amounts := func(clusters int64) map[corev1.ResourceName]int64 {
		return map[corev1.ResourceName]int64{corev1alpha1.ResourceLogicalClusters: clusters}
	}
	for name, tc := range map[string]struct {
		states        []State
		problem       error // of the last state
		ready, clocks string
		used          int64
		writes        int
	}{
		"it responds":              {[]State{{Incarnation: "a", Time: now, Used: amounts(10)}}, nil, "True", "True", 10, 1},
		"again":                    {[]State{{Incarnation: "a", Time: now, Used: amounts(10)}, {Incarnation: "a", Time: now, Used: amounts(10)}}, nil, "True", "True", 10, 1},
		"little has changed":       {[]State{{Incarnation: "a", Time: now, Used: amounts(100)}, {Incarnation: "a", Time: now, Used: amounts(104)}}, nil, "True", "True", 100, 1},
		"much has changed":         {[]State{{Incarnation: "a", Time: now, Used: amounts(100)}, {Incarnation: "a", Time: now, Used: amounts(106)}}, nil, "True", "True", 106, 2},
		"it no longer responds":    {[]State{{Incarnation: "a", Time: now, Used: amounts(10)}, {}}, errors.New("refused"), "NotResponding", "True", 10, 2},
		"another store":            {[]State{{Incarnation: "b", Time: now, Used: amounts(10)}}, nil, "OtherStore", "True", 10, 1},
		"its clock is behind":      {[]State{{Incarnation: "a", Time: now.Add(-time.Minute), Used: amounts(10)}}, nil, "True", "ClocksApart", 10, 1},
		"its clock is a bit ahead": {[]State{{Incarnation: "a", Time: now.Add(5 * time.Second), Used: amounts(10)}}, nil, "True", "True", 10, 1},
	} {
		t.Run(name, func(t *testing.T) {
			shard := &corev1alpha1.Shard{}
			shard.Name, shard.Annotations = "one", map[string]string{corev1alpha1.IncarnationAnnotation: "a"}
			o := objecttest.New(t, objecttest.In("root", shard))
			stored := &counting{Objects: o.Stored(o.Set.Shards.Informer)}
			read := 0
			f := Follower{Known: o.Set.Shards, Shards: stored, Clock: testingclock.NewFakeClock(now),
				Read: func(context.Context, string) (State, error) {
					read++
					if read == len(tc.states) {
						return tc.states[read-1], tc.problem
					}
					return tc.states[read-1], nil
				}}
			for range tc.states {
				f.once(t.Context())
			}
			got, err := o.Set.Shards.Get(logicalcluster.Root, "", "one")
			if err != nil {
				t.Fatal(err)
			}
			used := got.Status.Used[corev1alpha1.ResourceLogicalClusters]
			if outcome(got, corev1alpha1.ShardReady) != tc.ready || outcome(got, corev1alpha1.ShardClockSynchronized) != tc.clocks || used.Value() != tc.used {
				t.Errorf("the status is %+v", got.Status)
			}
			if stored.updates != tc.writes {
				t.Errorf("the status was written %d times", stored.updates)
			}
		})
	}
}

// Users see that a new shard is ready before the next round.
func TestAShardIsReadSoonAfterItsRegistration(t *testing.T) {
	known := objecttest.In("root", &corev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: "one"}})
	o := objecttest.New(t, known)
	clock := testingclock.NewFakeClock(time.Now())
	began := clock.Now()
	var reads atomic.Int64
	f := NewFollower(o.Set.Shards, o.Stored(o.Set.Shards.Informer), func(context.Context, string) (State, error) {
		if reads.Add(1) < 4 { // the first one is that of the round
			return State{}, errors.New("it does not serve yet")
		}
		return State{Time: clock.Now()}, nil
	}, clock)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { f.Run(ctx) })
	defer running.Wait()
	defer cancel()
	err := wait.PollUntilContextTimeout(ctx, time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		shard, err := o.Set.Shards.Get(logicalcluster.Root, "", "one")
		if err == nil && outcome(shard, corev1alpha1.ShardReady) == "True" {
			return true, nil
		}
		if clock.Waiters() > 1 { // the next round, and an attempt
			clock.Step(greetingInterval)
		}
		return false, err
	})
	if err != nil || clock.Since(began) >= stateInterval {
		t.Errorf("got %v after %s", err, clock.Since(began))
	}
}

// counting counts updates.
type counting struct {
	storage.Objects
	updates int
}

func (c *counting) Update(ctx context.Context, name string, into runtime.Object, change func(runtime.Object) error) error {
	c.updates++
	return c.Objects.Update(ctx, name, into, change)
}

// outcome returns the status of a condition, or its reason if it is False.
func outcome(shard *corev1alpha1.Shard, condition string) string {
	for _, c := range shard.Status.Conditions {
		if c.Type == condition && c.Reason != "" {
			return c.Reason
		} else if c.Type == condition {
			return string(c.Status)
		}
	}
	return ""
}

func TestAShardWhoseStoreIsAdoptedIsInQuarantine(t *testing.T) {
	o := objecttest.New(t)
	r := Registry{Shards: o.Stored(o.Set.Shards.Informer), Installation: "here"}
	state := func() *corev1alpha1.Shard {
		f := Follower{Known: o.Set.Shards, Shards: r.Shards, Clock: testingclock.NewFakeClock(time.Now()),
			Read: func(context.Context, string) (State, error) { return State{Incarnation: "b", Time: time.Now()}, nil }}
		f.once(t.Context())
		shard, err := o.Set.Shards.Get(logicalcluster.Root, "", "one")
		if err != nil {
			t.Fatal(err)
		}
		return shard
	}
	for _, step := range []struct {
		name string
		in   Registration
		want string
	}{
		{"a new shard", registration("a", true), ""},
		{"a restart with --adopt-shard", registration("a", true), ""},
		{"another store", registration("b", true), corev1alpha1.ReasonShardRestored},
		{"a restart in quarantine", registration("b", false), corev1alpha1.ReasonShardRestored},
	} {
		if _, err := r.Register(t.Context(), one, step.in); err != nil {
			t.Fatal(err)
		}
		if got := outcome(state(), corev1alpha1.ShardTrusted); got != step.want {
			t.Errorf("%s: the condition is %q, want %q", step.name, got, step.want)
		}
	}
	err := r.Shards.Update(logicalcluster.WithName(t.Context(), logicalcluster.Root), "one", &corev1alpha1.Shard{}, func(obj runtime.Object) error {
		delete(obj.(*corev1alpha1.Shard).Annotations, corev1alpha1.QuarantineAnnotation)
		return nil
	})
	if got := outcome(state(), corev1alpha1.ShardTrusted); err != nil || got != "True" {
		t.Errorf("after the quarantine, the condition is %q, %v", got, err)
	}
}

func TestAShardWithTheCacheServerOfAnotherInstallationHasACondition(t *testing.T) {
	status := &corev1alpha1.ShardStatus{}
	for _, step := range []struct{ other, want string }{
		{"", ""}, {"theirs", corev1alpha1.ReasonShardOtherInstallation}, {"", "True"},
	} {
		report(status, &corev1alpha1.Shard{}, State{Time: time.Now(), CacheOf: step.other}, nil, time.Now())
		if got := outcome(&corev1alpha1.Shard{Status: *status}, corev1alpha1.ShardCacheServerMatches); got != step.want {
			t.Errorf("with the cache server of %q, the condition is %q, want %q", step.other, got, step.want)
		}
	}
}

func TestOnlyTheRootShardReadsTheStateOfShards(t *testing.T) {
	serve := ServeState(func(context.Context) State { return State{Incarnation: "a"} })
	if _, err := serve(t.Context(), one, Question{}); !apierrors.IsForbidden(err) {
		t.Errorf("another shard got %v", err)
	}
	if got, err := serve(t.Context(), peers.Identity{Kind: peers.Shard, Name: peers.Root}, Question{}); err != nil || got.Incarnation != "a" {
		t.Errorf("root got %+v, %v", got, err)
	}
}
