package feed

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kcplane/kcp/server/internal/cacheserver"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/logicalcluster"
)

func convert(t *testing.T, u *unstructured.Unstructured, into any) {
	t.Helper()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, into); err != nil {
		t.Fatal(err)
	}
}

func policyNamed(name string) *admissionregistrationv1.ValidatingAdmissionPolicy {
	return &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// filled returns a world in which root offers an export.
func filled(t *testing.T) *world {
	w := newWorld(t)
	w.connect()
	e := export("widgets")
	e.Labels = map[string]string{"color": "red"}
	w.has("root", logicalCluster("", ""), e, role("binder", resourceRule(apisGroup, "apiexports", "bind")),
		bindingTo("binder", subject("User", "bob")))
	w.settle()
	return w
}

func TestTamperingIsReverted(t *testing.T) {
	path := "root" + exportsPath + "/widgets"
	for name, test := range map[string]struct {
		tamper func(w *world)
		writes []string
	}{
		"a label is changed": {
			func(w *world) {
				w.cache.change(path, func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{"color": "blue"}) })
			}, []string{"PUT " + path},
		},
		"the UID is changed": {
			func(w *world) {
				w.cache.change(path, func(u *unstructured.Unstructured) { annotate(u, cacheserver.OriginalUID, "another") })
			}, []string{"PUT " + path},
		},
		"a field is added": {
			func(w *world) {
				w.cache.change(path, func(u *unstructured.Unstructured) { u.Object["extra"] = "x" })
			}, []string{"PUT " + path},
		},
		"an object is removed": {
			func(w *world) { w.cache.set(func() { delete(w.cache.objects, "/shards/here/clusters/"+path) }) },
			[]string{"POST root" + exportsPath},
		},
		"an object is added": {
			func(w *world) {
				w.cache.offer("/shards/here/clusters/root"+exportsPath+"/forged", forged("forged", "root"))
			}, []string{"DELETE root" + exportsPath + "/forged"},
		},
		"an object of a cluster that does not exist is added": {
			func(w *world) {
				w.cache.offer("/shards/here/clusters/x"+exportsPath+"/forged", forged("forged", "x"))
			}, []string{"DELETE x" + exportsPath + "/forged"},
		},
		"nothing is changed": {func(*world) {}, nil},
	} {
		w := filled(t)
		test.tamper(w)
		w.connect()
		equal(t, name, w.settle(), test.writes...)
	}
}

func annotate(u *unstructured.Unstructured, key, value string) {
	annotations := u.GetAnnotations()
	annotations[key] = value
	u.SetAnnotations(annotations)
}

func forged(name, cluster string) map[string]any {
	return map[string]any{
		"apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport",
		"metadata": map[string]any{"name": name, "annotations": map[string]any{"kcp.io/cluster": cluster}},
	}
}

func TestAWriteThatMeetsAnotherStateReadsItAndTriesAgain(t *testing.T) {
	path := "root" + exportsPath + "/widgets"
	for name, test := range map[string]struct {
		tamper func(w *world)
		writes []string
	}{
		"changed": {
			func(w *world) { w.cache.change(path, func(u *unstructured.Unstructured) { u.Object["extra"] = "x" }) },
			[]string{"PUT " + path, "PUT " + path},
		},
		"removed": {
			func(w *world) { w.cache.set(func() { delete(w.cache.objects, "/shards/here/clusters/"+path) }) },
			[]string{"PUT " + path, "POST root" + exportsPath},
		},
	} {
		w := filled(t)
		test.tamper(w)
		w.has("root", export("widgets"))
		_ = w.try()
		w.settle2(t, name, test.writes)
	}
}

// settle2 reconciles again after an error, and compares all writes.
func (w *world) settle2(t *testing.T, what string, want []string) {
	t.Helper()
	if errs := w.try(); len(errs) > 0 {
		t.Errorf("%s: %v", what, errs)
	}
	equal(t, what, w.cache.takeWrites(), want...)
}

