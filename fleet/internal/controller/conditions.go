package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
	"github.com/kcplane/kcp/client/workspaces"
	"github.com/kcplane/kcp/fleet/internal/feed"
)

// kind is a condition of placements.
type kind struct{ condition, reason, message string }

var (
	scheduled = kind{v1alpha1.PlacementScheduled, "Scheduled", "all namespaces have a cluster"}
	applied   = kind{v1alpha1.PlacementApplied, "Applied", "the clusters have accepted all objects"}
)

// noClusterFits is the reason of the condition Scheduled if a namespace has no cluster that fits.
const noClusterFits = "NoClusterFits"

// problem is why a condition is False. The zero value is none.
type problem struct{ reason, message string }

// problems are what the conditions of placements show. An entry exists only while there is a problem, and all are found again after a
// restart of the fleet.
type problems struct {
	mu    sync.Mutex // guards found
	found map[subject]map[string]entry
}

// subject is a condition of the placements of a workspace.
type subject struct{ endpoint, workspace, condition string }

// entry is a problem of a namespace or object, with the placement that selects it.
type entry struct {
	placement string
	problem
}

func newProblems() *problems { return &problems{found: map[subject]map[string]entry{}} }

// set adds, replaces or, with none, removes the problem of a namespace or object, and returns the placements whose conditions it changes.
func (p *problems) set(s subject, what string, e entry) (placements []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if former, ok := p.found[s][what]; ok {
		placements = append(placements, former.placement)
	}
	if e.placement != "" && !slices.Contains(placements, e.placement) {
		placements = append(placements, e.placement)
	}
	if e.problem == (problem{}) || e.placement == "" {
		if delete(p.found[s], what); len(p.found[s]) == 0 {
			delete(p.found, s)
		}
		return placements
	}
	if p.found[s] == nil {
		p.found[s] = map[string]entry{}
	}
	p.found[s][what] = e
	return placements
}

// has reports whether a namespace or object has a problem.
func (p *problems) has(s subject, what string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.found[s][what]
	return ok
}

// withoutCluster returns the namespaces that no cluster fits.
func (p *problems) withoutCluster() (list []feed.Namespace) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s, entries := range p.found {
		if s.condition != scheduled.condition {
			continue
		}
		for what, e := range entries {
			if e.reason == noClusterFits {
				list = append(list, feed.Namespace{Endpoint: s.endpoint, Workspace: s.workspace, Name: strings.TrimSuffix(what, "/")})
			}
		}
	}
	return list
}

// first returns the first problem of a placement by the name of the namespace or object.
func (p *problems) first(s subject, placement string) problem {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, what := range slices.Sorted(maps.Keys(p.found[s])) {
		if e := p.found[s][what]; e.placement == placement {
			return e.problem
		}
	}
	return problem{}
}

// report records a problem of a namespace, or of one of its objects, and updates the condition of its placement. A condition shows one of
// the problems, and is False until there is none.
func (s *shard) report(ctx context.Context, k kind, n feed.Namespace, object string, selected *v1alpha1.Placement, found problem) error {
	e := entry{problem: found}
	if selected != nil {
		e.placement = selected.Name
	}
	if found.message != "" {
		e.message = fmt.Sprintf("namespace %q: %s", n.Name, found.message)
	}
	about := subject{n.Endpoint, n.Workspace, k.condition}
	for _, name := range s.fleet.problems.set(about, n.Name+"/"+object, e) {
		if err := s.writeCondition(ctx, k, about, name); err != nil {
			return err
		}
	}
	return nil
}

// writeCondition writes a condition of a placement of the workspace in the context.
func (s *shard) writeCondition(ctx context.Context, k kind, about subject, name string) error {
	p := &v1alpha1.Placement{}
	if err := s.manager.GetClient().Get(ctx, client.ObjectKey{Name: name}, p); err != nil {
		return client.IgnoreNotFound(err)
	}
	condition := metav1.Condition{
		Type: k.condition, Status: metav1.ConditionTrue, Reason: k.reason, Message: k.message, ObservedGeneration: p.Generation,
	}
	if found := s.fleet.problems.first(about, name); found.reason != "" {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, found.reason, found.message
	}
	updated := p.DeepCopy()
	if !meta.SetStatusCondition(&updated.Status.Conditions, condition) {
		return nil
	}
	patch := client.MergeFromWithOptions(p, client.MergeFromWithOptimisticLock{})
	return client.IgnoreNotFound(s.manager.GetClient().Status().Patch(ctx, updated, patch))
}

// reportRefused shows the errors of the agents with an object in the condition Applied of its placement.
func (s *shard) reportRefused(ctx context.Context, o object, reports map[string]feed.Report) error {
	what := o.Resource.GroupResource().String() + " " + o.Key.Name
	found := problem{}
	for _, cluster := range slices.Sorted(maps.Keys(reports)) {
		if message := reports[cluster].Message; message != "" {
			found = problem{"ClusterRefusedObject", fmt.Sprintf("%s: cluster %q: %s", what, cluster, message)}
			break
		}
	}
	if found.reason == "" && !s.fleet.problems.has(subject{o.Endpoint, o.Workspace, applied.condition}, o.Namespace.Name+"/"+what) {
		return nil
	}
	ctx = workspaces.In(ctx, o.Workspace)
	selected, err := s.placementOf(ctx, o.Namespace.Name)
	if err != nil {
		return err
	}
	return s.report(ctx, applied, o.Namespace, what, selected, found)
}
