package tree

import (
	"errors"
	"strings"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// errOther is the error for an answer that says something about another path, or about what its shard does not hold.
var errOther = errors.New("its answer is not about the path")

// Step is how far an answer leads on a path.
type Step struct {
	// Cluster is the last logical cluster on the way, and Shard the one that holds it. Edge leads to it; the zero edge means that the path
	// begins with it.
	Cluster logicalcluster.Name
	Shard   string
	Edge    Edge
	// Moved reports that Cluster is not where Edge says, but on Shard, at an epoch that is not known.
	Moved bool
	// Held is what the shard says about Cluster, if the path ends there and the shard holds it.
	Held *Cluster
	// Mount is the name of a mount in Cluster, at which the path ends.
	Mount string
	// Missing are the names of the workspaces below Cluster on the path. Only Shard knows them.
	Missing string
	// Unavailable reports that a workspace on the way is unavailable.
	Unavailable bool
	// Absent reports that the shard, if it holds Cluster, has no such workspace.
	Absent bool
}

// Path is the question for Shard.
func (s Step) Path() string { return strings.TrimSuffix(string(s.Cluster)+":"+s.Missing, ":") }

// Follow returns how far the answer of a shard leads on the path that the shard was asked about. A shard decides about what it holds only:
// each edge must continue the path, and an edge that leads to another shard is the last one.
func (a Answer) Follow(shard, path string) (Step, error) {
	first, missing, _ := strings.Cut(path, ":")
	s := Step{Cluster: logicalcluster.Name(first), Shard: shard, Missing: missing}
	for _, e := range a.Edges {
		name, below, _ := strings.Cut(s.Missing, ":")
		if name == "" || e.Deleted || e.Parent != s.Cluster || e.Name != name || s.Shard != shard || s.Mount != "" {
			return Step{}, errOther
		}
		s.Missing, s.Unavailable = below, s.Unavailable || e.Unavailable
		if e.Cluster == "" {
			s.Mount = name
			continue
		}
		s.Cluster, s.Edge = e.Cluster, e
		if e.Shard != "" {
			s.Shard = e.Shard
		}
	}
	switch {
	case a.Cluster != nil:
		if a.Cluster.Name != s.Cluster || s.Missing != "" || s.Mount != "" || s.Shard != shard {
			return Step{}, errOther
		}
		s.Held = a.Cluster
	case s.Mount != "":
		s.Absent = s.Missing != "" // nothing below a mount is a workspace
	case s.Shard == shard && a.Shard != "" && a.Shard != shard:
		s.Shard, s.Moved = a.Shard, true
	case s.Shard == shard:
		s.Absent = s.Missing != ""
	}
	if a.Rest != "" && a.Rest != s.Path() {
		return Step{}, errOther
	}
	return s, nil
}
