package drain

import (
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

// report collects what does not move.
type report struct {
	failures []v1alpha1.DrainFailure
	// stuck are logical clusters for which no shard exists, later is the number of those that wait for others.
	stuck           []corev1alpha1.ShardLogicalCluster
	deleting, later int
}

func (r *report) add(lc corev1alpha1.ShardLogicalCluster, message string) {
	r.failures = append(r.failures, v1alpha1.DrainFailure{LogicalCluster: lc.Name, Workspace: lc.Path, Message: message})
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
func (r *report) condition(s *state, d Decision) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionDrained, Status: metav1.ConditionFalse}
	if s.Total == 0 {
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, ReasonEmpty, "the shard holds no logical cluster, and gets none"
		return c
	}
	c.Message = fmt.Sprintf("%d of %d logical clusters remain", s.Total, d.Status.Total)
	if n := d.Status.Moving; n > 0 {
		c.Reason = ReasonMoving
		c.Message += fmt.Sprintf(", %d are moving", n)
		if waiting := s.waiting(); waiting != "" {
			c.Message += " (" + waiting + ")"
		}
	}
	if len(r.failures) > 0 {
		first := r.failures[0]
		name := first.Workspace
		if name == "" {
			name = "logical cluster " + first.LogicalCluster
		}
		c.Message += fmt.Sprintf(", %d cannot move: %s: %s", len(r.failures), name, first.Message)
	}
	switch {
	case c.Reason != "":
	case r.later > 0 && len(s.failed) < maxFailed:
		c.Reason = ReasonMoving
		c.Message += ": the next moves begin soon"
	case len(r.stuck) > 0:
		c.Reason = ReasonNoDestination
	case len(r.failures) > 0:
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

// waiting returns why a migration of a logical cluster of the shard waits, or an empty string.
func (s *state) waiting() string {
	for _, lc := range s.Held {
		if message := s.moving[lc.Name]; message != "" {
			return lc.Path + ": " + message
		}
	}
	return ""
}
