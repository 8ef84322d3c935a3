// Package tree carries where logical clusters are, from the shards that hold them to the front proxies that route to them.
//
// A shard serves its part of the tree as one stream: a snapshot, then changes, with bookmarks between them. Follow is the client, Source
// the server. The package also has the other side of a front proxy's knowledge: the expectation that a proxy sends with a request, and the
// marker with which a shard refuses it.
package tree

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// Call is the name of the stream among the peer calls.
const Call = "tree"

// UID is the UID of an object in 16 bytes. It is zero if it is unknown.
type UID = uuid.UUID

// ParseUID returns a UID in its compact form; false if the server did not generate it.
func ParseUID(uid types.UID) (UID, bool) {
	parsed, err := uuid.Parse(string(uid))
	if err != nil || parsed.String() != string(uid) {
		return UID{}, false
	}
	return parsed, true
}

// Edge is what a Workspace says about its child. The shard that holds Parent is the only one whose edges of Parent count.
type Edge struct {
	Parent logicalcluster.Name `json:"parent,omitzero"`
	Name   string              `json:"name,omitzero"`
	// Deleted reports that the Workspace does not exist, or has no place; the fields below are empty then.
	Deleted bool `json:"deleted,omitzero"`
	// Cluster is the logical cluster of the Workspace. It is empty for a mount, and for a mount without a URL.
	Cluster logicalcluster.Name `json:"cluster,omitzero"`
	// Shard and Epoch are the placement of Cluster, and UID that of its LogicalCluster; zero if the Workspace does not record it, because
	// the shard of Parent holds Cluster too.
	Shard string `json:"shard,omitzero"`
	Epoch uint64 `json:"epoch,omitzero"`
	UID   UID    `json:"uid,omitzero"`
	// URL is what the Workspace mounts. The shard of Parent proxies the requests to it.
	URL string `json:"url,omitzero"`
	// Unavailable makes this workspace, and everything below it, unavailable.
	Unavailable bool `json:"unavailable,omitzero"`
}

// Cluster is what a shard says about a logical cluster that it holds.
type Cluster struct {
	Name logicalcluster.Name `json:"name,omitzero"`
	// Deleted reports that the shard does not hold the cluster; the fields below are empty then.
	Deleted bool   `json:"deleted,omitzero"`
	UID     UID    `json:"uid,omitzero"`
	Epoch   uint64 `json:"epoch,omitzero"`
	// Type is the type of the workspace, as <path>:<name>; empty without one.
	Type string `json:"type,omitzero"`
	// Parent and Workspace are the logical cluster and the name of the Workspace that owns the cluster; empty for root and homes.
	Parent    logicalcluster.Name `json:"parent,omitzero"`
	Workspace string              `json:"workspace,omitzero"`
}

// Shard is another shard, or the same one, as the shard knows it. Only what the root shard says counts.
type Shard struct {
	Name string `json:"name,omitzero"`
	// Deleted reports that the Shard does not exist; the fields below are empty then.
	Deleted     bool   `json:"deleted,omitzero"`
	BaseURL     string `json:"baseURL,omitzero"`
	Incarnation string `json:"incarnation,omitzero"`
}

// Token is the state of a stream from which a client resumes it.
type Token struct {
	// Incarnation is the store of the shard, and Revision the revision up to which the client has all changes.
	Incarnation string
	Revision    uint64
	// Log is the log of changes of one process, and Position the number of its changes that the client has.
	Log, Position uint64
}

// String returns the token as a client sends it: <incarnation>.<revision>.<log>.<position>. It is empty for the zero token.
func (t Token) String() string {
	if t == (Token{}) {
		return ""
	}
	return fmt.Sprintf("%s.%d.%x.%d", t.Incarnation, t.Revision, t.Log, t.Position)
}

// ParseToken parses what String returns.
func ParseToken(s string) (Token, error) {
	if s == "" {
		return Token{}, nil
	}
	parts := strings.Split(s, ".")
	if len(parts) != 4 || parts[0] == "" || len(parts[0]) > maxString {
		return Token{}, fmt.Errorf("invalid token of a tree stream: want <incarnation>.<revision>.<log>.<position>, got %.100q", s)
	}
	t := Token{Incarnation: parts[0]}
	for i, field := range []struct {
		to   *uint64
		base int
	}{{&t.Revision, 10}, {&t.Log, 16}, {&t.Position, 10}} {
		parsed, err := strconv.ParseUint(parts[i+1], field.base, 64)
		if err != nil {
			return Token{}, fmt.Errorf("invalid token of a tree stream: %.100q: %w", s, err)
		}
		*field.to = parsed
	}
	return t, nil
}

// Sink receives the tree of one shard. Its methods are called by one goroutine, in the order of the stream. An error of a method ends the
// connection; the next one begins with a snapshot.
//
// The strings of a record share the memory of some hundred records: a sink that keeps them copies them.
type Sink interface {
	// Begin starts a snapshot: what is not in a record between Begin and End does not exist. Changes may be among the records of the
	// snapshot. A connection that ends before End is followed by another Begin.
	Begin(Start) error
	// End completes the snapshot.
	End() error
	Edge(Edge) error
	Cluster(Cluster) error
	Shard(Shard) error
	// Bookmark reports that the sink has every change of the store up to a revision. Bookmarks arrive every BookmarkInterval, also if nothing
	// changes, so the age of the last one limits how late the sink is.
	Bookmark(revision uint64)
	// Lost reports that the connection has ended, and why. What the sink has is still the best knowledge of the shard.
	Lost(error)
}

// Start describes a snapshot.
type Start struct {
	Shard       string
	Incarnation string
	// Revision is the revision that the snapshot has at least.
	Revision uint64
}
