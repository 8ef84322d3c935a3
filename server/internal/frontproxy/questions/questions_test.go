package questions

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kcplane/kcp/server/internal/frontproxy/index"
	"github.com/kcplane/kcp/server/internal/shards/tree"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// world is what the shards hold.
type world struct {
	mu     sync.Mutex
	edges  map[string]tree.Edge    // by shard/parent:name
	held   map[string]tree.Cluster // by shard/cluster
	down   map[string]bool
	busy   string            // a shard that is
	moved  map[string]string // where a shard sends questions for a cluster, by shard/cluster
	asked  []string
	stored int // how many of the questions are for the storage
	before func()
}

func (w *world) ask(_ context.Context, shard string, q tree.Question) (a tree.Answer, err error) {
	w.mu.Lock()
	w.asked = append(w.asked, shard+" "+q.Path)
	if q.Stored {
		w.stored++
	}
	before := w.before
	defer w.mu.Unlock()
	if before != nil {
		w.mu.Unlock()
		before()
		w.mu.Lock()
	}
	if w.down[shard] {
		return a, errors.New("connection refused")
	}
	if shard == w.busy {
		return a, apierrors.NewTooManyRequests("later", 1)
	}
	parts := strings.Split(q.Path, ":")
	cluster := parts[0]
	for _, name := range parts[1:] {
		if to, ok := w.moved[shard+"/"+cluster]; ok {
			a.Shard = to
			return a, nil
		}
		e, ok := w.edges[shard+"/"+cluster+":"+name]
		if !ok {
			return a, nil
		}
		a.Edges = append(a.Edges, e)
		if cluster = string(e.Cluster); cluster == "" || e.Shard != "" && e.Shard != shard {
			a.Shard = e.Shard
			return a, nil
		}
	}
	if held, ok := w.held[shard+"/"+cluster]; ok {
		a.Cluster = &held
	}
	return a, nil
}

func edge(parent, name, cluster, shard string) tree.Edge {
	return tree.Edge{Parent: logicalcluster.Name(parent), Name: name, Cluster: logicalcluster.Name(cluster), Shard: shard}
}

// installation has root:org on root, root:org:team on two, root:org:team:below on three, and the home of alice, of which the index knows
// nothing but root:org.
func installation() (*world, *Resolver) {
	w := &world{down: map[string]bool{}, moved: map[string]string{}, edges: map[string]tree.Edge{
		"root/root:org": edge("root", "org", "org0", ""), "root/org0:team": edge("org0", "team", "team0", "two"),
		"two/team0:below": edge("team0", "below", "below0", "three"), "root/org0:mounted": {Parent: "org0", Name: "mounted", URL: "https://x"},
		"root/root:down": {Parent: "root", Name: "down", Cluster: "down0", Unavailable: true},
	}, held: map[string]tree.Cluster{
		"root/org0": {Name: "org0", Parent: "root", Workspace: "org"}, "two/team0": {Name: "team0", Parent: "org0", Workspace: "team"},
		"three/below0": {Name: "below0", Parent: "team0", Workspace: "below"}, "root/home0": {Name: "home0"},
	}}
	table := index.New()
	table.SetEdge("root", edge("root", "org", "org0", ""))
	return w, New(Config{Index: table, Ask: w.ask, Shards: func() []string { return []string{"root", "two", "three"} },
		Clock: testingclock.NewFakePassiveClock(time.Now()), Asked: func(error) {}})
}

var alice = Client{Key: "alice", Trust: Verified}

