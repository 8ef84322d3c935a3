package authorization

import (
	"context"
	"fmt"
	"slices"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/kcplane/kcp/server/internal/process/processors"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// A request is authorized before it gets a seat, so the cost of authorization has its own limits. The weight of an evaluation is the
// number of rules, role bindings and roles that it reads.
const (
	// heavyWeight is the weight above which evaluations take turns: one of each cluster at a time.
	heavyWeight = 5_000
	// maxBindings limits the weight of the ClusterRoleBindings, and of the RoleBindings of a namespace, that an evaluation reads. The
	// binding of the owner comes first.
	maxBindings = maxWeight / 4
	// maxWeight is the weight at which an evaluation stops: the remaining rules grant nothing.
	maxWeight = 200_000
	// namesPerWeight is the number of names of verbs, resources, subjects and so on that weigh as much as a rule.
	namesPerWeight = 16
)

var errTooMuchRBAC = fmt.Errorf("the logical cluster has too many roles, rules and role bindings to evaluate for one request: " +
	"delete some of those that apply to the user")

// evaluation is the context in which rules are resolved for one decision about one user.
type evaluation struct {
	context.Context
	cluster logicalcluster.Name
	lanes   *lanes

	few    []roleKey // roles whose rules have been visited
	many   map[roleKey]bool
	weight int
	heavy  bool
	cut    bool // there are more bindings than the evaluation reads
	err    error
}

// roleKey identifies a role of the cluster; a ClusterRole has no namespace.
type roleKey struct{ namespace, name string }

type evaluationKey struct{}

// Value implements context.Context.
func (e *evaluation) Value(key any) any {
	if key == (evaluationKey{}) {
		return e
	}
	return e.Context.Value(key)
}

// evaluationOf returns the evaluation of ctx, or one without limits.
func evaluationOf(ctx context.Context) *evaluation {
	e, _ := ctx.Value(evaluationKey{}).(*evaluation)
	return e
}

// first reports whether the rules of a role have not been visited yet. Visiting them again, for another binding or identity, changes
// nothing.
func (e *evaluation) first(role roleKey) bool {
	switch {
	case e == nil:
		return true
	case slices.Contains(e.few, role) || e.many[role]:
		return false
	case len(e.few) < 8:
		e.few = append(e.few, role)
	case e.many == nil:
		e.many = map[roleKey]bool{role: true}
	default:
		e.many[role] = true
	}
	return true
}

// spend adds to the weight, and returns false if the weight exceeds the limit. Heavy evaluations wait in it for their
// turn.
func (e *evaluation) spend(weight int) bool {
	if e == nil {
		return true
	}
	if e.err != nil {
		return false
	}
	if e.weight += weight; e.weight > maxWeight {
		e.err = errTooMuchRBAC
	} else if e.weight > heavyWeight && !e.heavy {
		if e.err = e.lanes.enter(e.Context, e.cluster); e.err == nil {
			e.heavy = true
		}
	}
	return e.err == nil
}

// end starts the next heavy evaluation.
func (e *evaluation) end() {
	if e.heavy {
		e.lanes.leave(e.cluster)
	}
}

func weightOf(rule *rbacv1.PolicyRule) int {
	return 1 + (len(rule.Verbs)+len(rule.APIGroups)+len(rule.Resources)+len(rule.ResourceNames)+len(rule.NonResourceURLs))/namesPerWeight
}

// lanes make heavy evaluations take turns: one of each cluster at a time, and in total one for every second processor. Only clusters
// with heavy evaluations have a lane in memory.
type lanes struct {
	all chan struct{}

	mu       sync.Mutex
	clusters map[logicalcluster.Name]*lane
}

// lane is the lane of a cluster.
type lane struct {
	turn  chan struct{}
	users int // guarded by lanes.mu
}

func newLanes() *lanes {
	return &lanes{all: make(chan struct{}, max(1, processors.Count()/2)), clusters: map[logicalcluster.Name]*lane{}}
}

func (l *lanes) enter(ctx context.Context, cluster logicalcluster.Name) error {
	l.mu.Lock()
	of := l.clusters[cluster]
	if of == nil {
		of = &lane{turn: make(chan struct{}, 1)}
		l.clusters[cluster] = of
	}
	of.users++
	l.mu.Unlock()
	select {
	case of.turn <- struct{}{}:
	case <-ctx.Done():
		l.drop(cluster)
		return ctx.Err()
	}
	select {
	case l.all <- struct{}{}:
		return nil
	case <-ctx.Done():
		<-of.turn
		l.drop(cluster)
		return ctx.Err()
	}
}

func (l *lanes) leave(cluster logicalcluster.Name) {
	<-l.all
	l.mu.Lock()
	of := l.clusters[cluster]
	l.mu.Unlock()
	<-of.turn
	l.drop(cluster)
}

func (l *lanes) drop(cluster logicalcluster.Name) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.clusters[cluster]
	if of.users--; of.users == 0 {
		delete(l.clusters, cluster)
	}
}
