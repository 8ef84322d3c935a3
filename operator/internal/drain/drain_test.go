package drain

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	migrationv1alpha1 "github.com/kcplane/kcp/api/migration/v1alpha1"
	"github.com/kcplane/kcp/api/operator/v1alpha1"
)

var now = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// other returns a shard that accepts logical clusters and holds n.
func other(name string, n int64, change ...func(*corev1alpha1.Shard)) corev1alpha1.Shard {
	s := corev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"region": name}, Annotations: map[string]string{}}}
	s.Status.Conditions = []corev1alpha1.Condition{{Type: "Ready", Status: metav1.ConditionTrue}}
	s.Status.Used = corev1.ResourceList{"logicalclusters": *resource.NewQuantity(n, resource.DecimalSI)}
	for _, f := range change {
		f(&s)
	}
	return s
}

// held returns n logical clusters that may be anywhere.
func held(n int) (all []corev1alpha1.ShardLogicalCluster) {
	for i := range n {
		all = append(all, corev1alpha1.ShardLogicalCluster{Name: fmt.Sprintf("c%d", i), Path: fmt.Sprintf("root:w%d", i)})
	}
	return all
}

// moving returns a migration of the operator in a phase, whose condition was set some time ago.
func moving(cluster string, phase migrationv1alpha1.LogicalClusterMigrationPhase, message string, ago time.Duration,
) migrationv1alpha1.LogicalClusterMigration {
	m := migrationv1alpha1.LogicalClusterMigration{ObjectMeta: metav1.ObjectMeta{Name: Name("west", cluster), Labels: map[string]string{Label: "west"}}}
	m.Spec = migrationv1alpha1.LogicalClusterMigrationSpec{LogicalCluster: cluster, DestinationShard: "east"}
	m.Status.Phase = phase
	if message != "" {
		m.Status.Conditions = []corev1alpha1.Condition{{Type: "Completed", Status: metav1.ConditionFalse, Message: message,
			LastTransitionTime: metav1.NewTime(now.Add(-ago))}}
	}
	return m
}

// snapshot is the state of the shard west, in one page.
type snapshot struct {
	Held       []corev1alpha1.ShardLogicalCluster
	Total      int64
	Shards     []corev1alpha1.Shard
	Migrations []migrationv1alpha1.LogicalClusterMigration
}

func (s snapshot) plan(was *v1alpha1.DrainStatus) *Plan {
	p := NewPlan(Snapshot{Shard: "west", Shards: s.Shards, Migrations: s.Migrations, Now: now}, was)
	p.Add(s.Held, s.Total)
	return p
}

func (s snapshot) decide(was *v1alpha1.DrainStatus) Decision { return s.plan(was).Decision() }