func TestWhatTheIndexDoesNotHaveIsAsked(t *testing.T) {
	for path, want := range map[string]struct {
		place index.Place
		asked []string
	}{
		"root:org":              {index.Place{Shard: "root", Cluster: "org0", Epoch: 1}, nil},
		"root:org:team":         {index.Place{Shard: "two", Cluster: "team0", Epoch: 1}, []string{"root org0:team"}},
		"root:org:team:below":   {index.Place{Shard: "three", Cluster: "below0", Epoch: 1}, []string{"root org0:team:below", "two team0:below"}},
		"root:org:mounted":      {index.Place{Shard: "root", Cluster: "org0", Epoch: 1, Mount: "mounted"}, []string{"root org0:mounted"}},
		"root:down":             {index.Place{Shard: "root", Cluster: "down0", Epoch: 1, Unavailable: true}, []string{"root root:down"}},
		"home0":                 {index.Place{Shard: "root", Cluster: "home0", Epoch: 1}, []string{"root home0", "three home0", "two home0"}},
		"team0":                 {index.Place{Shard: "two", Cluster: "team0", Epoch: 1}, []string{"root team0", "three team0", "two team0", "root org0:team"}},
		"root:org:none":         {index.Place{}, []string{"root org0:none", "root org0"}},
		"root:none":             {index.Place{}, []string{"root root:none"}},
		"root:org:team:none":    {index.Place{}, []string{"root org0:team:none", "two team0:none", "two team0"}},
		"root:org:mounted:none": {index.Place{}, []string{"root org0:mounted:none"}},
		"none0":                 {index.Place{}, []string{"root none0", "three none0", "two none0"}},
	} {
		w, r := installation()
		got, err := r.Resolve(t.Context(), alice, path)
		if got != want.place || (err == nil) != (want.place != index.Place{}) || err != nil && !errors.Is(err, ErrAbsent) {
			t.Errorf("%s: got %+v, %v", path, got, err)
		}
		if !strings.HasPrefix(path, "root") {
			slices.Sort(w.asked[:3]) // all shards at the same time
		}
		if !slices.Equal(w.asked, want.asked) {
			t.Errorf("%s: asked %q, want %q", path, w.asked, want.asked)
		}
	}
}

func TestANameWhoseOwnerIsUnknownToo(t *testing.T) {
	w, r := installation()
	got, err := r.Resolve(t.Context(), alice, "below0")
	if want := (index.Place{Shard: "three", Cluster: "below0", Epoch: 1}); err != nil || got != want {
		t.Errorf("got %+v, %v, asked %q", got, err, w.asked)
	}
}

