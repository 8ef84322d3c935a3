package shards

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// Kind is what is wrong.
type Kind string

// Kinds of findings.
const (
	// Lost means that the shard in the record of a Workspace does not have the logical cluster.
	Lost Kind = "Lost"
	// Doubled means that another shard has a copy with a lower epoch. It is not served.
	Doubled Kind = "Doubled"
	// Orphaned means that no Workspace has the logical cluster.
	Orphaned Kind = "Orphaned"
	// Conflict means that the record and the shard disagree about the epoch, or two shards have the same one.
	Conflict Kind = "Conflict"
	// Behind means that a shard has the logical cluster with a higher epoch than the record. The repair corrects the record.
	Behind Kind = "Behind"
	// Silent means that a shard did not respond, so that nothing is known about it.
	Silent Kind = "Silent"
	// Forbidden means that a shard responded, and refused to list what it holds, so that nothing is known about it.
	Forbidden Kind = "Forbidden"
)

// isUnread reports whether a kind means that a shard was not read.
func (k Kind) isUnread() bool { return k == Silent || k == Forbidden }

// Finding is something that is wrong, and that an administrator decides.
type Finding struct {
	Kind    Kind   `json:"kind"`
	Cluster string `json:"cluster,omitempty"`
	Shard   string `json:"shard"`
	// Workspace is <parent>|<name>.
	Workspace string `json:"workspace,omitempty"`
	Path      string `json:"path,omitempty"`
	// ClusterUID is the UID of the LogicalCluster on the shard.
	ClusterUID types.UID `json:"clusterUID,omitempty"`
	Message    string    `json:"message"`

	held   Held
	record Record
}

// Compare returns what is wrong with a state, in the order of clusters.
func Compare(s State) []Finding {
	c := comparison{State: s, records: map[Owner]Record{}, latest: map[string]Record{}, holders: map[string][]Held{}}
	for _, r := range s.Records {
		if known, ok := c.records[r.Owner]; !ok || known.Epoch < r.Epoch {
			c.records[r.Owner] = r
		}
	}
	for _, r := range c.records {
		if known, ok := c.latest[r.Cluster]; !ok || known.Epoch < r.Epoch {
			c.latest[r.Cluster] = r
		}
	}
	for _, h := range s.Held {
		c.holders[h.Cluster] = append(c.holders[h.Cluster], h)
	}
	for shard, reason := range s.Unread {
		c.find(unread(shard, reason))
	}
	for _, r := range c.records {
		c.record(r)
	}
	for _, h := range s.Held {
		c.held(h)
	}
	slices.SortFunc(c.findings, func(a, b Finding) int {
		return cmp.Or(strings.Compare(a.Cluster, b.Cluster), strings.Compare(string(a.Kind), string(b.Kind)), strings.Compare(a.Shard, b.Shard))
	})
	return c.findings
}

type comparison struct {
	State
	records  map[Owner]Record
	latest   map[string]Record // the one with the highest epoch, by its cluster
	holders  map[string][]Held
	findings []Finding
}

func (c *comparison) find(f Finding) {
	f.ClusterUID = f.held.UID
	c.findings = append(c.findings, f)
}

// unread returns the finding for a shard that was not read.
func unread(shard string, reason error) Finding {
	if apierrors.IsForbidden(reason) || apierrors.IsUnauthorized(reason) {
		return Finding{Kind: Forbidden, Shard: shard, Message: fmt.Sprintf("nothing is known about the shard: it responds, and refuses the "+
			"user: %v: use a kubeconfig of an administrator of all shards", reason)}
	}
	return Finding{Kind: Silent, Shard: shard, Message: fmt.Sprintf("nothing is known about the shard: %v", reason)}
}

// record judges the record of a Workspace.
func (c *comparison) record(r Record) {
	if r.Deleting {
		return // its shard may have deleted the cluster already
	}
	highest, at := c.highest(r), c.at(r)
	f := Finding{Cluster: r.Cluster, Shard: r.Shard, Workspace: r.String(), record: r}
	switch {
	case highest != nil && highest.Epoch > r.Epoch:
		f.Kind, f.Shard, f.Path, f.held = Behind, highest.Shard, highest.Path, *highest
		f.Message = fmt.Sprintf("the shard has the logical cluster since epoch %d, but the Workspace records shard %s and epoch %d",
			highest.Epoch, r.Shard, r.Epoch)
	case at != nil && at.Epoch < r.Epoch:
		f.Kind, f.Path = Conflict, at.Path
		f.Message = fmt.Sprintf("the shard has the logical cluster with epoch %d, but the Workspace records epoch %d: the shard was restored",
			at.Epoch, r.Epoch)
	case at == nil && c.Unread[r.Shard] == nil:
		f.Kind = Lost
		f.Message = "the shard does not have the logical cluster of the Workspace: restore a later snapshot of the shard, or delete the Workspace"
		if !c.Known[r.Shard] {
			f.Message = "the shard of the Workspace does not exist"
		}
	default:
		return
	}
	c.find(f)
}

// highest returns the copy of the cluster of a Workspace with the highest epoch, nil if there is none.
func (c *comparison) highest(r Record) *Held {
	var highest *Held
	for _, h := range c.holders[r.Cluster] {
		if h.Owner != nil && *h.Owner == r.Owner && (highest == nil || h.Epoch > highest.Epoch) {
			highest = &h
		}
	}
	return highest
}

// at returns what the shard in a record holds, nil if that is not the cluster of the Workspace.
func (c *comparison) at(r Record) *Held {
	for _, h := range c.holders[r.Cluster] {
		if h.Shard == r.Shard && h.Owner != nil && *h.Owner == r.Owner {
			return &h
		}
	}
	return nil
}

// held judges a logical cluster on a shard.
func (c *comparison) held(h Held) {
	f := Finding{Cluster: h.Cluster, Shard: h.Shard, Path: h.Path, held: h}
	if h.Owner == nil {
		if h.Shard != rootShard {
			f.Kind, f.Message = Orphaned, "the logical cluster has no owner, and only the root shard holds such"
			c.find(f)
		}
		return
	}
	f.Workspace = h.Owner.String()
	r, ok := c.records[*h.Owner]
	switch {
	case !ok && (h.Deleting || c.mayBeUnread(h.Owner.Cluster)):
		return
	case !ok || r.Cluster != h.Cluster:
		f.Kind, f.Message = Orphaned, "no shard has the Workspace of the logical cluster"
	case r.Shard == h.Shard:
		return
	case h.Epoch < r.Epoch:
		f.Kind, f.Message = Doubled, fmt.Sprintf("shard %s holds the logical cluster since epoch %d, and this copy has epoch %d",
			r.Shard, r.Epoch, h.Epoch)
	case h.Epoch == r.Epoch:
		f.Kind, f.Message = Conflict, fmt.Sprintf("shard %s holds the logical cluster with the same epoch %d: delete one of the two by its UID",
			r.Shard, h.Epoch)
	default:
		return // the record is behind, which is a finding already
	}
	f.record = r
	c.find(f)
}

// mayBeUnread reports whether a shard that was not read may hold a cluster, so that the absence of its Workspaces means nothing. Another
// shard may have an older copy of it.
func (c *comparison) mayBeUnread(cluster string) bool {
	if len(c.Unread) == 0 || cluster == root || cluster == homes {
		return c.Unread[rootShard] != nil
	}
	latest, ok := c.latest[cluster]
	return !ok || c.Unread[latest.Shard] != nil
}
