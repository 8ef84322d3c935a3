package lookup

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	clocktesting "k8s.io/utils/clock/testing"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/internal/process/fairqueue"
	"github.com/kcplane/kcp/server/internal/process/fairqueue/fairqueuetest"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/internal/shards/tree"
	"github.com/kcplane/kcp/server/internal/tenancy/references"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// installation answers as its shards do. Keys of answers are "<shard> <path>".
type installation struct {
	answers  map[string]tree.Answer
	failures map[string]error // by shard
	exists   map[string]bool  // by "<shard> <cluster>/<name>"
	searched []string
	asked    []string
	until    <-chan struct{} // closed when other shards may respond; nil if they may do so at once
}

// wait returns when other shards may respond.
func (i *installation) wait(ctx context.Context) {
	if i.until == nil {
		return
	}
	select {
	case <-i.until:
	case <-ctx.Done():
	}
}

var errCut = &peers.Unreachable{Shard: "eu", Err: errors.New("cut")}

func (i *installation) finder(clock *clocktesting.FakePassiveClock) *Finder {
	return New(Config{
		Shard: "own", Clock: clock, Payer: func(c logicalcluster.Name) string { return "payer of " + string(c) },
		Holder: func(c logicalcluster.Name) (string, uint64, bool) {
			shard, known := map[logicalcluster.Name]string{"org": "eu", "mine": "own"}[c]
			return shard, 1, known
		},
		Search: func(ctx context.Context, cluster, asker logicalcluster.Name, client, _ string) (string, error) {
			i.wait(ctx)
			i.searched = append(i.searched, string(cluster)+" for "+client+" in "+string(asker))
			return map[logicalcluster.Name]string{"home": "eu"}[cluster], i.failures["search"]
		},
		Resolve: func(ctx context.Context, shard string, q tree.Question) (tree.Answer, error) {
			if shard != "own" {
				i.wait(ctx)
				i.asked = append(i.asked, shard+" "+q.Path)
			}
			return i.answers[shard+" "+q.Path], i.failures[shard]
		},
		Exists: func(ctx context.Context, shard string, q Question) (Answer, error) {
			i.wait(ctx)
			i.asked = append(i.asked, shard+" "+string(q.Cluster)+"/"+q.Name)
			return Answer{Exists: i.exists[shard+" "+string(q.Cluster)+"/"+q.Name]}, i.failures[shard]
		},
	})
}

func edge(parent, name, cluster, shard string) tree.Edge {
	return tree.Edge{Parent: logicalcluster.Name(parent), Name: name, Cluster: logicalcluster.Name(cluster), Shard: shard}
}

func held(name, parent, workspace string) *tree.Cluster {
	return &tree.Cluster{Name: logicalcluster.Name(name), Parent: logicalcluster.Name(parent), Workspace: workspace}
}

// The installation has root:org:team, with each workspace on another shard, root:org:mount, and the home of a user with a workspace.
func answers() map[string]tree.Answer {
	toOrg := tree.Answer{Edges: []tree.Edge{edge("root", "org", "org", "eu")}, Shard: "eu", Rest: "org"}
	toTeam, toNone := toOrg, toOrg
	toTeam.Rest, toNone.Rest = "org:team", "org:none"
	toMount, toBelow := toOrg, toOrg
	toMount.Rest, toBelow.Rest = "org:mount", "org:mount:below"
	mounted := tree.Answer{Edges: []tree.Edge{{Parent: "org", Name: "mount", URL: "https://example.org"}}}
	return map[string]tree.Answer{
		"root root": {Cluster: held("root", "", "")}, "root root:org": toOrg, "root root:org:team": toTeam, "root root:org:none": toNone,
		"root root:org:mount": toMount, "root root:org:mount:below": toBelow, "eu org:mount": mounted, "eu org:mount:below": mounted,
		"root root:none": {}, "eu org": {Cluster: held("org", "root", "org")}, "eu org:none": {},
		"eu org:team":  {Edges: []tree.Edge{edge("org", "team", "team", "us")}, Shard: "us", Rest: "team"},
		"us team":      {Cluster: held("team", "org", "team")},
		"eu home:mine": {Edges: []tree.Edge{edge("home", "mine", "in-home", "")}, Cluster: held("in-home", "home", "mine")},
	}
}

