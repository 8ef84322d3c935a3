package pathindex

import (
	"testing"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/logicalcluster"
)

func TestReferencesReachClustersOfOtherShardsAndRequestsDoNot(t *testing.T) {
	const ready = corev1alpha1.LogicalClusterPhaseReady
	lc := func(name, path, parent string) *corev1alpha1.LogicalCluster {
		obj := logicalCluster(name, path, parent)
		obj.Name = corev1alpha1.LogicalClusterName
		return obj
	}
	// The Workspace of eee is not read yet.
	objects := objecttest.New(t, lc("aaa", "root:org", "root"), lc("eee", "root:late", "root"), workspace("eee", "team", "fff", ready))
	holders := map[logicalcluster.Name]string{"root": "root", "bbb": "east"}
	objects.Share(func(cluster logicalcluster.Name) (string, []logicalcluster.Name) { return holders[cluster], nil })
	objects.Offer("root", lc("root", "root", ""))
	objects.Offer("root", workspace("root", "org", "aaa", ready))
	objects.Offer("root", workspace("root", "east", "bbb", ready))
	objects.Offer("east", lc("bbb", "root:east", "root"))
	objects.Offer("east", workspace("bbb", "team", "ccc", ready))
	objects.Offer("evil", workspace("root", "evil", "ddd", ready))
	objects.Offer("evil", workspace("bbb", "evil", "ddd", ready))
	index := New(objects.Set)
	for path, want := range map[string]logicalcluster.Name{
		"root": "root", "root:org": "aaa", "root:east": "bbb", "root:east:team": "ccc", "bbb:team": "ccc",
		"root:evil": "", "root:east:evil": "", "root:none": "", "none": "",
	} {
		if got, ok := index.Anywhere(path); got.Cluster != want || ok != (want != "") {
			t.Errorf("%s is at %+v, %v, want %q", path, got, ok, want)
		}
	}
	for path, want := range map[string]logicalcluster.Name{"aaa": "aaa", "root": "", "root:org": "", "root:east": "", "bbb:team": ""} {
		if got, _ := index.Lookup(path); got.Cluster != want {
			t.Errorf("requests for %s are served at %+v, want %q", path, got, want)
		}
	}
	for _, reference := range []struct {
		from logicalcluster.Name
		path string
		want logicalcluster.Name
	}{
		{"eee", "root:late", "eee"}, {"eee", "root:late:team", "fff"}, {"eee", "root:later", ""}, {"eee", "root:east", "bbb"}, {"eee", "", ""},
		{"aaa", "root:late", ""}, {"bbb", "root:east", "bbb"}, {"bbb", "root:forged", ""}, {"none", "root:east", "bbb"},
	} {
		if got, ok := index.From(reference.from, reference.path); got.Cluster != reference.want || ok != (reference.want != "") {
			t.Errorf("in %s, %s is at %+v, %v, want %q", reference.from, reference.path, got, ok, reference.want)
		}
	}
	if got := index.Path("bbb"); got != "root:east" {
		t.Errorf("got the path %s", got)
	}
}

func TestACopiedPathOfAnotherShardDoesNotMakeAClusterTheWorkspace(t *testing.T) {
	lc := func(name, path string) *corev1alpha1.LogicalCluster {
		obj := logicalCluster(name, path, "root")
		obj.Name = corev1alpha1.LogicalClusterName
		return obj
	}
	objects := objecttest.New(t)
	holders := map[logicalcluster.Name]string{"root": "root", "bbb": "east", "ddd": "stolen"}
	objects.Share(func(cluster logicalcluster.Name) (string, []logicalcluster.Name) { return holders[cluster], nil })
	objects.Offer("root", lc("root", "root"))
	objects.Offer("root", workspace("root", "library", "bbb", corev1alpha1.LogicalClusterPhaseReady))
	objects.Offer("east", lc("bbb", "root:library"))
	objects.Offer("stolen", lc("ddd", "root:library"))
	index := New(objects.Set)
	if got := index.Path("ddd"); got != "root:library" {
		t.Fatalf("the copied path is not offered: %s", got)
	}
	for _, test := range []struct {
		path    string
		cluster logicalcluster.Name
		want    bool
	}{
		{"root:library", "bbb", true}, {"bbb", "bbb", true}, {"root:library", "ddd", false}, {"ddd", "ddd", true}, {"root:none", "bbb", false},
		{"root:none", "", false},
	} {
		if got := index.Is(test.path, test.cluster); got != test.want {
			t.Errorf("%s is %s: %v", test.path, test.cluster, got)
		}
	}
}
