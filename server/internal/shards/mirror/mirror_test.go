package mirror

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kcplane/kcp/server/internal/tenancy/cachedresources"
	"github.com/kcplane/kcp/server/logicalcluster"
)

func object(name, version, color string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.org/v1", "kind": "Region"}}
	u.SetName(name)
	u.SetResourceVersion(version)
	u.SetLabels(map[string]string{"color": color})
	u.SetAnnotations(map[string]string{
		"cache.kcp.io/original-resource-UID": "uid of " + name, "internal.kcp.io/leader-term": "7", "kcp.io/shard": "west", "note": "kept",
	})
	return u
}

func newMirrors(t *testing.T) (*Mirrors, *clocktesting.FakeClock) {
	t.Helper()
	c := clocktesting.NewFakeClock(time.Now())
	payer := func(cluster logicalcluster.Name) string { return string(cluster[:1]) }
	m, err := New(t.Context(), &rest.Config{Host: "https://127.0.0.1:1/services/cache"}, c, payer)
	if err != nil {
		t.Fatal(err)
	}
	return m, c
}

// filled returns a follower that has listed red, at version 3, and blue.
func filled(t *testing.T) *follower {
	t.Helper()
	m, _ := newMirrors(t)
	f := newFollower(nil, m, m.open("p"), schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Region"})
	if err := f.Replace([]any{object("red", "3", "red"), object("blue", "2", "blue")}, "5"); err != nil {
		t.Fatal(err)
	}
	return f
}

// listed returns the names and the version of a list.
func listed(t *testing.T, f *follower, options metav1.ListOptions) string {
	t.Helper()
	list, err := objects{follower: f}.List(t.Context(), options)
	if err != nil {
		return string(apierrors.ReasonForError(err))
	}
	var names []string
	for _, item := range list.Items {
		names = append(names, item.GetName())
	}
	return strings.Join(names, " ") + " at " + list.GetResourceVersion()
}

func TestWhatIsRead(t *testing.T) {
	f := filled(t)
	for _, tc := range []struct {
		options metav1.ListOptions
		want    string
	}{
		{metav1.ListOptions{}, "blue red at 5"},
		{metav1.ListOptions{ResourceVersion: "4", Limit: 1}, "blue red at 5"},
		{metav1.ListOptions{LabelSelector: "color=red"}, "red at 5"},
		{metav1.ListOptions{FieldSelector: "metadata.name=blue"}, "blue at 5"},
		{metav1.ListOptions{ResourceVersion: "5", ResourceVersionMatch: metav1.ResourceVersionMatchExact}, "blue red at 5"},
		{metav1.ListOptions{ResourceVersion: "4", ResourceVersionMatch: metav1.ResourceVersionMatchExact}, "Expired"},
		{metav1.ListOptions{Continue: "x"}, "Expired"},
		{metav1.ListOptions{LabelSelector: "("}, "BadRequest"},
	} {
		if got := listed(t, f, tc.options); got != tc.want {
			t.Errorf("%+v: got %s, want %s", tc.options, got, tc.want)
		}
	}
	red, err := objects{follower: f}.Get(t.Context(), "red", metav1.GetOptions{})
	if err != nil || red.GetUID() != "uid of red" || len(red.GetAnnotations()) != 1 {
		t.Errorf("got %v, %v", red, err)
	}
	if _, err := (objects{follower: f}).Get(t.Context(), "green", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("an absent object: got %v", err)
	}
}

// seen returns the next n events of a watch as text.
func seen(t *testing.T, w watch.Interface, n int) (events []string) {
	t.Helper()
	for range n {
		e, ok := <-w.ResultChan()
		if !ok {
			return append(events, "end")
		}
		text := string(e.Type)
		if u, ok := e.Object.(*unstructured.Unstructured); ok {
			text += strings.TrimSpace(" "+u.GetName()) + u.GetResourceVersion()
		}
		events = append(events, text)
	}
	return events
}

func watching(t *testing.T, f *follower, options metav1.ListOptions) watch.Interface {
	t.Helper()
	w, err := objects{follower: f}.Watch(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w
}

func TestWhatAWatchDelivers(t *testing.T) {
	f, yes := filled(t), true
	all := watching(t, f, metav1.ListOptions{ResourceVersion: "5"})
	red := watching(t, f, metav1.ListOptions{LabelSelector: "color=red"})
	streamed := watching(t, f, metav1.ListOptions{SendInitialEvents: &yes, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
	_ = f.Add(object("green", "6", "green"))
	_ = f.Update(object("blue", "7", "red"))
	_ = f.Update(object("red", "8", "blue"))
	_ = f.Delete(object("green", "9", "green"))
	_ = f.Replace([]any{object("red", "8", "blue"), object("new", "10", "red")}, "11") // after a gap
	for name, tc := range map[string]struct {
		w    watch.Interface
		want []string
	}{
		"all":      {all, []string{"ADDEDgreen6", "MODIFIEDblue7", "MODIFIEDred8", "DELETEDgreen9", "ADDEDnew10", "DELETEDblue11"}},
		"selected": {red, []string{"ADDEDred3", "ADDEDblue7", "DELETEDred8", "ADDEDnew10", "DELETEDblue11"}},
		"streamed": {streamed, []string{"ADDEDblue2", "ADDEDred3", "BOOKMARK5", "ADDEDgreen6"}},
		"resumed":  {watching(t, f, metav1.ListOptions{ResourceVersion: "8"}), []string{"DELETEDgreen9", "ADDEDnew10", "DELETEDblue11"}},
	} {
		if got := seen(t, tc.w, len(tc.want)); !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

func TestWhenAWatchExpires(t *testing.T) {
	f := filled(t)
	open := watching(t, f, metav1.ListOptions{ResourceVersion: "5"})
	f.again()
	if got := listed(t, f, metav1.ListOptions{}); got != "blue red at 5" {
		t.Errorf("until another instance of the cache server is listed: got %s", got)
	}
	_ = f.Replace([]any{object("red", "3", "green")}, "4")
	if got := seen(t, open, 2); !slices.Equal(got, []string{"ERROR", "end"}) {
		t.Errorf("after that: got %q", got)
	}
	if got := listed(t, f, metav1.ListOptions{LabelSelector: "color=green"}); got != "red at 4" {
		t.Errorf("an object of another instance with the same version: got %s", got)
	}
	for i := range maxHistory + 10 {
		_ = f.Update(object("red", fmt.Sprint(10+i), "red"))
	}
	if _, err := (objects{follower: f}).Watch(t.Context(), metav1.ListOptions{ResourceVersion: "5"}); !apierrors.IsResourceExpired(err) {
		t.Errorf("a version before the history: got %v", err)
	}
}

func TestAPublicationIsBounded(t *testing.T) {
	f := filled(t)
	var many []any
	for i := range maxObjects + 1 {
		many = append(many, object(fmt.Sprint("o", i), fmt.Sprint(10+i), "red"))
	}
	_ = f.Replace(many, "100000")
	if err := f.filled(t.Context()); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("too many objects: got %v", err)
	}
	_ = f.Replace(many[:1], "100001")
	if err := f.filled(t.Context()); err != nil {
		t.Errorf("after that: %v", err)
	}
	large := object("large", "100002", "red")
	large.Object["data"] = strings.Repeat("x", maxBytes)
	_ = f.Add(large)
	if err := f.filled(t.Context()); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("too many bytes: got %v", err)
	}
	if f.mirrors.bytes.Load() != f.bytes || f.bytes > maxBytes {
		t.Errorf("%d bytes are counted for all, %d for this one", f.mirrors.bytes.Load(), f.bytes)
	}
}

func publication(n int) cachedresources.Publication {
	return cachedresources.Publication{
		Shard: "west", Cluster: "provider", Resource: schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "regions"},
		Identity: fmt.Sprint(n),
	}
}

func TestAnUnusedMirrorEnds(t *testing.T) {
	m, clock := newMirrors(t)
	first, err := m.follow(publication(1))
	if err != nil {
		t.Fatal(err)
	}
	_ = first.Replace(nil, "1")
	w, err := objects{follower: first}.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	clock.Step(2 * idle)
	if ended := m.endIfIdle(publication(1), first); ended || len(m.Followed()) != 1 {
		t.Error("a mirror with a watch ended")
	}
	w.Stop()
	for range w.ResultChan() {
	}
	err = wait.PollUntilContextCancel(t.Context(), time.Millisecond, true, func(context.Context) (bool, error) {
		_, unused := first.unusedSince()
		return unused, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	clock.Step(2 * idle)
	if ended := m.endIfIdle(publication(1), first); !ended || len(m.Followed()) != 0 || m.bytes.Load() != 0 {
		t.Errorf("an unused mirror stays: %v", m.Followed())
	}
}

func TestOnlySoManyMirrorsAreFollowed(t *testing.T) {
	m, clock := newMirrors(t)
	of := func(n int) cachedresources.Publication { // of as many payers as may have their share
		p := publication(n)
		p.Cluster = logicalcluster.Name(fmt.Sprint(n % share))
		return p
	}
	for n := range maxMirrors + 1 {
		clock.Step(time.Millisecond)
		if _, err := m.follow(of(n)); err != nil {
			t.Fatal(err)
		}
	}
	if all := m.Followed(); len(all) != maxMirrors || slices.Contains(all, of(0)) {
		t.Errorf("%d mirrors are followed", len(all))
	}
	for _, f := range m.all {
		f.mu.Lock()
		f.watchers++
		f.mu.Unlock()
	}
	if _, err := m.follow(publication(0)); !apierrors.IsTooManyRequests(err) {
		t.Errorf("while all are watched: got %v", err)
	}
}

func TestAPayerHasAShareOfTheMirrors(t *testing.T) {
	m, clock := newMirrors(t)
	for n := range maxMirrors/share + 1 {
		clock.Step(time.Millisecond)
		if _, err := m.follow(publication(n)); err != nil {
			t.Fatal(err)
		}
	}
	if all := m.Followed(); len(all) != maxMirrors/share || slices.Contains(all, publication(0)) {
		t.Errorf("%d mirrors of one payer are followed", len(all))
	}
	for _, f := range m.all {
		f.mu.Lock()
		f.watchers++
		f.mu.Unlock()
	}
	sibling := publication(0)
	sibling.Cluster = "partner" // of the same payer
	if _, err := m.follow(sibling); !apierrors.IsTooManyRequests(err) {
		t.Errorf("more of a payer, while all are watched: got %v", err)
	}
	other := publication(0)
	other.Cluster = "other"
	f, err := m.follow(other)
	if err != nil {
		t.Fatalf("another payer: %v", err)
	}
	if f.account.bytes.Store(maxAllBytes/share - 1); m.reserve(f.account, 2) || !m.reserve(f.account, 1) {
		t.Error("the bytes of a payer are not limited to its share")
	}
	f.account.bytes.Store(0)
	m.mu.Lock()
	m.end(other)
	m.mu.Unlock()
	if len(m.accounts) != 1 {
		t.Errorf("%d accounts are left, want that of the first payer", len(m.accounts))
	}
}

func TestWatchesEndWhenObjectsAreMissing(t *testing.T) {
	f := filled(t)
	w, err := objects{follower: f}.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "5"})
	if err != nil {
		t.Fatal(err)
	}
	large := object("large", "6", "red")
	large.Object["data"] = strings.Repeat("x", maxBytes)
	_ = f.Add(large)
	for event := range w.ResultChan() {
		if event.Type != watch.Error {
			t.Errorf("got %v", event)
		}
	}
	relisted := false
	f.relist = func() { relisted = true }
	if f.retry(); !relisted {
		t.Error("it is not listed again")
	}
	_ = f.Replace([]any{object("red", "7", "red")}, "7")
	relisted = false
	if f.retry(); relisted || f.filled(t.Context()) != nil {
		t.Error("after a complete list, it is listed again")
	}
}
