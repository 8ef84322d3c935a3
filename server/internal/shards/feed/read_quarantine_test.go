package feed

import (
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/cacheserver"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/objecttest"
)

func (r *reading) source(i *informers.Informer) *source {
	for _, s := range r.sources {
		if s.informer == i {
			return s
		}
	}
	return nil
}

// register makes root register the shard east with an incarnation of its store.
func (r *reading) register(incarnation string) {
	east := objecttest.In("root", &corev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: "east", UID: "shard"}})
	east.Annotations[corev1alpha1.IncarnationAnnotation] = incarnation
	r.Offer("root", east)
}

// widgetsAt is an export of east as the cache server has it.
func widgetsAt(version int, incarnation string) *apisv1alpha2.APIExport {
	export := widgets("org", "first")
	export.Annotations[cacheserver.Shard], export.Annotations[cacheserver.Incarnation] = "east", incarnation
	export.Annotations[cacheserver.OriginalUID], export.Annotations[cacheserver.OriginalResourceVersion] = "first", strconv.Itoa(version)
	return export
}

// newRestored is a shard that has an export of the store "before" of east, which is then registered with the store "after".
func newRestored(t *testing.T) (*reading, *source) {
	t.Helper()
	r := newReading(t, unused)
	r.Offer("root", rootCluster())
	r.Offer("root", orgWorkspace())
	r.Offer("east", orgCluster())
	r.register("before")
	exports := r.source(r.Set.APIExports.Informer)
	if err := exports.Add(widgetsAt(5, "before")); err != nil {
		t.Fatal(err)
	}
	if r.uid() != "first" {
		t.Fatal("the export is not read")
	}
	r.register("after")
	return r, exports
}

func (r *reading) expectRemovalAfterGrace(t *testing.T, s *source) {
	t.Helper()
	if r.uid() != "first" {
		t.Fatal("the export is removed at once")
	}
	s.shards["east"] = 1 // the shard offers something
	r.sweepOnce(r.clock.Now().Add(absentGrace - time.Second))
	if r.uid() != "first" {
		t.Fatal("the export is removed before the restored shard has offered all that it has")
	}
	r.sweepOnce(r.clock.Now().Add(absentGrace))
	if r.uid() != "" {
		t.Error("the export stays forever")
	}
}

func TestARestoredShardRemovesNothingAtOnce(t *testing.T) {
	r, exports := newRestored(t)
	if err := exports.Delete(widgetsAt(5, "before")); err != nil {
		t.Fatal(err)
	}
	r.expectRemovalAfterGrace(t, exports)
}

func TestAShardThatIsRestoredLaterGetsTheWholeGrace(t *testing.T) {
	r, exports := newRestored(t)
	if err := exports.Replace(nil, "1"); err != nil { // the export is absent
		t.Fatal(err)
	}
	r.clock.Step(absentGrace - time.Second)
	r.register("third")
	r.expectRemovalAfterGrace(t, exports)
}

func TestWhatARestoredShardOffersAgainStays(t *testing.T) {
	r, exports := newRestored(t)
	if err := exports.Delete(widgetsAt(5, "before")); err != nil {
		t.Fatal(err)
	}
	if err := exports.Add(widgetsAt(3, "after")); err != nil {
		t.Fatal(err)
	}
	r.sweepOnce(r.clock.Now().Add(100 * absentGrace))
	if r.uid() != "first" {
		t.Error("the export is removed")
	}
	if err := exports.Delete(widgetsAt(3, "after")); err != nil {
		t.Fatal(err)
	}
	if r.uid() != "" {
		t.Error("a deletion by the registered store does not remove the export")
	}
}

// A cache server that was restored deletes earlier states of objects than those that a reader has.
func TestTheDeletionOfAnEarlierStateRemovesNothing(t *testing.T) {
	r, exports := newRestored(t)
	r.register("before")
	for _, former := range []*apisv1alpha2.APIExport{widgetsAt(4, "before"), widgetsAt(9, "another")} {
		if err := exports.Delete(former); err != nil {
			t.Fatal(err)
		}
		r.sweepOnce(r.clock.Now().Add(100 * absentGrace))
		if r.uid() != "first" {
			t.Fatalf("the deletion of version %v removes version 5", former.Annotations)
		}
	}
	if err := exports.Delete(widgetsAt(5, "before")); err != nil {
		t.Fatal(err)
	}
	if r.uid() != "" {
		t.Error("the deletion of the state that was read does not remove the export")
	}
}

// A cache server that was emptied, or restored, can have an earlier state of an object than the reader.
func TestAnObjectOfAnotherShardNeverGoesBack(t *testing.T) {
	cache := startCacheServer(t)
	cache.tree()
	newest := widgets("org", "first")
	newest.Status.IdentityHash = "newest"
	cache.put("east", exportsResource, newest, 7, "b")
	r := newReading(t, cache.config("west"))
	r.start(t)
	hash := func(name string) string {
		found, err := r.Set.APIExports.Get("org", "", name)
		if err != nil {
			return ""
		}
		return found.Status.IdentityHash
	}
	eventually(t, "the export is read", func() bool { return hash("widgets") == "newest" })
	cache.empty()
	cache.tree()
	cache.put("east", exportsResource, widgets("org", "first"), 5, "b")
	later := widgets("org", "later")
	later.Name = "widgets-later" // which is read after the other one
	cache.put("east", exportsResource, later, 8, "b")
	eventually(t, "a later export is read", func() bool { return hash("widgets-later") == "hash" })
	if got := hash("widgets"); got != "newest" {
		t.Errorf("the export has the earlier hash %q", got)
	}
}