func TestTheNextLeaderOfTheSameStoreWritesOnlyDifferences(t *testing.T) {
	w := filled(t)
	w.offer, w.term = w.leader(), 8
	w.has("root", export("more"))
	w.connect()
	equal(t, "writes", w.settle(), "POST root"+exportsPath)
	if term := w.cache.get("root" + exportsPath + "/more").GetAnnotations()[cacheserver.LeaderTerm]; term != "8" {
		t.Errorf("got term %q", term)
	}
}

func TestAFormerLeaderIsRefused(t *testing.T) {
	w := filled(t)
	former := w.offer
	w.offer, w.term = w.leader(), 8
	w.has("root", export("widgets"))
	w.connect()
	w.settle()

	w.offer = former
	stale := export("widgets")
	stale.Labels = map[string]string{"color": "stale"}
	w.has("root", stale)
	for range 3 { // it reads the state in the cache server after the first conflict
		_ = w.try()
		w.offer.pending.add("root")
	}
	if u := w.cache.get("root" + exportsPath + "/widgets"); u.GetLabels() != nil || u.GetAnnotations()[cacheserver.LeaderTerm] != "8" {
		t.Errorf("the former leader wrote %v", u)
	}
	errs := w.try()
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), "has become the leader, in term 8") {
		t.Errorf("got errors %v", errs)
	}
}

func TestAFormerLeaderRemovesNothing(t *testing.T) {
	w := filled(t)
	former := w.offer
	w.offer, w.term = w.leader(), 8
	later := export("widgets")
	w.has("root", later)
	w.connect()
	w.settle()

	w.offer = former
	w.hasNot("root", export("widgets")) // as it was in the past
	for range 3 {
		w.offer.pending.add("root")
		if errs := w.try(); len(errs) == 0 {
			t.Error("the former leader has no error")
		}
	}
	if w.cache.get("root"+exportsPath+"/widgets") == nil {
		t.Error("the former leader removed an object")
	}
}

func TestAnEarlierStateIsNeverOffered(t *testing.T) {
	w := filled(t)
	w.cache.change("root"+exportsPath+"/widgets", func(u *unstructured.Unstructured) { annotate(u, cacheserver.OriginalResourceVersion, "1000") })
	w.cache.change("root"+exportsPath+"/widgets", func(u *unstructured.Unstructured) { u.SetLabels(map[string]string{"color": "later"}) })
	w.connect()
	errs := w.try()
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), "has version 1000") {
		t.Errorf("got errors %v", errs)
	}
	equal(t, "writes", w.cache.takeWrites())
}

func TestAnotherIncarnationReplacesEverything(t *testing.T) {
	w := filled(t)
	w.incarnation = "second"
	w.offer = w.leader()
	w.cache.change("root"+exportsPath+"/widgets", func(u *unstructured.Unstructured) { annotate(u, cacheserver.OriginalResourceVersion, "1000") })
	w.connect()
	equal(t, "writes", w.settle(), "PUT root"+clusterPath+"/cluster", "PUT root"+exportsPath+"/widgets", "PUT root"+rolesPath+"/binder",
		"PUT root"+bindingsPath+"/binding")
	if of := w.cache.get("root" + exportsPath + "/widgets").GetAnnotations(); of[cacheserver.Incarnation] != "second" ||
		of[cacheserver.OriginalResourceVersion] == "1000" {
		t.Errorf("got annotations %v", of)
	}
}

func TestNothingIsWrittenBeforeTheCacheServerWasRead(t *testing.T) {
	w := newWorld(t)
	w.has("root", logicalCluster("", ""), export("widgets"))
	if err := w.offer.reconcile(t.Context(), keyOf("root")); err != nil {
		t.Fatal(err)
	}
	equal(t, "writes", w.cache.takeWrites())
	w.connect()
	w.settle()
	equal(t, "offered", w.cache.paths("here"), "root"+exportsPath+"/widgets", "root"+clusterPath+"/cluster")
}

func keyOf(cluster string) informers.Key { return informers.Key{Cluster: logicalcluster.Name(cluster)} }

// running runs the Offer of a world until the test ends.
func (w *world) running() {
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); w.offer.Run(ctx) }()
	w.t.Cleanup(func() { cancel(); <-ended })
}

