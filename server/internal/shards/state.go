package shards

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/apis/conditions"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Question is the request for the state of a shard. It has no fields.
type Question struct{}

// State is what a shard holds now.
type State struct {
	Incarnation string `json:"incarnation"`
	// Time is the clock of the shard.
	Time time.Time `json:"time"`
	// Used and Capacity are in the units of ShardStatus.
	Used     map[corev1.ResourceName]int64 `json:"used"`
	Capacity map[corev1.ResourceName]int64 `json:"capacity,omitempty"`
	// CacheOf is the other installation whose cache server the shard has; empty if it is that of its own installation.
	CacheOf string `json:"cacheOf,omitempty"`
}

// CallState is the peer call by which the root shard reads the state of a shard.
const CallState = "shards.state"

// ServeState returns the handler of CallState.
func ServeState(state func(context.Context) State) func(context.Context, peers.Identity, Question) (State, error) {
	return func(ctx context.Context, caller peers.Identity, _ Question) (State, error) {
		if caller.Name != peers.Root {
			return State{}, apierrors.NewForbidden(shardResource, caller.Name, fmt.Errorf("only the root shard reads the state of shards"))
		}
		return state(ctx), nil
	}
}

const (
	// stateInterval is how often the root shard reads the state of every shard, and stateTimeout how long it waits for one.
	stateInterval, stateTimeout = 15 * time.Second, 5 * time.Second
	// parallelReads is how many shards it reads at a time.
	parallelReads = 16
	// maxGreetings is the number of registered shards that wait to be read for the first time, which is tried greetingAttempts times.
	maxGreetings, greetingAttempts = 1024, 10
	greetingInterval               = 500 * time.Millisecond
	// maxClockDifference is the difference of two clocks that is reported.
	maxClockDifference = 10 * time.Second
	// noticeable is the part by which usage must change to be written again: every shard reads all Shard objects.
	noticeable = 0.05
)

// Follower writes the state of every shard into the status of its Shard object.
type Follower struct {
	Known  informers.Lister[*corev1alpha1.Shard]
	Shards storage.Objects
	// Read returns the state of a shard.
	Read  func(ctx context.Context, shard string) (State, error)
	Clock clock.WithTicker

	registered chan string // names
}

// NewFollower returns a follower of shards in storage, which reads a shard by read.
func NewFollower(known informers.Lister[*corev1alpha1.Shard], shards storage.Objects,
	read func(ctx context.Context, shard string) (State, error), clock clock.WithTicker) *Follower {
	f := &Follower{Known: known, Shards: shards, Read: read, Clock: clock, registered: make(chan string, maxGreetings)}
	known.AddHandler(f.handle)
	return f
}

// handle lets Run read a shard soon after it was registered. What does not fit is read with all others.
func (f *Follower) handle(old, obj runtime.Object) {
	shard, ok := obj.(*corev1alpha1.Shard)
	if !ok {
		return
	}
	if before, ok := old.(*corev1alpha1.Shard); ok &&
		before.Annotations[corev1alpha1.IncarnationAnnotation] == shard.Annotations[corev1alpha1.IncarnationAnnotation] {
		return
	}
	select {
	case f.registered <- shard.Name:
	default:
	}
}

