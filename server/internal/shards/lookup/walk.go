package lookup

import (
	"context"
	"errors"
	"strings"

	"github.com/kcplane/kcp/server/internal/shards/tree"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// errDisagree is the reason if the answers of shards do not fit together: a cluster is moving, or a shard speaks about what it does not
// hold.
var errDisagree = errors.New("the shards disagree about where it is")

// walk returns the logical cluster at a path, whose first part a shard holds. It goes from shard to shard.
func (f *Finder) walk(ctx context.Context, shard, path string) (logicalcluster.Name, bool, error) {
	var edge tree.Edge // leads to the first part of the path
	for range maxSteps {
		first, _, deeper := strings.Cut(path, ":")
		unanswered := func(err error) error { return Unanswered(shard, logicalcluster.Name(first), err) }
		if edge.Name != "" && deeper { // of a path without more parts, the answer below has the cluster
			if err := f.confirm(ctx, shard, edge); err != nil {
				return "", false, unanswered(err)
			}
		}
		answer, err := f.config.Resolve(ctx, shard, tree.Question{Path: path})
		var step tree.Step
		if err == nil {
			step, err = answer.Follow(shard, path)
		}
		if err != nil {
			return "", false, unanswered(err)
		}
		if step.Edge.Name != "" {
			edge = step.Edge
		}
		switch {
		case step.Held != nil && !leadsTo(edge, *step.Held):
			return "", false, unanswered(errDisagree)
		case step.Held != nil:
			f.located.Add(step.Cluster, shard, locatedFor)
			return step.Cluster, true, nil
		case step.Shard == shard: // there is no such workspace, or it is a mount
			return "", false, f.absent(ctx, shard, logicalcluster.Name(first), answer)
		}
		shard, path = step.Shard, step.Path()
	}
	return "", false, Unanswered(shard, logicalcluster.Name(path), errDisagree)
}

// leadsTo reports whether a cluster is that of the Workspace of an edge. The zero edge leads to every cluster.
func leadsTo(edge tree.Edge, c tree.Cluster) bool {
	return edge.Name == "" || (c.Name == edge.Cluster && c.Parent == edge.Parent && c.Workspace == edge.Name)
}

// confirm returns an error unless a shard has the cluster of an edge.
func (f *Finder) confirm(ctx context.Context, shard string, edge tree.Edge) error {
	answer, err := f.config.Resolve(ctx, shard, tree.Question{Path: string(edge.Cluster)})
	if err == nil && (answer.Cluster == nil || !leadsTo(edge, *answer.Cluster)) {
		err = errDisagree
	}
	return err
}

// absent returns nil if the answer of a shard means that there is no such workspace: it holds the cluster in which the path begins.
func (f *Finder) absent(ctx context.Context, shard string, first logicalcluster.Name, answer tree.Answer) error {
	if len(answer.Edges) > 0 { // it has the first cluster
		return nil
	}
	held, err := f.config.Resolve(ctx, shard, tree.Question{Path: string(first)})
	if err == nil && held.Cluster == nil {
		err = errDisagree
	}
	if err != nil {
		f.located.Remove(first)
		return Unanswered(shard, first, err)
	}
	return nil
}