func TestADrainMovesWhatAShardHolds(t *testing.T) {
	failed, done, copying := migrationv1alpha1.PhaseFailed, migrationv1alpha1.PhaseCompleted, migrationv1alpha1.PhaseMigrating
	annotated := func(key, value string) func(*corev1alpha1.Shard) {
		return func(s *corev1alpha1.Shard) { s.Annotations[key] = value }
	}
	both := []corev1alpha1.Shard{other("west", 9), other("east", 3), other("root", 2)}
	selecting := held(2)
	selecting[0].Selector, selecting[1].Selector = "region=east", "region=north"
	staying := held(3)
	staying[0].Stays, staying[1].Stays, staying[1].Deleting = "it has no Workspace", "it is being deleted", true
	foreign := moving("c0", copying, "", 0)
	foreign.Labels, foreign.Name = nil, "by-hand"
	deleted := moving("c0", failed, "no", time.Minute)
	deleted.DeletionTimestamp = &metav1.Time{Time: now}
	for _, c := range []struct {
		what            string
		in              snapshot
		begin, forget   string
		moving, failed  int
		reason, message string
	}{
		{"to the shards with the fewest", snapshot{Held: held(6), Total: 6, Shards: both},
			"c0>root c1>east c2>root c3>east", "", 4, 0, "Moving", "6 of 6 logical clusters remain, 4 are moving"},
		{"only some at a time", snapshot{Held: held(6), Total: 6, Shards: both, Migrations: []migrationv1alpha1.LogicalClusterMigration{
			moving("c0", copying, "", 0), moving("c1", copying, "the destination is away", 0), moving("c2", copying, "", 0)}},
			"c3>root", "", 4, 0, "Moving", "root:w1: the destination is away"},
		{"where selectors allow", snapshot{Held: selecting, Total: 2, Shards: both},
			"c0>east", "", 1, 1, "Moving", `1 cannot move: root:w1: spec.location.selector of the Workspace, "region=north", matches no shard`},
		{"nowhere, for a selector", snapshot{Held: selecting[1:], Total: 1, Shards: both},
			"", "", 0, 1, "NoDestination", "(east, root): change the selector, or the labels of a Shard"},
		{"nowhere", snapshot{Held: held(2), Total: 2, Shards: []corev1alpha1.Shard{
			other("west", 9),
			other("a", 0, annotated(corev1alpha1.UnschedulableAnnotation, Cordoned)),
			other("b", 0, annotated(corev1alpha1.UnschedulableAnnotation, "me")),
			other("c", 0, func(s *corev1alpha1.Shard) { s.Status.Conditions = nil }),
			other("d", 7, func(s *corev1alpha1.Shard) { s.Status.Capacity = s.Status.Used }),
			other("e", 0, annotated(corev1alpha1.QuarantineAnnotation, "id")),
			other("f", 0, func(s *corev1alpha1.Shard) { s.DeletionTimestamp = &metav1.Time{Time: now} }),
		}}, "", "", 0, 2, "NoDestination", "no other shard accepts logical clusters (a has spec.drain or is being deleted, b has the annotation " +
			"experimental.core.kcp.io/unschedulable in kcp, c does not respond, d is full, e is in quarantine: run kubectl kcp check, " +
			"f is being deleted): add a Shard, or set spec.drain of another Shard to false"},
		{"not what stays", snapshot{Held: staying, Total: 3, Shards: both},
			"c2>root", "", 1, 1, "Moving", "1 cannot move: root:w0: it has no Workspace"},
		{"not what is deleted", snapshot{Held: staying[1:2], Total: 1, Shards: both}, "", "", 0, 0, "WaitingForDeletion", "being deleted"},
		{"not what has failed lately", snapshot{Held: held(2), Total: 2, Shards: both, Migrations: []migrationv1alpha1.LogicalClusterMigration{
			moving("c0", failed, "too large", time.Minute)}},
			"c1>root", "", 1, 1, "Moving", "1 cannot move: root:w0: too large"},
		{"when all have failed", snapshot{Held: held(1), Total: 1, Shards: both, Migrations: []migrationv1alpha1.LogicalClusterMigration{
			moving("c0", failed, "too large", time.Minute)}},
			"", "", 0, 1, "MovesFailed", "tried again after 5m0s"},
		{"again after some time", snapshot{Held: held(1), Total: 1, Shards: both, Migrations: []migrationv1alpha1.LogicalClusterMigration{
			moving("c0", failed, "too large", 5*time.Minute)}},
			"c0>root", "drain-west-c0", 1, 0, "Moving", ""},
		{"after its migration is deleted", snapshot{Held: held(1), Total: 1, Shards: both,
			Migrations: []migrationv1alpha1.LogicalClusterMigration{deleted}}, "c0>root", "", 1, 0, "Moving", ""},
		{"not what a user moves", snapshot{Held: held(1), Total: 1, Shards: both,
			Migrations: []migrationv1alpha1.LogicalClusterMigration{foreign}}, "", "", 1, 0, "Moving", ""},
		{"and forgets what has moved", snapshot{Held: held(1), Total: 1, Shards: both, Migrations: []migrationv1alpha1.LogicalClusterMigration{
			moving("gone", done, "", 0)}}, "c0>root", "drain-west-gone", 1, 0, "Moving", ""},
		{"until it is empty", snapshot{Shards: both, Migrations: []migrationv1alpha1.LogicalClusterMigration{
			moving("gone", failed, "no", time.Minute)}}, "", "drain-west-gone", 0, 0, "Empty", "holds no logical cluster"},
	} {
		t.Run(c.what, func(t *testing.T) {
			d := c.in.decide(&v1alpha1.DrainStatus{})
			var begin []string
			for _, m := range d.Begin {
				begin = append(begin, m.Cluster+">"+m.Destination)
			}
			if got := strings.Join(begin, " "); got != c.begin {
				t.Errorf("begins %q, want %q", got, c.begin)
			}
			if got := strings.Join(d.Forget, " "); got != c.forget {
				t.Errorf("forgets %q, want %q", got, c.forget)
			}
			if s := d.Status; int(s.Moving) != c.moving || int(s.Failed) != c.failed || s.Remaining != c.in.Total || s.Total != c.in.Total {
				t.Errorf("status %+v", s)
			}
			if got := d.Condition; got.Reason != c.reason || !strings.Contains(got.Message, c.message) || (got.Status == "True") != (c.in.Total == 0) {
				t.Errorf("condition %+v", got)
			}
		})
	}
}

