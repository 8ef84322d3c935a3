package drain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/api/operator/v1alpha1"
)

// Reasons of the condition Drained.
const (
	ReasonEmpty         = "Empty"
	ReasonMoving        = "Moving"
	ReasonNoDestination = "NoDestination"
	ReasonMovesFailed   = "MovesFailed"
	ReasonDeleting      = "WaitingForDeletion"
)

// report collects what moves, and what does not.
type report struct {
	// moving is the number of logical clusters that move, later that of those that wait for others.
	moving, deleting, later int64
	// waiting is why one of those that move waits.
	waiting string
	// failed is the number of logical clusters that do not move, failures are the first of them, and stuck is the number of those for which
	// there is no shard.
	failed, stuck int64
	failures      []v1alpha1.DrainFailure
}

// add adds a logical cluster that does not move.
func (r *report) add(lc corev1alpha1.ShardLogicalCluster, message string) {
	if r.failed++; len(r.failures) < maxShown {
		r.failures = append(r.failures, v1alpha1.DrainFailure{LogicalCluster: lc.Name, Workspace: lc.Path, Message: message})
	}
}

// nowhere returns why no shard gets a logical cluster, and what to do.
func (s *state) nowhere(lc corev1alpha1.ShardLogicalCluster) string {
	var accepting, others []string
	for i := range s.Shards {
		name := s.Shards[i].Name
		switch reason := s.refuses[name]; {
		case name == s.Shard:
		case reason == "":
			accepting = append(accepting, name)
		default:
			others = append(others, name+" "+reason)
		}
	}
	slices.Sort(accepting)
	slices.Sort(others)
	reasons := ""
	if len(others) > 0 {
		reasons = " (" + strings.Join(others, ", ") + ")"
	}
	if len(accepting) == 0 {
		return "no other shard accepts logical clusters" + reasons + ": add a Shard, or set spec.drain of another Shard to false"
	}
	return fmt.Sprintf("spec.location.selector of the Workspace, %q, matches no shard that accepts logical clusters (%s)%s: change the "+
		"selector, or the labels of a Shard in the workspace root", lc.Selector, strings.Join(accepting, ", "), reasons)
}

// condition returns the condition Drained.
func (p *Plan) condition(r report, status v1alpha1.DrainStatus) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionDrained, Status: metav1.ConditionFalse}
	if status.Remaining == 0 {
		c.Status, c.Reason = metav1.ConditionTrue, ReasonEmpty
		c.Message = "the shard holds no logical cluster, and gets none: delete the Shard, or set spec.drain to false"
		return c
	}
	c.Message = fmt.Sprintf("%d of %d logical clusters remain", status.Remaining, status.Total)
	if r.moving > 0 {
		c.Reason = ReasonMoving
		c.Message += fmt.Sprintf(", %d are moving", r.moving)
		if r.waiting != "" {
			c.Message += " (" + r.waiting + ")"
		}
	}
	if len(r.failures) > 0 {
		first := r.failures[0]
		name := cmp.Or(first.Workspace, "logical cluster "+first.LogicalCluster)
		c.Message += fmt.Sprintf(", %d cannot move: %s: %s", r.failed, name, first.Message)
	}
	switch {
	case c.Reason != "":
	case r.later > 0 && len(p.failed) < maxFailed:
		c.Reason = ReasonMoving
		c.Message += ": the next moves begin soon"
	case r.stuck > 0:
		c.Reason = ReasonNoDestination
	case r.failed > 0:
		c.Reason = ReasonMovesFailed
		c.Message += ". Failed moves are tried again after " + retryAfter.String() +
			"; see status.drain.failures, and move or delete these workspaces"
	case r.deleting > 0:
		c.Reason = ReasonDeleting
		c.Message += ": they are being deleted"
	default:
		c.Reason = ReasonMoving
		c.Message += ": the next ones begin soon"
	}
	return c
}
