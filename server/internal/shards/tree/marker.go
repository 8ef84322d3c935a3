package tree

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kcplane/kcp/server/logicalcluster"
)

const (
	// ExpectHeader has the Expectation of a front proxy. Only proxies may send it.
	ExpectHeader = "X-Kcp-Expect"
	// PlacementHeader has the Marker of a shard that refuses an expectation with the status 421. Only proxies receive it.
	PlacementHeader = "X-Kcp-Placement"
)

// Expectation is what a front proxy knows about the logical cluster to which it sends a request.
type Expectation struct {
	Cluster logicalcluster.Name
	// UID is that of the LogicalCluster; zero if the proxy does not know it.
	UID UID
	// Epoch is that of the placement; zero if the proxy does not know it.
	Epoch uint64
}

// String returns the value of ExpectHeader: <cluster>;<uid>;<epoch>.
func (e Expectation) String() string {
	return string(e.Cluster) + ";" + textOf(e.UID) + ";" + strconv.FormatUint(e.Epoch, 10)
}

// ParseExpectation parses what String returns.
func ParseExpectation(s string) (Expectation, error) {
	parts := strings.Split(s, ";")
	if len(parts) != 3 || strings.Contains(parts[0], ":") || !logicalcluster.ValidPath(parts[0]) {
		return Expectation{}, fmt.Errorf("invalid %s: want <cluster>;<uid>;<epoch>, got %.100q", ExpectHeader, s)
	}
	e := Expectation{Cluster: logicalcluster.Name(parts[0])}
	if parts[1] != "" {
		uid, ok := ParseUID(types.UID(parts[1]))
		if !ok {
			return Expectation{}, fmt.Errorf("invalid %s: %.100q is not a UID", ExpectHeader, parts[1])
		}
		e.UID = uid
	}
	epoch, err := strconv.ParseUint(parts[2], 10, 64)
	if err != nil {
		return Expectation{}, fmt.Errorf("invalid %s: epoch: %w", ExpectHeader, err)
	}
	e.Epoch = epoch
	return e, nil
}

func textOf(uid UID) string {
	if uid == (UID{}) {
		return ""
	}
	return uid.String()
}

// Verdict is why a shard does not serve a logical cluster as a front proxy expects it.
type Verdict string

// Verdicts.
const (
	// Never means that the shard does not know a logical cluster of this name and UID.
	Never Verdict = "never"
	// Deleted means that the logical cluster with this UID is deleted. Another one can have its name.
	Deleted Verdict = "deleted"
	// Moved means that a shard, also this one, holds the logical cluster with another epoch.
	Moved Verdict = "moved"
	// Moving means that the logical cluster is about to move to or from the shard, which does not serve it for a moment.
	Moving Verdict = "moving"
)

// Marker is the response of a shard to a request whose expectation is wrong. It means that the request was not executed.
type Marker struct {
	// Shard and Incarnation are those of the shard that responds.
	Shard, Incarnation string
	Verdict            Verdict
	// To is the shard that holds the logical cluster, with the epoch of its placement, after Moved.
	To    string
	Epoch uint64
}

// String returns the value of PlacementHeader: <shard>;<incarnation>;<verdict>;<to>;<epoch>.
func (m Marker) String() string {
	return fmt.Sprintf("%s;%s;%s;%s;%d", m.Shard, m.Incarnation, m.Verdict, m.To, m.Epoch)
}

// ParseMarker parses what String returns.
func ParseMarker(s string) (Marker, error) {
	parts := strings.Split(s, ";")
	if len(parts) != 5 || len(s) > maxString {
		return Marker{}, fmt.Errorf("invalid %s: want <shard>;<incarnation>;<verdict>;<to>;<epoch>, got %.100q", PlacementHeader, s)
	}
	m := Marker{Shard: parts[0], Incarnation: parts[1], Verdict: Verdict(parts[2]), To: parts[3]}
	epoch, err := strconv.ParseUint(parts[4], 10, 64)
	if err != nil {
		return Marker{}, fmt.Errorf("invalid %s: epoch: %w", PlacementHeader, err)
	}
	m.Epoch = epoch
	if !slices.Contains([]Verdict{Never, Deleted, Moved, Moving}, m.Verdict) || (m.Verdict == Moved) != (m.To != "") || m.Shard == "" {
		return Marker{}, fmt.Errorf("invalid %s: %.100q", PlacementHeader, s)
	}
	return m, nil
}