func TestAPathIsFollowedFromShardToShard(t *testing.T) {
	for name, c := range map[string]struct {
		path   string
		change func(*installation)
		want   logicalcluster.Name // empty: there is none
		retry  bool
	}{
		"root":                     {path: "root", want: "root"},
		"an organization":          {path: "root:org", want: "org"},
		"over three shards":        {path: "root:org:team", want: "team"},
		"from a known cluster":     {path: "org:team", want: "team"},
		"in a home":                {path: "home:mine", want: "in-home"},
		"absent in root":           {path: "root:none"},
		"absent on another shard":  {path: "root:org:none"},
		"a mount":                  {path: "root:org:mount"},
		"below a mount":            {path: "root:org:mount:below"},
		"of no shard":              {path: "unknown:team"},
		"not a path":               {path: "root::org"},
		"a shard does not respond": {"root:org:team", func(i *installation) { i.failures["us"] = errCut }, "", true},
		"the search fails":         {"home:mine", func(i *installation) { i.failures["search"] = errCut }, "", true},
		"a shard lost the parent":  {"root:org:none", func(i *installation) { i.answers["eu org"] = tree.Answer{} }, "", true},
		"the holder has lost it":   {"org:none", func(i *installation) { i.answers["eu org"] = tree.Answer{} }, "", true},
		"the cluster has moved on": {"root:org", func(i *installation) {
			i.answers["eu org"] = tree.Answer{Shard: "us", Rest: "org"}
			i.answers["us org"] = tree.Answer{Cluster: held("org", "root", "org")}
		}, "org", false},
		"of another owner":        {"root:org:team", func(i *installation) { i.answers["us team"] = tree.Answer{Cluster: held("team", "other", "team")} }, "", true},
		"the parent is another's": {"root:org:team", func(i *installation) { i.answers["eu org"] = tree.Answer{Cluster: held("org", "root", "other")} }, "", true},
		"an answer about another": {"root:org", func(i *installation) {
			i.answers["root root:org"] = tree.Answer{Edges: []tree.Edge{edge("root", "other", "org", "eu")}, Shard: "eu", Rest: "org"}
			i.answers["eu org"] = tree.Answer{Cluster: held("org", "root", "other")}
		}, "", true},
		"a question about another": {"root:org:team", func(i *installation) {
			i.answers["root root:org:team"] = tree.Answer{Edges: []tree.Edge{edge("root", "org", "org", "eu")}, Shard: "eu", Rest: "victim:team"}
			i.answers["eu victim:team"] = tree.Answer{Edges: []tree.Edge{edge("victim", "team", "stolen", "")}, Cluster: held("stolen", "victim", "team")}
		}, "", true},
		"the shards send in circle": {"root:org", func(i *installation) {
			i.answers["eu org"] = tree.Answer{Shard: "us", Rest: "org"}
			i.answers["us org"] = tree.Answer{Shard: "eu", Rest: "org"}
		}, "", true},
	} {
		i := &installation{answers: answers(), failures: map[string]error{}}
		if c.change != nil {
			c.change(i)
		}
		got, ok, err := i.finder(clocktesting.NewFakePassiveClock(time.Now())).Locate(t.Context(), c.path)
		if got != c.want || ok != (c.want != "") || references.IsRetriable(err) != c.retry || (err != nil) != c.retry {
			t.Errorf("%s: got %q, %v, %v after %v", name, got, ok, err, i.asked)
		}
	}
}

func TestTheHolderOfAClusterSaysWhetherAnObjectExists(t *testing.T) {
	for name, c := range map[string]struct {
		in     logicalcluster.Name
		object string
		fails  map[string]error
		want   bool
		retry  bool
		asked  string
	}{
		"exists":                {"org", "it", nil, true, false, "eu org/it"},
		"absent":                {"org", "other", nil, false, false, "eu org/other"},
		"found by a search":     {"home", "it", nil, true, false, "eu home/it"},
		"of no shard":           {"unknown", "it", nil, false, false, ""},
		"of this shard":         {"mine", "it", nil, false, false, "own mine/it"},
		"of another server":     {"just-created", "it", nil, true, false, "own just-created/it"},
		"the storage fails":     {"home", "it", map[string]error{"own": apierrors.NewTooManyRequests("busy", 1)}, false, true, ""},
		"no response":           {"org", "it", map[string]error{"eu": errCut}, false, true, "eu org/it"},
		"not the holder":        {"org", "it", map[string]error{"eu": apierrors.NewBadRequest("not mine")}, false, true, "eu org/it"},
		"busy":                  {"org", "it", map[string]error{"eu": apierrors.NewTooManyRequests("busy", 1)}, false, true, "eu org/it"},
		"the search fails":      {"home", "it", map[string]error{"search": errCut}, false, true, ""},
		"the search is limited": {"home", "it", map[string]error{"search": apierrors.NewTooManyRequests("busy", 1)}, false, true, ""},
	} {
		i := &installation{exists: map[string]bool{"eu org/it": true, "eu home/it": true, "own just-created/it": true}, failures: c.fails}
		i.answers = map[string]tree.Answer{"own just-created": {Cluster: held("just-created", "org", "new")}}
		got, err := i.finder(clocktesting.NewFakePassiveClock(time.Now())).Has(t.Context(), c.in, schema.GroupResource{}, c.object)
		if got != c.want || references.IsRetriable(err) != c.retry || (err != nil) != c.retry || strings.Join(i.asked, ",") != c.asked {
			t.Errorf("%s: got %v, %v after %v", name, got, err, i.asked)
		}
	}
}

