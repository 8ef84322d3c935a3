package storage

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// fenceState is what a process knows of fences. It is immutable.
type fenceState struct {
	fences map[logicalcluster.Name]knownFence
	// floors are the revisions at which clusters arrived in this store. Earlier resource versions of them are those of another store.
	floors map[logicalcluster.Name]int64
	// all is the last revision at which the objects of a whole cluster appeared in the reads across all clusters, or disappeared from
	// them. Watches from an earlier one would miss that.
	all int64
	// hidden is the number of clusters that reads across all clusters leave out, settling of those for which they wait.
	hidden, settling int
	// revision is the one that the state shows.
	revision int64
}

type knownFence struct {
	state    FenceState
	revision int64
	// shard and epoch are those of the Fence.
	shard string
	epoch uint64
}

// hides reports whether reads across all clusters leave out a cluster: one that is not complete, or held by another shard.
func (s *fenceState) hides(cluster logicalcluster.Name) bool {
	state := s.fences[cluster].state
	return state == FenceArriving || state == FenceMoved
}

// loadFences returns the state with the stored keys below prefix.
func loadFences(prefix string, stored []*mvccpb.KeyValue, revision int64) (*fenceState, error) {
	events := make([]*clientv3.Event, len(stored))
	for i, kv := range stored {
		events[i] = &clientv3.Event{Type: clientv3.EventTypePut, Kv: kv}
	}
	return (&fenceState{}).after(prefix, events, revision)
}

// after returns the state after events of keys below prefix.
func (s *fenceState) after(prefix string, events []*clientv3.Event, revision int64) (*fenceState, error) {
	next := &fenceState{fences: map[logicalcluster.Name]knownFence{}, floors: map[logicalcluster.Name]int64{}, all: s.all, revision: revision}
	maps.Copy(next.fences, s.fences)
	maps.Copy(next.floors, s.floors)
	for _, event := range events {
		kind, name, _ := strings.Cut(strings.TrimPrefix(string(event.Kv.Key), prefix), "/")
		cluster, put := logicalcluster.Name(name), event.Type == clientv3.EventTypePut
		switch {
		case kind == fenceKind && put:
			fence := Fence{}
			if err := json.Unmarshal(event.Kv.Value, &fence); err != nil {
				return nil, fmt.Errorf("fence of logical cluster %q: %w", cluster, err)
			}
			next.fences[cluster] = knownFence{fence.State, event.Kv.ModRevision, fence.Shard, fence.Epoch}
			if fence.State == FenceMoved {
				next.all = max(next.all, event.Kv.ModRevision)
			}
		case kind == fenceKind:
			delete(next.fences, cluster)
		case kind == floorKind && put:
			next.floors[cluster] = event.Kv.ModRevision
			next.all = max(next.all, event.Kv.ModRevision)
		case kind == floorKind:
			delete(next.floors, cluster)
		}
	}
	for cluster, fence := range next.fences {
		if next.hides(cluster) {
			next.hidden++
		}
		if fence.state == FenceSettling {
			next.settling++
		}
	}
	return next, nil
}

// ends returns the clusters whose watches end when next follows s, and whether the watches across all clusters end.
func (s *fenceState) ends(next *fenceState) (clusters []logicalcluster.Name, all bool) {
	for cluster, fence := range next.fences {
		if s.fences[cluster].revision != fence.revision {
			clusters = append(clusters, cluster)
		}
	}
	return clusters, next.all > s.all || next.settling > 0
}