func TestAShardCannotClaimAName(t *testing.T) {
	for name, forged := range map[string]tree.Cluster{
		"with the right owner":           {Name: "team0", Parent: "org0", Workspace: "team", Epoch: 99},
		"as a home":                      {Name: "team0", Epoch: 99},
		"with a workspace that is not":   {Name: "team0", Parent: "org0", Workspace: "evil", Epoch: 99},
		"with itself as the owner":       {Name: "team0", Parent: "team0", Workspace: "x", Epoch: 99},
		"under the name of another one":  {Name: "other0", Parent: "org0", Workspace: "team", Epoch: 99},
		"with an owner that it invented": {Name: "team0", Parent: "fake0", Workspace: "x", Epoch: 99},
	} {
		w, r := installation()
		w.held["evil/team0"], w.held["evil/fake0"] = forged, tree.Cluster{Name: "fake0"}
		w.edges["evil/fake0:x"] = edge("fake0", "x", "team0", "evil")
		r.config.Shards = func() []string { return []string{"evil", "root", "three", "two"} }
		got, err := r.Resolve(t.Context(), alice, "team0")
		if err != nil || got.Shard != "two" {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
		delete(w.held, "two/team0")
		if got, err := r.Resolve(t.Context(), alice, "team0"); err == nil && got.Shard == "evil" {
			t.Errorf("%s, alone: got %+v", name, got)
		}
	}
}

func TestAnAnswerMustBeAboutTheQuestion(t *testing.T) {
	for name, answered := range map[string]tree.Edge{
		"another parent": edge("root", "team", "victim0", "evil"), "another name": edge("org0", "other", "victim0", "evil"),
		"a deleted one": {Parent: "org0", Name: "team", Deleted: true},
	} {
		w, r := installation()
		w.edges["root/org0:team"] = answered
		if got, err := r.Resolve(t.Context(), alice, "root:org:team"); !apierrors.IsServiceUnavailable(err) {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
}

func TestAShardThatDoesNotAnswerIsNoAbsence(t *testing.T) {
	w, r := installation()
	w.down["two"] = true
	for path, want := range map[string]func(error) bool{
		"root:org:team:below": apierrors.IsServiceUnavailable, "none0": apierrors.IsServiceUnavailable,
		"root:none": func(err error) bool { return errors.Is(err, ErrAbsent) }, "home0": func(err error) bool { return err == nil },
	} {
		if _, err := r.Resolve(t.Context(), alice, path); !want(err) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestANameIsNotAbsentWhileTheShardOfItsOwnerIsDown(t *testing.T) {
	w, r := installation()
	w.down["root"] = true
	if got, err := r.Resolve(t.Context(), alice, "team0"); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestAnAnswerAboutAnotherNameIsNotBelieved(t *testing.T) {
	w, r := installation()
	w.held["root/none0"] = tree.Cluster{Name: "home0"}
	if got, err := r.Resolve(t.Context(), alice, "none0"); !errors.Is(err, ErrAbsent) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestABusyShardIsNoAbsence(t *testing.T) {
	w, r := installation()
	w.busy = "root"
	if got, err := r.Resolve(t.Context(), alice, "root:none"); !apierrors.IsTooManyRequests(err) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestAShardThatTakesTooLongIsNoAbsence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, r := installation()
		leave := make(chan struct{})
		w.before = func() { <-leave }
		if got, err := r.Resolve(t.Context(), alice, "root:none"); !apierrors.IsServiceUnavailable(err) {
			t.Errorf("got %+v, %v", got, err)
		}
		close(leave)
	})
}

func TestShardsThatDisagreeAreNoAbsence(t *testing.T) {
	w, r := installation()
	w.edges["root/root:org"] = edge("root", "org", "org0", "two") // which does not hold it
	delete(w.edges, "root/org0:team")
	delete(w.held, "root/org0")
	if got, err := r.Resolve(t.Context(), alice, "root:org:team"); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestACircleOfShardsEnds(t *testing.T) {
	w, r := installation()
	w.moved["root/org0"], w.moved["two/org0"] = "two", "root"
	if _, err := r.Resolve(t.Context(), alice, "root:org:team"); !apierrors.IsServiceUnavailable(err) || len(w.asked) > maxQuestions {
		t.Errorf("%d questions: %v", len(w.asked), err)
	}
}

func TestAShardFromWhichTheParentHasMovedDoesNotDecide(t *testing.T) {
	w, r := installation()
	moved := edge("root", "org", "org0", "two")
	moved.Epoch = 2
	w.edges["root/root:org"], w.edges["two/org0:team"] = moved, edge("org0", "team", "team0", "two")
	w.held["two/org0"] = w.held["root/org0"]
	delete(w.held, "root/org0")
	delete(w.edges, "root/org0:team")
	got, err := r.Resolve(t.Context(), alice, "root:org:team")
	if want := (index.Place{Shard: "two", Cluster: "team0", Epoch: 1}); err != nil || got != want {
		t.Errorf("got %+v, %v, asked %q", got, err, w.asked)
	}
	delete(w.edges, "two/org0:team")
	if _, err := r.Resolve(t.Context(), alice, "root:org:team"); !errors.Is(err, ErrAbsent) {
		t.Errorf("got %v, asked %q", err, w.asked)
	}
}

func TestConfirmAsksAlthoughTheIndexHasThePlace(t *testing.T) {
	w, r := installation()
	moved := edge("root", "org", "org0", "two")
	moved.Epoch = 2
	w.edges["root/root:org"] = moved
	got, err := r.Confirm(t.Context(), alice, "root:org")
	if want := (index.Place{Shard: "two", Cluster: "org0", Epoch: 2}); err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	if w.stored != len(w.asked) {
		t.Errorf("%d of %d questions are for the storage", w.stored, len(w.asked))
	}
	delete(w.edges, "root/root:org")
	if _, err := r.Confirm(t.Context(), alice, "root:org"); !errors.Is(err, ErrAbsent) {
		t.Errorf("got %v", err)
	}
}

func TestTheQuestionsOfAClientAreLimited(t *testing.T) {
	for name, tc := range map[string]struct {
		client Client
		burst  int
	}{"verified": {alice, verifiedBurst}, "unverified": {Client{"10.0.0.1/32", Unverified}, unverifiedBurst}, "anonymous": {Client{"10.0.0.1/32", Anonymous}, 0}} {
		w, r := installation()
		for range tc.burst {
			if _, err := r.Resolve(t.Context(), tc.client, "root:none"); !errors.Is(err, ErrAbsent) {
				t.Fatalf("%s: %v", name, err)
			}
		}
		_, err := r.Resolve(t.Context(), tc.client, "root:none")
		if tc.burst > 0 && !apierrors.IsTooManyRequests(err) || tc.burst == 0 && !errors.Is(err, ErrAbsent) || len(w.asked) != tc.burst {
			t.Errorf("%s: the last of %d questions got %v", name, len(w.asked), err)
		}
		if _, err := r.Resolve(t.Context(), tc.client, "root:org"); err != nil {
			t.Errorf("%s: what the index has is refused: %v", name, err)
		}
		if _, err := r.Resolve(t.Context(), Client{"bob", Verified}, "root:none"); !errors.Is(err, ErrAbsent) {
			t.Errorf("%s: another client pays: %v", name, err)
		}
	}
}

func TestUnverifiedClientsShareABudgetThatOthersDoNotUse(t *testing.T) {
	_, r := installation()
	refused := false
	for n := range 2 * allBurst {
		_, err := r.Resolve(t.Context(), Client{string(rune('a' + n)), Unverified}, "root:none")
		refused = refused || apierrors.IsTooManyRequests(err)
	}
	if !refused {
		t.Error("invented credentials have no limit")
	}
	if _, err := r.Resolve(t.Context(), alice, "root:none"); !errors.Is(err, ErrAbsent) {
		t.Errorf("a verified client pays for them: %v", err)
	}
}

// An absence is never answered from a question that was asked before the request arrived: the workspace may have been created in between.
func TestARequestThatIsYoungerThanAQuestionIsNotAnsweredWithItsAbsence(t *testing.T) {
	for path, created := range map[string]tree.Edge{
		"root:new":      edge("root", "new", "new0", ""),
		"root:down:new": edge("down0", "new", "new0", ""), // of which the answer has the parent
	} {
		t.Run(path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testYoungerRequests(t, path, created) })
		})
	}
}

// testYoungerRequests creates a workspace after it was asked for, and expects that later requests get it.
func testYoungerRequests(t *testing.T, path string, created tree.Edge) {
	w, r := installation()
	leave := make(chan struct{})
	w.before = func() { <-leave }
	type outcome struct {
		place index.Place
		err   error
	}
	resolve := func() chan outcome {
		c := make(chan outcome, 1)
		go func() {
			place, err := r.Resolve(context.Background(), alice, path)
			c <- outcome{place, err}
		}()
		synctest.Wait()
		return c
	}
	first := resolve()
	younger, youngest := resolve(), resolve()
	leave <- struct{}{} // the first question is answered from the state before the creation
	if got := <-first; !errors.Is(got.err, ErrAbsent) {
		t.Errorf("the first request got %+v", got)
	}
	synctest.Wait()
	w.mu.Lock()
	w.edges["root/"+string(created.Parent)+":"+created.Name] = created
	asked := len(w.asked)
	w.mu.Unlock()
	if asked == 2 { // otherwise the others have an answer already
		leave <- struct{}{}
	}
	for _, c := range []chan outcome{younger, youngest} {
		if got := <-c; got.err != nil || got.place.Cluster != "new0" {
			t.Errorf("a younger request got %+v", got)
		}
	}
	if len(w.asked) != 2 {
		t.Errorf("requests at the same time asked %d times", len(w.asked))
	}
}

func TestAPlaceSufficesForYoungerRequestsToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, r := installation()
		leave := make(chan struct{})
		w.before = func() { <-leave }
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if _, err := r.Resolve(context.Background(), alice, "root:org:team"); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		leave <- struct{}{}
		all.Wait()
		if len(w.asked) != 1 {
			t.Errorf("%d questions", len(w.asked))
		}
	})
}