func TestWhatWasFoundByItsPathIsNotSearched(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	i := &installation{answers: answers(), failures: map[string]error{}, exists: map[string]bool{"us team/it": true}}
	f := i.finder(clock)
	ctx := logicalcluster.WithName(request.WithUser(t.Context(), &user.DefaultInfo{Name: "ada"}), "consumer")
	if _, _, err := f.Locate(ctx, "root:org:team"); err != nil {
		t.Fatal(err)
	}
	if shard, err := f.Holder(ctx, "team"); shard != "us" || err != nil || len(i.searched) > 0 {
		t.Errorf("got %q, %v after the searches %v", shard, err, i.searched)
	}
	i.failures["us"] = apierrors.NewBadRequest("it has moved")
	if _, err := f.Has(ctx, "team", schema.GroupResource{}, "it"); err == nil {
		t.Error("a shard that does not hold the cluster is believed")
	}
	_, _ = f.Holder(ctx, "team")
	if !slices.Equal(i.searched, []string{"team for user ada in consumer"}) {
		t.Errorf("after a refusal, the searches are %v", i.searched)
	}
	clock.SetTime(clock.Now().Add(locatedFor + time.Second))
	if _, ok := f.located.Get(logicalcluster.Name("team")); ok {
		t.Error("the shard counts for ever")
	}
}

// A client that sends questions without an end gets 429, and others do not.
func TestATenantExhaustsOnlyItsOwnLimits(t *testing.T) {
	ask := func(f *Finder, name string, cluster logicalcluster.Name) error {
		ctx := logicalcluster.WithName(request.WithUser(context.Background(), &user.DefaultInfo{Name: name}), cluster)
		_, err := f.Has(ctx, "org", schema.GroupResource{}, "it")
		return err
	}
	i := &installation{}
	f := i.finder(clocktesting.NewFakePassiveClock(time.Now()))
	exhaust := func(name func(int) string, limit int) {
		t.Helper()
		for n := range limit {
			if err := ask(f, name(n), "evil"); err != nil {
				t.Fatalf("question %d: %v", n, err)
			}
		}
		if err := ask(f, name(limit), "evil"); !apierrors.IsTooManyRequests(err) {
			t.Errorf("after %d questions: got %v", limit, err)
		}
	}
	exhaust(func(int) string { return "eve" }, clientBurst)
	eve := logicalcluster.WithName(request.WithUser(context.Background(), &user.DefaultInfo{Name: "eve"}), "evil")
	if _, exists, err := f.Locate(eve, "root:org"); exists || !apierrors.IsTooManyRequests(err) {
		t.Errorf("a path: got %t, %v", exists, err)
	}
	if shard, err := f.Holder(eve, "home"); shard != "" || !apierrors.IsTooManyRequests(err) {
		t.Errorf("the holder of an unknown cluster: got %q, %v", shard, err)
	}
	if shard, err := f.Holder(eve, "org"); shard != "eu" || err != nil {
		t.Errorf("the holder of a known cluster: got %q, %v", shard, err)
	}
	exhaust(func(n int) string { return strings.Repeat("x", n+1) }, payerBurst-clientBurst)
	if err := ask(f, "ada", "good"); err != nil {
		t.Errorf("another tenant gets %v", err)
	}
}

func TestTheLimitOfAnotherShardIsThatOfTheClient(t *testing.T) {
	i := &installation{failures: map[string]error{"eu": apierrors.NewTooManyRequests("later", 1)}}
	f := i.finder(clocktesting.NewFakePassiveClock(time.Now()))
	if _, err := f.Has(t.Context(), "org", schema.GroupResource{}, "it"); !apierrors.IsTooManyRequests(err) {
		t.Errorf("got %v", err)
	}
}

// existing reads objects in the cluster b.
type existing map[string]error

