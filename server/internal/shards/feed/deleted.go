package feed

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// deletedPrefix is that of the names of marks: they are stored for exports that were deleted, and followed by cluster and name.
const deletedPrefix = "deleted/apiexports/"

// askInterval is the time between two questions about the same export, and askTimeout how long one may take.
const askInterval, askTimeout = 5 * time.Second, 2 * time.Second

// boundExports are the exports that something here binds, of clusters that this shard does not have, and that no shard offers. What a
// deleted export enforced ends, as on one shard. But one that is only not loaded limits its consumers still, and so does one whose cluster
// moves: no reader can tell these from a deletion, so shards are asked. The mutex of Kept guards it.
//
// Invariants:
//   - An export becomes deleted when the holder of its cluster says so or, if no shard holds the cluster, when all shards do. A shard from
//     which the cluster has moved does not know, and the one to which it has moved must be among them.
//   - Only what something here binds is in it, so that providers that create and delete many cost nothing.
type boundExports struct{ missing, deleted map[informers.Key]bool }

func newBoundExports() boundExports {
	return boundExports{map[informers.Key]bool{}, map[informers.Key]bool{}}
}

// Here implements exports.Elsewhere.
func (k *Kept) Here(cluster logicalcluster.Name) bool { return k.in.Reader.Here(cluster) }

// Loaded implements exports.Elsewhere.
func (k *Kept) Loaded(cluster logicalcluster.Name) bool { return k.in.Reader.Loaded(cluster) }

// Deleted implements exports.Elsewhere.
func (k *Kept) Deleted(cluster logicalcluster.Name, export string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.exports.deleted[informers.Key{Cluster: cluster, Name: export}]
}

// decideExports brings the exports up to date with what is offered and bound; k.mu is held.
func (k *Kept) decideExports() {
	now := newBoundExports()
	for export := range k.bound {
		if !k.needed[export.Cluster] {
			continue
		}
		_, err := k.in.Set.APIExports.Get(export.Cluster, "", export.Name)
		switch {
		case !apierrors.IsNotFound(err): // it may have been created again
		case k.exports.deleted[export]:
			now.deleted[export] = true
		default:
			now.missing[export] = true
		}
	}
	k.exports = now
}

// ask asks about missing exports, and reports whether some are still missing. Until everything was read from the cache server, most are
// only not read.
func (k *Kept) ask(ctx context.Context) (again bool) {
	k.mu.Lock()
	missing := slices.Collect(maps.Keys(k.exports.missing))
	k.mu.Unlock()
	if len(missing) == 0 || !k.in.Reader.isListed() {
		return len(missing) > 0
	}
	silent := map[string]bool{}
	for _, export := range missing {
		if !k.isDeleted(ctx, export, silent) {
			again = true
			continue
		}
		k.mu.Lock()
		if k.exports.missing[export] {
			delete(k.exports.missing, export)
			k.exports.deleted[export] = true
		}
		k.mu.Unlock()
		signal(k.dirty)
	}
	return again
}

// isDeleted asks the holder of an export, or all shards if there is none. Shards that did not respond are not asked again in this round.
func (k *Kept) isDeleted(ctx context.Context, export informers.Key, silent map[string]bool) bool {
	shards := k.in.Shards()
	if holder := k.in.Elsewhere.Holder(export.Cluster); holder != "" {
		moved, ok := k.askAll(ctx, []string{holder}, export, silent)
		return ok && len(moved) == 0
	}
	moved, ok := k.askAll(ctx, shards, export, silent)
	if !ok || len(shards) == 0 || len(moved) == 0 {
		return ok && len(shards) > 0
	}
	for _, to := range moved {
		if !slices.Contains(shards, to) {
			return false
		}
	}
	// The cluster may have moved to a shard after that was asked. Then another shard does not have it any more.
	again, ok := k.askAll(ctx, shards, export, silent)
	return ok && maps.Equal(moved, again)
}

// askAll returns to which shards the cluster of an export has moved, by the shards that it has left, and false if a shard has the export,
// or did not answer.
func (k *Kept) askAll(ctx context.Context, shards []string, export informers.Key,
	silent map[string]bool) (moved map[string]string, ok bool) {
	moved = map[string]string{}
	for _, shard := range shards {
		if silent[shard] {
			return nil, false
		}
		limited, cancel := context.WithTimeout(ctx, askTimeout)
		answer, err := k.in.Ask(limited, shard, export)
		cancel()
		silent[shard] = err != nil
		switch {
		case err != nil || !answer.Deleted && answer.Moved == "":
			return nil, false
		case answer.Moved != "":
			moved[shard] = answer.Moved
		}
	}
	return moved, true
}

// marks returns what is stored for deleted exports, by name.
func (k *Kept) marks() map[string]runtime.Object {
	k.mu.Lock()
	defer k.mu.Unlock()
	marks := make(map[string]runtime.Object, len(k.exports.deleted))
	for export := range k.exports.deleted {
		marks[deletedPrefix+string(export.Cluster)+"/"+export.Name] = &metav1.PartialObjectMetadata{
			ObjectMeta: metav1.ObjectMeta{Name: export.Name, UID: "deleted"},
		}
	}
	return marks
}

// markOf returns the deleted export of a stored mark.
func markOf(name string) (informers.Key, bool) {
	rest, ok := strings.CutPrefix(name, deletedPrefix)
	cluster, export, valid := strings.Cut(rest, "/")
	return informers.Key{Cluster: logicalcluster.Name(cluster), Name: export}, ok && valid
}

// CallDeleted is the name of the peer call that asks a shard whether it has no export of a name.
const CallDeleted = "exports.deleted"

// ExportQuestion asks about an export.
type ExportQuestion struct {
	Cluster logicalcluster.Name `json:"cluster"`
	Export  string              `json:"export"`
}

// ExportAnswer is the answer of a shard.
type ExportAnswer struct {
	// Deleted means that the shard does not have the export.
	Deleted bool `json:"deleted,omitempty"`
	// Moved is the shard to which the cluster has moved from it.
	Moved string `json:"moved,omitempty"`
}

// StoredExports answers CallDeleted from the storage.
type StoredExports struct {
	// Moved returns the shard to which a cluster has moved, empty if it has not. It returns an error while the cluster moves.
	Moved func(ctx context.Context, cluster logicalcluster.Name) (string, error)
	// Cluster and Export return an error that is NotFound if this shard does not have the cluster, or the export in the cluster of ctx.
	Cluster func(ctx context.Context) error
	Export  func(ctx context.Context, name string) error
}

// Answer answers a question.
func (s StoredExports) Answer(ctx context.Context, q ExportQuestion) (ExportAnswer, error) {
	if q.Cluster == "" || q.Cluster.IsSystem() || q.Export == "" || strings.Contains(q.Export, "/") {
		return ExportAnswer{}, apierrors.NewBadRequest("want the name of a logical cluster, and that of an APIExport")
	}
	ctx = logicalcluster.WithName(ctx, q.Cluster)
	if moved, err := s.Moved(ctx, q.Cluster); moved != "" || err != nil {
		return ExportAnswer{Moved: moved}, err
	}
	err := s.Cluster(ctx)
	if err == nil {
		err = s.Export(ctx, q.Export)
	}
	if !apierrors.IsNotFound(err) {
		return ExportAnswer{}, err
	}
	moved, err := s.Moved(ctx, q.Cluster) // it may have moved since
	return ExportAnswer{Deleted: moved == "" && err == nil, Moved: moved}, err
}