// eventually waits until the cache server has these objects of this shard, and nothing is being written.
func (w *world) eventually(what string, want ...string) {
	w.t.Helper()
	deadline := time.After(30 * time.Second)
	for !slices.Equal(w.cache.paths("here"), want) || len(w.offer.pending.clusters()) > 0 {
		select {
		case <-w.cache.wrote:
		case <-time.After(10 * time.Millisecond):
			w.clock.Step(time.Second) // time passes until the next attempt
		case <-deadline:
			w.t.Fatalf("%s: got %v, want %v", what, w.cache.paths("here"), want)
		}
	}
}

func TestTheCacheServerIsFilledAgainAfterItWasDownOrEmptied(t *testing.T) {
	w := newWorld(t)
	w.cache.set(func() { w.cache.down = true })
	w.has("root", logicalCluster("", ""), export("widgets"))
	w.running()
	w.cache.set(func() { w.cache.down = false })
	all := []string{"root" + exportsPath + "/widgets", "root" + clusterPath + "/cluster"}
	w.eventually("when it responds", all...)

	w.cache.set(func() { w.cache.instance = "two"; clear(w.cache.objects) })
	w.eventually("after it was emptied", all...)

	w.cache.set(func() { w.cache.down = true })
	w.has("root", export("more"))
	w.cache.set(func() { w.cache.down = false })
	w.eventually("after it was down", append([]string{"root" + exportsPath + "/more"}, all...)...)
}

func TestEverythingIsComparedEveryTenMinutes(t *testing.T) {
	w := newWorld(t)
	w.has("root", logicalCluster("", ""), export("widgets"))
	w.running()
	all := []string{"root" + exportsPath + "/widgets", "root" + clusterPath + "/cluster"}
	w.eventually("at the start", all...)
	lists := func() (n int) { w.cache.set(func() { n = w.cache.lists }); return n }
	before := lists()
	began := w.clock.Now()
	w.cache.set(func() { delete(w.cache.objects, "/shards/here/clusters/"+all[0]) }) // without another instance
	w.eventually("after the interval", all...)
	if passed := w.clock.Now().Sub(began); passed < compareInterval-time.Minute || lists() == before {
		t.Errorf("it was compared after %s", passed)
	}
}

func TestLogicalClustersOfOtherShardsAreFollowed(t *testing.T) {
	w := newWorld(t)
	w.has("root", logicalCluster("", ""), workspace("far", "f", "there"), workspace("later", "l", "there"))
	far := func(workspace string) map[string]any {
		lc := logicalCluster("root", workspace)
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(lc)
		if err != nil {
			t.Fatal(err)
		}
		content["apiVersion"], content["kind"] = "core.kcp.io/v1alpha1", "LogicalCluster"
		return content
	}
	w.cache.offer("/shards/there/clusters/f"+clusterPath+"/cluster", far("far"))
	w.running()
	w.eventually("at the start", "root"+clusterPath+"/cluster", "root"+edgesPath+"/far")
	w.cache.offer("/shards/there/clusters/l"+clusterPath+"/cluster", far("later"))
	w.eventually("after another is offered", "root"+clusterPath+"/cluster", "root"+edgesPath+"/far", "root"+edgesPath+"/later")
}

func TestAncestorsStayOfferedWhileALeaderStarts(t *testing.T) {
	w := newWorld(t)
	w.connect()
	w.has("root", logicalCluster("", ""), workspace("org", "o", "here"))
	w.has("o", logicalCluster("root", "org"), workspace("team", "p", "here"))
	w.has("p", logicalCluster("o", "team"), export("widgets"))
	w.settle()
	for _, first := range []string{"root", "o", "p"} {
		w.offer = w.leader()
		w.connect()
		if err := w.offer.reconcile(t.Context(), keyOf(first)); err != nil {
			t.Fatal(err)
		}
		equal(t, "writes if "+first+" is first", w.settle())
	}
	w.Hide(objecttest.In("o", logicalCluster("", "")))
	w.offer = w.leader()
	w.connect()
	w.settle()
	equal(t, "after an ancestor is gone", w.cache.paths("here"), "p"+exportsPath+"/widgets", "p"+clusterPath+"/cluster")
}