func (e existing) Get(ctx context.Context, name string, _ runtime.Object) error {
	if cluster, err := logicalcluster.NameFrom(ctx); err != nil || cluster != "b" {
		return errors.New("in another cluster")
	}
	if err, ok := e[name]; ok {
		return err
	}
	return apierrors.NewNotFound(schema.GroupResource{}, name)
}

func TestAShardAnswersOnlyForWhatItHoldsAndOffers(t *testing.T) {
	a := NewAnswers(func(_ context.Context, _ peers.Identity, c logicalcluster.Name) (bool, error) {
		if c == "busy" {
			return false, apierrors.NewTooManyRequests("busy", 1)
		}
		return c == "b", nil
	}, Kind{Resource: apisv1alpha2.Resource("apiexports"), New: func() runtime.Object { return &apisv1alpha2.APIExport{} },
		Stored: existing{"it": nil, "broken": errors.New("broken")}})
	for name, c := range map[string]struct {
		q      Question
		want   bool
		failed func(error) bool
	}{
		"exists":               {Question{"b", "apis.kcp.io", "apiexports", "it"}, true, nil},
		"absent":               {Question{"b", "apis.kcp.io", "apiexports", "other"}, false, nil},
		"of another shard":     {Question{"a", "apis.kcp.io", "apiexports", "it"}, false, apierrors.IsBadRequest},
		"a Secret":             {Question{"b", "", "secrets", "it"}, false, apierrors.IsBadRequest},
		"no name":              {Question{"b", "apis.kcp.io", "apiexports", ""}, false, apierrors.IsBadRequest},
		"the storage fails":    {Question{"b", "apis.kcp.io", "apiexports", "broken"}, false, func(err error) bool { return err.Error() == "broken" }},
		"it is not known here": {Question{"busy", "apis.kcp.io", "apiexports", "it"}, false, apierrors.IsTooManyRequests},
	} {
		got, err := a.Exists(t.Context(), peers.Identity{}, c.q)
		if got.Exists != c.want || (err != nil) != (c.failed != nil) || (c.failed != nil && !c.failed(err)) {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
}

func TestQuestionsToOtherShardsTakeNoSeat(t *testing.T) {
	for name, ask := range map[string]func(context.Context, *Finder) error{
		"a path": func(ctx context.Context, f *Finder) error {
			_, _, err := f.Locate(ctx, "org:team")
			return err
		},
		"an object": func(ctx context.Context, f *Finder) error {
			_, err := f.Has(ctx, "org", apisv1alpha2.Resource("apiexports"), "books")
			return err
		},
		"the holder": func(ctx context.Context, f *Finder) error {
			_, err := f.Holder(ctx, "home")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			i := &installation{answers: answers()}
			f := i.finder(clocktesting.NewFakePassiveClock(time.Now()))
			fairqueuetest.WhileOthersWait(t, func(ctx context.Context, seated <-chan struct{}) {
				i.until = seated
				if err := ask(ctx, f); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestAHolderThatIsKnownTakesNoSeatAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := (&installation{answers: answers()}).finder(clocktesting.NewFakePassiveClock(time.Now()))
		f.located.Add(logicalcluster.Name("home"), "eu", locatedFor)
		q := fairqueue.New(fairqueue.Config{Seats: 1, Patience: time.Hour, Place: func(h fairqueue.Holder) fairqueue.Place {
			return fairqueue.Place{Account: h.Cluster, Unit: h.Cluster, Owner: h.Cluster}
		}})
		first, other, seated := &fairqueue.Ticket{}, &fairqueue.Ticket{}, make(chan error, 1)
		if err := q.Enter(t.Context(), fairqueue.Holder{Cluster: "first"}, fairqueue.Read, first); err != nil {
			t.Fatal(err)
		}
		go func() { seated <- q.Enter(t.Context(), fairqueue.Holder{Cluster: "other"}, fairqueue.Read, other) }()
		synctest.Wait()
		ctx := context.WithValue(t.Context(), fairqueue.Key, first)
		for _, cluster := range []logicalcluster.Name{"home", "org", logicalcluster.Root} {
			if shard, err := f.Holder(ctx, cluster); err != nil || shard == "" {
				t.Errorf("the holder of %s is %q, %v", cluster, shard, err)
			}
			if synctest.Wait(); len(seated) > 0 {
				t.Fatalf("asking for %s, the request loses its seat", cluster)
			}
		}
		first.Leave()
		if err := <-seated; err != nil {
			t.Error(err)
		}
		other.Leave()
	})
}