// Run follows the shards until ctx ends.
func (f *Follower) Run(ctx context.Context) {
	var greeting sync.WaitGroup
	defer greeting.Wait()
	for range parallelReads {
		greeting.Go(func() { f.greet(ctx) })
	}
	ticker := f.Clock.NewTicker(stateInterval)
	defer ticker.Stop()
	for {
		f.once(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// greet reads the shards that were registered, as soon as they respond: a shard registers before it serves.
func (f *Follower) greet(ctx context.Context) {
	for {
		var name string
		select {
		case <-ctx.Done():
			return
		case name = <-f.registered:
		}
		for range greetingAttempts {
			reading, cancel := context.WithTimeout(ctx, stateTimeout)
			state, err := f.Read(reading, name)
			cancel()
			if shard, missing := f.Known.Get(logicalcluster.Root, "", name); err == nil && missing == nil {
				f.write(ctx, shard, state, nil)
				break
			}
			select {
			case <-ctx.Done():
				return
			case <-f.Clock.After(greetingInterval):
			}
		}
	}
}

// once reads every shard.
func (f *Follower) once(ctx context.Context) {
	all, err := f.Known.List(logicalcluster.Root)
	if err != nil {
		return // the index exists
	}
	var reading sync.WaitGroup
	defer reading.Wait()
	free := make(chan struct{}, parallelReads)
	for _, shard := range all {
		free <- struct{}{}
		reading.Go(func() {
			defer func() { <-free }()
			f.follow(ctx, shard)
		})
	}
}

// follow reads one shard, and writes what has changed.
func (f *Follower) follow(ctx context.Context, shard *corev1alpha1.Shard) {
	reading, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	state, problem := f.Read(reading, shard.Name)
	if ctx.Err() == nil {
		f.write(ctx, shard, state, problem)
	}
}

// write writes the state of a shard, or why there is none, if that has changed.
func (f *Follower) write(ctx context.Context, shard *corev1alpha1.Shard, state State, problem error) {
	wanted := shard.Status.DeepCopy()
	report(wanted, shard, state, problem, f.Clock.Now())
	if !changed(shard.Status, *wanted) {
		return
	}
	inside := logicalcluster.WithName(ctx, logicalcluster.Root)
	err := f.Shards.Update(inside, shard.Name, &corev1alpha1.Shard{}, func(obj runtime.Object) error {
		live := obj.(*corev1alpha1.Shard)
		report(&live.Status, live, state, problem, f.Clock.Now())
		return nil
	})
	if err != nil && !apierrors.IsNotFound(err) {
		klog.FromContext(ctx).Error(err, "Writing the state of a shard failed", decisionlog.Name, shard.Name)
	}
}

// report writes a state into the status of a shard, or why there is none.
func report(status *corev1alpha1.ShardStatus, shard *corev1alpha1.Shard, state State, problem error, now time.Time) {
	ready := corev1alpha1.Condition{Type: corev1alpha1.ShardReady, Status: metav1.ConditionTrue}
	known := shard.Annotations[corev1alpha1.IncarnationAnnotation]
	switch {
	case problem != nil:
		ready.Status, ready.Severity, ready.Reason = metav1.ConditionFalse, "Error", corev1alpha1.ReasonShardNotResponding
		ready.Message = "the shard does not respond to the root shard: " + problem.Error()
	case known != "" && state.Incarnation != known:
		ready.Status, ready.Severity, ready.Reason = metav1.ConditionFalse, "Error", corev1alpha1.ReasonShardOtherStore
		ready.Message = fmt.Sprintf("the server at %s has the store %s, but the shard is registered with %s", shard.Spec.BaseURL,
			state.Incarnation, known)
	}
	conditions.Set(&status.Conditions, ready)
	reportTrust(status, shard)
	if problem != nil {
		return // what it held stays
	}
	clocks := corev1alpha1.Condition{Type: corev1alpha1.ShardClockSynchronized, Status: metav1.ConditionTrue}
	if difference := state.Time.Sub(now); difference.Abs() > maxClockDifference {
		clocks.Status, clocks.Severity, clocks.Reason = metav1.ConditionFalse, "Warning", corev1alpha1.ReasonShardClocksApart
		clocks.Message = fmt.Sprintf("the clocks of this shard and of the root shard differ by more than %s: check the time service of "+
			"both hosts", maxClockDifference)
	}
	conditions.Set(&status.Conditions, clocks)
	reportCache(status, state)
	status.Used, status.Capacity = quantities(state.Used, status.Used), quantities(state.Capacity, nil)
}

// reportTrust writes into the status of a shard whether it is in quarantine, if it ever was.
func reportTrust(status *corev1alpha1.ShardStatus, shard *corev1alpha1.Shard) {
	trusted := corev1alpha1.Condition{Type: corev1alpha1.ShardTrusted, Status: metav1.ConditionTrue}
	if _, quarantined := shard.Annotations[corev1alpha1.QuarantineAnnotation]; quarantined {
		trusted.Status, trusted.Severity, trusted.Reason = metav1.ConditionFalse, "Warning", corev1alpha1.ReasonShardRestored
		trusted.Message = "the store of the shard was restored or replaced: nothing is deleted on its word until kubectl kcp check finds " +
			"no conflict"
	} else if !slices.ContainsFunc(status.Conditions, func(c corev1alpha1.Condition) bool { return c.Type == trusted.Type }) {
		return
	}
	conditions.Set(&status.Conditions, trusted)
}

// reportCache writes into the status of a shard whether its cache server is that of the installation, if it ever was another one.
func reportCache(status *corev1alpha1.ShardStatus, state State) {
	cache := corev1alpha1.Condition{Type: corev1alpha1.ShardCacheServerMatches, Status: metav1.ConditionTrue}
	if state.CacheOf != "" {
		cache.Status, cache.Severity, cache.Reason = metav1.ConditionFalse, "Error", corev1alpha1.ReasonShardOtherInstallation
		cache.Message = fmt.Sprintf("the cache server of this shard belongs to installation %s and refuses the shard: correct "+
			"--cache-kubeconfig of the shard", state.CacheOf)
	} else if !slices.ContainsFunc(status.Conditions, func(c corev1alpha1.Condition) bool { return c.Type == cache.Type }) {
		return
	}
	conditions.Set(&status.Conditions, cache)
}

// quantities returns amounts as resources. An amount that has hardly changed keeps its former value.
func quantities(amounts map[corev1.ResourceName]int64, former corev1.ResourceList) corev1.ResourceList {
	if len(amounts) == 0 {
		return nil
	}
	list := corev1.ResourceList{}
	for name, amount := range amounts {
		list[name] = *resource.NewQuantity(amount, resource.DecimalSI)
		if before, ok := former[name]; ok && alike(before.Value(), amount) {
			list[name] = before
		}
	}
	return list
}

func alike(before, now int64) bool {
	difference := float64(now - before)
	return max(difference, -difference) <= noticeable*float64(before)
}

// changed reports whether a status must be written.
func changed(before, after corev1alpha1.ShardStatus) bool {
	if !sameAmounts(before.Used, after.Used) || !sameAmounts(before.Capacity, after.Capacity) ||
		len(before.Conditions) != len(after.Conditions) {
		return true
	}
	for i, c := range after.Conditions {
		b := before.Conditions[i]
		if b.Type != c.Type || b.Status != c.Status || b.Reason != c.Reason {
			return true
		}
	}
	return false
}

func sameAmounts(a, b corev1.ResourceList) bool {
	if len(a) != len(b) {
		return false
	}
	for name, amount := range a {
		if other, ok := b[name]; !ok || amount.Cmp(other) != 0 {
			return false
		}
	}
	return true
}
