package feed

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
)

func TestOverTheLimitTheOldestAreOffered(t *testing.T) {
	w := newWorld(t)
	w.limits = Limits{3, 1 << 20}
	w.offer = w.leader()
	w.connect()
	w.has("root", logicalCluster("", ""))
	at := func(name string, second int64) *apisv1alpha2.APIExport {
		e := export(name)
		e.CreationTimestamp = metav1.Unix(second, 0)
		return e
	}
	w.has("root", at("d", 1), at("c", 2), at("b", 3), at("a", 4))
	w.settle()
	want := []string{"root" + exportsPath + "/b", "root" + exportsPath + "/c", "root" + exportsPath + "/d", "root" + clusterPath + "/cluster"}
	equal(t, "four exports", w.cache.paths("here"), want...)
	if offered, excess := w.offer.count(); offered != 4 || excess != 1 {
		t.Errorf("got %d offered and %d in excess", offered, excess)
	}
	w.hasNot("root", at("d", 1))
	w.settle()
	want[2] = "root" + exportsPath + "/a"
	slices.Sort(want)
	equal(t, "after the oldest is deleted", w.cache.paths("here"), want...)
	if _, excess := w.offer.count(); excess != 0 {
		t.Errorf("got %d in excess", excess)
	}
}

func TestTheExcessHasACondition(t *testing.T) {
	const total = 6 * maxDescribed
	w := newWorld(t)
	w.limits = Limits{maxDescribed, 1 << 20}
	w.offer = w.leader()
	w.connect()
	w.has("root", logicalCluster("", ""))
	at := func(n int) *apisv1alpha2.APIExport {
		e := export(fmt.Sprintf("e%03d", n))
		e.CreationTimestamp = metav1.Unix(int64(n), 0)
		return e
	}
	for n := range total {
		e := at(n)
		w.has("root", e)
		w.Store(e)
	}
	excess := func(n int) (found []corev1alpha1.Condition) {
		stored, err := w.Set.APIExports.Get("root", "", at(n).Name)
		if err != nil {
			t.Fatal(err)
		}
		return stored.Status.Conditions
	}
	w.settle()
	if c := excess(total - 1); len(c) != 0 {
		t.Errorf("all conditions are written at once")
	}
	for range 6 {
		w.offer.enqueue("root")
		w.settle()
	}
	for n := range total {
		c := excess(n)
		if over := n >= maxDescribed; over != (len(c) == 1) || over && (c[0].Status != metav1.ConditionFalse || c[0].Reason != "LimitExceeded") {
			t.Errorf("export %d has the conditions %v", n, c)
		}
	}
	for n := range maxDescribed {
		w.hasNot("root", at(n))
	}
	w.settle()
	if c, last := excess(maxDescribed), excess(2*maxDescribed); len(c) != 0 || len(last) != 1 {
		t.Errorf("after deletions, a former excess has the conditions %v, and the rest %v", c, last)
	}
}

func TestBytesAreLimited(t *testing.T) {
	w := newWorld(t)
	w.limits = Limits{100, 4096}
	w.offer = w.leader()
	w.connect()
	large := &apisv1alpha1.APIResourceSchema{ObjectMeta: metav1.ObjectMeta{Name: "large"}}
	large.Spec.Names.Kind = strings.Repeat("x", 4096)
	w.has("root", logicalCluster("", ""), export("widgets"), large, role("binder", resourceRule(apisGroup, "apiexports", "bind")))
	w.settle()
	equal(t, "offered", w.cache.paths("here"), "root"+exportsPath+"/widgets", "root"+clusterPath+"/cluster")
	if _, excess := w.offer.count(); excess != 2 {
		t.Errorf("got %d in excess, want the large schema and what is written after it", excess)
	}
}

func TestOtherClustersAreNotLimitedByOne(t *testing.T) {
	w := newWorld(t)
	w.limits = Limits{2, 1 << 20}
	w.offer = w.leader()
	w.connect()
	w.has("hostile", logicalCluster("", ""))
	for n := range 50 {
		w.has("hostile", export(fmt.Sprint("e", n)))
	}
	w.has("quiet", logicalCluster("", ""), export("one"), export("two"))
	w.settle()
	if n := len(w.cache.paths("here")); n != 6 {
		t.Errorf("got %d objects, want 3 of each cluster", n)
	}
}