func TestTheProgressRemembersHowManyThereWere(t *testing.T) {
	in := snapshot{Held: held(2), Total: 2, Shards: []corev1alpha1.Shard{other("east", 0)}}
	d := in.decide(&v1alpha1.DrainStatus{Total: 12, Remaining: 3})
	if d.Status.Total != 12 || d.Status.Remaining != 2 || !strings.Contains(d.Condition.Message, "2 of 12 logical clusters remain") {
		t.Errorf("status %+v, %s", d.Status, d.Condition.Message)
	}
}

func TestNothingMovesUntilTheNumberAtTheStartIsStored(t *testing.T) {
	all := held(2)
	all[0].Stays = "it has no Workspace"
	d := snapshot{Held: all, Total: 2, Shards: []corev1alpha1.Shard{other("east", 0)}}.decide(nil)
	if len(d.Begin) > 0 || d.Status.Total != 2 || d.Status.Moving != 0 || d.Condition.Reason != ReasonMoving {
		t.Errorf("begins %v; status %+v, condition %+v", d.Begin, d.Status, d.Condition)
	}
}

func TestFailuresAreLimited(t *testing.T) {
	in := snapshot{Held: held(maxFailed + 1), Total: maxFailed + 1, Shards: []corev1alpha1.Shard{other("east", 0)}}
	for _, lc := range in.Held[:maxFailed] {
		in.Migrations = append(in.Migrations, moving(lc.Name, migrationv1alpha1.PhaseFailed, "older", time.Minute))
	}
	d := in.decide(&v1alpha1.DrainStatus{})
	if len(d.Begin) > 0 || d.Status.Failed != maxFailed || len(d.Status.Failures) != maxShown || d.Condition.Reason != ReasonMovesFailed {
		t.Errorf("begins %v; %d failures, %d of them shown: %s", d.Begin, d.Status.Failed, len(d.Status.Failures), d.Condition.Reason)
	}
}

// Each page has two of many logical clusters.
func TestPagesAreReadUntilItIsDecidedWhatHappens(t *testing.T) {
	east := []corev1alpha1.Shard{other("east", 0)}
	staying := held(2)
	staying[0].Stays, staying[1].Stays = "it has no Workspace", "it has no Workspace"
	var moves, failures []migrationv1alpha1.LogicalClusterMigration
	for n := range Parallel {
		moves = append(moves, moving(fmt.Sprintf("later%d", n), migrationv1alpha1.PhaseMigrating, "", 0))
	}
	for n := range maxFailed {
		failures = append(failures, moving(fmt.Sprintf("later%d", n), migrationv1alpha1.PhaseFailed, "too large", time.Minute))
	}
	begun := &v1alpha1.DrainStatus{Total: 1000}
	for _, c := range []struct {
		what           string
		in             snapshot
		was            *v1alpha1.DrainStatus
		enough         bool
		moving, failed int
		reason         string
	}{
		{"a move begins", snapshot{Held: held(2), Shards: east}, begun, true, 2, 0, "Moving"},
		{"nothing that was read moves", snapshot{Held: staying, Shards: east}, begun, false, 0, 2, "Moving"},
		{"as many move as may", snapshot{Held: staying, Shards: east, Migrations: moves}, begun, true, Parallel, 2, "Moving"},
		{"one less moves than may", snapshot{Held: staying, Shards: east, Migrations: moves[1:]}, begun, false, Parallel - 1, 2, "Moving"},
		{"too many moves have failed", snapshot{Held: held(2), Shards: east, Migrations: failures}, begun, true, 0, maxFailed, "MovesFailed"},
		{"no shard accepts any", snapshot{Held: held(2)}, begun, true, 0, 1000, "NoDestination"},
		{"the number at the start is not stored", snapshot{Held: staying, Shards: east}, nil, true, 0, 2, "Moving"},
	} {
		c.in.Total = 1000
		p := c.in.plan(c.was)
		if p.Enough() != c.enough {
			t.Errorf("%s: enough is %t", c.what, p.Enough())
		}
		d := p.Decision()
		if s := d.Status; s.Remaining != 1000 || int(s.Moving) != c.moving || int(s.Failed) != c.failed || d.Condition.Reason != c.reason {
			t.Errorf("%s: status %+v, condition %+v", c.what, s, d.Condition)
		}
	}
}
