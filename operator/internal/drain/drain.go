// Package drain decides which logical clusters of a shard move to which other shards. It is pure: callers read the state of kcp, and
// execute the decision of a Plan. A decision depends only on what kcp has, so that it continues when the operator restarts.
package drain

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	migrationv1alpha1 "github.com/kcplane/kcp/api/migration/v1alpha1"
	"github.com/kcplane/kcp/api/operator/v1alpha1"
)

const (
	// Label of a LogicalClusterMigration of the operator is the name of the shard that is drained.
	Label = "operator.kcp.io/drain"
	// Parallel is the maximum number of logical clusters of a shard that move at a time.
	Parallel = 4
	// retryAfter is how long a failed migration is kept as a report, until the move is tried again.
	retryAfter = 5 * time.Minute
	// maxFailed is the number of kept failures at which no other move begins, and maxShown how many the status has.
	maxFailed, maxShown = 100, 10
)

// Snapshot is the state of an installation in kcp.
type Snapshot struct {
	// Shard is the name of the shard that is drained.
	Shard string
	// Shards are all shards of the installation, and Migrations all migrations.
	Shards     []corev1alpha1.Shard
	Migrations []migrationv1alpha1.LogicalClusterMigration
	Now        time.Time
}

// Move is a logical cluster that moves to another shard.
type Move struct{ Cluster, Destination string }

// Name returns the name of the migration of a logical cluster. The same move always has the same name, so that it begins only once.
func Name(shard, cluster string) string { return "drain-" + shard + "-" + cluster }

// Decision is what happens next.
type Decision struct {
	// Forget are the names of migrations to delete: those that have succeeded, and failed ones that are tried again.
	Forget []string
	Begin  []Move
	Status v1alpha1.DrainStatus
	// Condition is Drained.
	Condition metav1.Condition
}

// state is a Snapshot, ordered for a decision.
type state struct {
	Snapshot
	// moving are the logical clusters in a migration, with the reason why it waits, and failed those whose migration of the operator failed.
	moving map[string]string
	failed map[string]failure
	// own is the number of migrations of the operator in progress, and arriving that of all migrations to each shard.
	own      int
	arriving map[string]int64
	// refuses has the reason why each shard gets no logical clusters, or an empty string.
	refuses   map[string]string
	forgotten []string
}

// failure is a failed migration.
type failure struct{ migration, message string }

// read orders what kcp has.
func read(in Snapshot) *state {
	s := &state{Snapshot: in, moving: map[string]string{}, failed: map[string]failure{}, arriving: map[string]int64{},
		refuses: map[string]string{}}
	for i := range in.Shards {
		s.refuses[in.Shards[i].Name] = refusal(&in.Shards[i], in.Shard)
	}
	for i := range in.Migrations {
		s.readMigration(&in.Migrations[i])
	}
	return s
}

func (s *state) readMigration(m *migrationv1alpha1.LogicalClusterMigration) {
	own := m.Labels[Label] == s.Shard
	ended, message := outcome(m)
	switch {
	case !m.Status.Phase.IsFinal():
		s.moving[m.Spec.LogicalCluster] = message
		s.arriving[m.Spec.DestinationShard]++
		if own {
			s.own++
		}
	case !own || m.DeletionTimestamp != nil:
	case m.Status.Phase == migrationv1alpha1.PhaseCompleted || !s.Now.Before(ended.Add(retryAfter)):
		s.forgotten = append(s.forgotten, m.Name)
	default:
		s.failed[m.Spec.LogicalCluster] = failure{m.Name, message}
	}
}

// accepted reports whether any shard accepts logical clusters.
func (s *state) accepted() bool {
	for _, reason := range s.refuses {
		if reason == "" {
			return true
		}
	}
	return false
}

// outcome returns when a migration has ended, and why it has failed or waits.
func outcome(m *migrationv1alpha1.LogicalClusterMigration) (ended time.Time, message string) {
	ended = m.CreationTimestamp.Time
	for _, c := range m.Status.Conditions {
		if c.Type == migrationv1alpha1.Completed && c.Status == metav1.ConditionFalse {
			ended, message = c.LastTransitionTime.Time, c.Message
		}
	}
	return ended, message
}

// refusal returns why a shard gets no logical clusters, or an empty string.
func refusal(shard *corev1alpha1.Shard, drained string) string {
	marked, unschedulable := shard.Annotations[corev1alpha1.UnschedulableAnnotation]
	ready := slices.ContainsFunc(shard.Status.Conditions, func(c corev1alpha1.Condition) bool {
		return c.Type == corev1alpha1.ShardReady && c.Status == metav1.ConditionTrue
	})
	switch {
	case shard.Name == drained:
		return "is drained"
	case shard.DeletionTimestamp != nil:
		return "is being deleted"
	case unschedulable && marked == Cordoned:
		return "has spec.drain or is being deleted"
	case unschedulable:
		return "has the annotation " + corev1alpha1.UnschedulableAnnotation + " in kcp"
	case shard.Annotations[corev1alpha1.QuarantineAnnotation] != "":
		return "is in quarantine: run kubectl kcp check"
	case !ready:
		return "does not respond"
	}
	for resource, limit := range shard.Status.Capacity {
		if used, ok := shard.Status.Used[resource]; ok && used.Cmp(limit) >= 0 {
			return "is full"
		}
	}
	return ""
}

// Cordoned is the value of the annotation with which the operator stops the scheduling of workspaces to a shard.
const Cordoned = "kcp-operator"

// destination returns the shard with the fewest logical clusters of those that may hold one, or an empty string.
func (s *state) destination(lc corev1alpha1.ShardLogicalCluster) string {
	selector, err := labels.Parse(lc.Selector)
	if err != nil {
		return ""
	}
	best, least := "", int64(0)
	for i := range s.Shards {
		shard := &s.Shards[i]
		if s.refuses[shard.Name] != "" || !selector.Matches(labels.Set(shard.Labels)) {
			continue
		}
		used := shard.Status.Used[corev1alpha1.ResourceLogicalClusters]
		n := used.Value() + s.arriving[shard.Name]
		if best == "" || n < least || n == least && cmp.Less(shard.Name, best) {
			best, least = shard.Name, n
		}
	}
	return best
}
