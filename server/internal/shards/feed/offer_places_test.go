package feed

import (
	"slices"
	"testing"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/cacheserver"
	"github.com/kcplane/kcp/server/internal/objecttest"
)

func TestTheWorkspaceOfACarriedClusterFollowsItsRecord(t *testing.T) {
	w := newWorld(t)
	w.connect()
	w.has("root", logicalCluster("", ""), workspace("org", "o", "elsewhere"))
	w.has("o", logicalCluster("root", "org"), export("widgets"))
	w.settle()
	equal(t, "with a record of another shard", w.cache.paths("here"), "o"+exportsPath+"/widgets", "o"+clusterPath+"/cluster")
	moved := workspace("org", "o", "here")
	moved.SetResourceVersion("99")
	w.Show(objecttest.In("root", moved))
	w.offer.placeChanged(moved, moved)
	w.settle()
	if !slices.Contains(w.cache.paths("here"), "root"+edgesPath+"/org") {
		t.Errorf("the edge is not offered: %v", w.cache.paths("here"))
	}
	other := workspace("org", "another", "here")
	w.has("root", other)
	w.settle()
	equal(t, "with a record of another cluster", w.cache.paths("here"), "o"+exportsPath+"/widgets", "o"+clusterPath+"/cluster")
}

func TestWorkspacesOfClustersThatOtherShardsCarryAreOffered(t *testing.T) {
	w := newWorld(t)
	w.connect()
	w.has("root", logicalCluster("", ""), workspace("org", "o", "here"))
	w.has("o", logicalCluster("root", "org"), workspace("far", "f", "there"))
	n := w.offer.neighbours
	far := func(shard string) *corev1alpha1.LogicalCluster {
		lc := objecttest.In("f", logicalCluster("o", "far"))
		lc.Annotations[cacheserver.Shard] = shard
		return lc
	}
	for _, shard := range []string{"there", "thief"} { // the record decides
		if err := n.Add(far(shard)); err != nil {
			t.Fatal(err)
		}
	}
	w.settle()
	carried := []string{
		"o" + clusterPath + "/cluster", "o" + edgesPath + "/far", "root" + clusterPath + "/cluster", "root" + edgesPath + "/org",
	}
	equal(t, "carried by another shard", w.cache.paths("here"), carried...)
	if err := n.Delete(far("thief")); err != nil {
		t.Fatal(err)
	}
	w.settle()
	equal(t, "after a shard without a record deletes its claim", w.cache.paths("here"), carried...)
	if err := n.Replace(nil, ""); err != nil {
		t.Fatal(err)
	}
	w.settle()
	equal(t, "after the shard that holds it removes it", w.cache.paths("here"))
}

func TestPlacesStayUntilOtherShardsAreKnown(t *testing.T) {
	w := newWorld(t)
	w.connect()
	w.has("root", logicalCluster("", ""), workspace("far", "f", "there"))
	lc := objecttest.In("f", logicalCluster("root", "far"))
	lc.Annotations[cacheserver.Shard] = "there"
	if err := w.offer.neighbours.Add(lc); err != nil {
		t.Fatal(err)
	}
	w.settle()
	places := []string{"root" + clusterPath + "/cluster", "root" + edgesPath + "/far"}
	equal(t, "carried by another shard", w.cache.paths("here"), places...)

	w.offer, w.term = w.leader(), 8
	w.connect()
	w.offer.neighbours.complete.Store(false)
	w.settle()
	equal(t, "for the next leader, before it knows the other shards", w.cache.paths("here"), places...)
	if err := w.offer.neighbours.Replace([]any{lc}, ""); err != nil {
		t.Fatal(err)
	}
	equal(t, "writes when it knows them", w.settle())
	if err := w.offer.neighbours.Replace(nil, ""); err != nil {
		t.Fatal(err)
	}
	w.settle()
	equal(t, "when they carry nothing", w.cache.paths("here"))
}
