package cacheserver

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	testclock "k8s.io/utils/clock/testing"

	"github.com/kcplane/kcp/server/internal/storage"
)

// leads adds the headers of a leader to the requests of a client. The term may be followed by a slash and the round.
func leads(config *rest.Config, incarnation, term string) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			r = r.Clone(r.Context())
			r.Header.Set(IncarnationHeader, incarnation)
			term, round, _ := strings.Cut(term, "/")
			r.Header.Set(LeaderTermHeader, term)
			r.Header.Set(LeaderRoundHeader, round)
			return next.RoundTrip(r)
		})
	})
	return config
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// replica starts another cache server with the etcd of s, for the shards of s.
func (s *server) replica(t *testing.T) *server {
	t.Helper()
	return start(t, func(c *Config) { c.Backend, c.Peers = s.handler.config.Backend, s.peers })
}

func TestADelayedWriteOfAFormerLeaderDoesNotBringADeletedObjectBack(t *testing.T) {
	first := start(t, nil)
	for name, second := range map[string]*server{"of one server": first, "of another replica": first.replica(t)} {
		t.Run(name, func(t *testing.T) {
			shard := map[bool]string{true: "alpha", false: "beta"}[second == first]
			atFirst := first.shard(t, shard)
			atSecond := rest.CopyConfig(atFirst)
			atSecond.Host, atSecond.CAData = second.URL, second.peers.PEM
			former := in(t, leads(atFirst, "a", "5"), shard, "one").Resource(exports)
			created := create(t, former, object("things", nil))
			latter := in(t, leads(atSecond, "a", "6"), shard, "one").Resource(exports)
			if err := latter.Delete(t.Context(), "things", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			if _, err := former.Create(t.Context(), object("things", nil), metav1.CreateOptions{}); !apierrors.IsConflict(err) {
				t.Errorf("a creation by the former leader: %v", err)
			}
			if _, err := former.Update(t.Context(), created, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
				t.Errorf("an update by the former leader: %v", err)
			}
			create(t, latter, object("others", nil))
			if err := former.Delete(t.Context(), "others", metav1.DeleteOptions{}); !apierrors.IsConflict(err) {
				t.Errorf("a deletion by the former leader: %v", err)
			}
			list, err := latter.List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got, want := names(list), []string{shard + "/one/others"}; !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

func TestADelayedWriteOfTheSameLeaderDoesNotBringADeletedObjectBack(t *testing.T) {
	s := start(t, nil)
	first := in(t, leads(s.shard(t, "alpha"), "a", "5/1"), "alpha", "one").Resource(exports)
	create(t, first, object("things", nil))
	create(t, first, object("others", nil))
	second := in(t, leads(s.shard(t, "alpha"), "a", "5/2"), "alpha", "one").Resource(exports)
	if err := second.Delete(t.Context(), "things", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Create(t.Context(), object("things", nil), metav1.CreateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("a creation of the round before: %v", err)
	}
	if err := first.Delete(t.Context(), "others", metav1.DeleteOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("a deletion of the round before: %v", err)
	}
	list, err := second.List(t.Context(), metav1.ListOptions{})
	if err != nil || !slices.Equal(names(list), []string{"alpha/one/others"}) {
		t.Errorf("got %v, %v", names(list), err)
	}
}

func TestAWriteThatWasAcceptedBeforeALaterLeaderBeganIsNotExecuted(t *testing.T) {
	s := start(t, nil)
	p := s.handler.parts
	claims := func(term uint64) claim { return claim{"a", term, 0} }
	if err := p.claim(t.Context(), "alpha", claims(5)); err != nil {
		t.Fatal(err)
	}
	exported, _ := s.handler.resources.get(target{group: exports.Group, version: exports.Version, resource: exports.Resource})
	place := target{place: storage.Place{Shard: "alpha", Cluster: "one"}}
	attempts := 0
	_, err := p.write(t.Context(), place, claims(5), "create", func(ctx context.Context) (*unstructured.Unstructured, error) {
		attempts++
		other := newParts(s.handler.config.Backend, s.handler.config.Clock) // another replica
		if err := other.claim(ctx, "alpha", claims(6)); err != nil {
			return nil, err
		}
		ctx = storage.WithPlace(ctx, place.place)
		return exported.create(ctx, []byte(`{"apiVersion":"apis.kcp.io/v1alpha2","kind":"APIExport","metadata":{"name":"x"}}`), metav1.Now())
	})
	if !apierrors.IsConflict(err) || attempts != 1 {
		t.Errorf("got error %v after %d attempts, want a conflict after one", err, attempts)
	}
	list, err := in(t, s.shard(t, "reader"), "*", "*").Resource(exports).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 0 {
		t.Errorf("got objects %v, error %v", names(list), err)
	}
}

func TestAReadOfALeaderEndsTheTermBefore(t *testing.T) {
	s := start(t, nil)
	former := in(t, leads(s.shard(t, "alpha"), "a", "5"), "alpha", "one").Resource(exports)
	create(t, former, object("things", nil))
	later := in(t, leads(s.shard(t, "alpha"), "a", "6"), "alpha", "*").Resource(exports)
	if _, err := later.List(t.Context(), metav1.ListOptions{Limit: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := former.Create(t.Context(), object("late", nil), metav1.CreateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("a creation by the former leader: %v", err)
	}
}

func TestOnlyAShardClaimsItsOwnPart(t *testing.T) {
	s := start(t, nil)
	for name, c := range map[string]dynamic.Interface{
		"of another shard": in(t, leads(s.shard(t, "beta"), "b", "9"), "alpha", "one"),
		"of all shards":    in(t, leads(s.shard(t, "alpha"), "b", "9"), "*", "one"),
	} {
		if _, err := c.Resource(exports).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("a claim for the part %s: %v", name, err)
		}
	}
	for _, term := range []string{"", "-1", "x"} {
		_, err := in(t, leads(s.shard(t, "alpha"), "a", term), "alpha", "one").Resource(exports).List(t.Context(), metav1.ListOptions{})
		if !apierrors.IsBadRequest(err) {
			t.Errorf("the term %q: %v", term, err)
		}
	}
	create(t, in(t, leads(s.shard(t, "alpha"), "a", "1"), "alpha", "one").Resource(exports), object("things", nil))
}

func TestLeadersFollowEachOther(t *testing.T) {
	p, now := part{}, began
	turn := func(incarnation string, term, round uint64, want bool) {
		t.Helper()
		is, err := p.accept(claim{incarnation, term, round}, now)
		if (err == nil) != want {
			t.Errorf("%s/%d/%d after %s/%d/%d: %v", incarnation, term, round, p.Incarnation, p.Term, p.Round, err)
		}
		p = is
	}
	step := func(incarnation string, term uint64, want bool) {
		t.Helper()
		turn(incarnation, term, 1, want)
	}
	step("a", 5, true)
	step("a", 4, false)
	step("a", 5, true)
	turn("a", 5, 3, true)
	turn("a", 5, 2, false)
	step("a", 6, true) // rounds begin again in each term
	turn("a", 6, 2, true)
	turn("a", 6, 1, false)
	step("b", 1, true)  // a restored store begins again
	step("a", 9, false) // the store that it has replaced
	now = now.Add(deletionGrace - time.Second)
	step("a", 9, false)
	now = now.Add(time.Second)
	step("a", 9, true)
	for n := range uint64(100) {
		step(fmt.Sprint("store-", n), n, true)
	}
	if got := len(p.Replaced); got != maxReplaced {
		t.Errorf("%d replaced stores are recorded, want %d", got, maxReplaced)
	}
	if size := len(p.encode()); size > 4<<10 {
		t.Errorf("the record of a shard has %d bytes", size)
	}
}

// shardObject returns a Shard.
func shardObject(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "core.kcp.io/v1alpha1", "kind": "Shard", "metadata": map[string]any{"name": name},
	}}
}

func TestTheRemovalOfAShardPurgesItsPart(t *testing.T) {
	s := start(t, nil)
	registry := in(t, s.shard(t, "root"), "root", "root").Resource(shards)
	west := leads(s.shard(t, "west"), "a", "7")
	for _, name := range []string{"west", "west-2"} {
		create(t, registry, shardObject(name))
	}
	for n := range 2*3 + 1 {
		create(t, in(t, west, "west", "one").Resource(exports), object(fmt.Sprint("things-", n), nil))
	}
	cached := exports
	cached.Group, cached.Version, cached.Resource = "example.com", "v1", "things:abc"
	create(t, in(t, west, "west", "two").Resource(cached), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Thing", "metadata": map[string]any{"name": "x"}}})
	create(t, in(t, s.shard(t, "west-2"), "west-2", "one").Resource(exports), object("kept", nil))

	if err := registry.Delete(t.Context(), "west", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	late := in(t, west, "west", "one").Resource(exports)
	if _, err := late.Create(t.Context(), object("late", nil), metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a write of a removed shard: %v", err)
	}
	if _, err := registry.Create(t.Context(), shardObject("west"), metav1.CreateOptions{}); !apierrors.IsTooManyRequests(err) {
		t.Errorf("the creation of a shard whose part is not purged yet: %v", err)
	}
	if err := s.replica(t).handler.parts.purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	found, err := client.Get(t.Context(), "/"+t.Name()+"/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range found.Kvs {
		if strings.Contains(string(kv.Key), "/west/") {
			t.Errorf("the key %s is still there", kv.Key)
		}
	}
	list, err := in(t, s.shard(t, "reader"), "*", "*").Resource(exports).List(t.Context(), metav1.ListOptions{})
	if err != nil || !slices.Equal(names(list), []string{"west-2/one/kept"}) {
		t.Errorf("got %v, error %v", names(list), err)
	}

	create(t, registry, shardObject("west"))
	again := in(t, leads(s.shard(t, "west"), "b", "1"), "west", "one").Resource(exports)
	create(t, again, object("fresh", nil))
	if err := s.handler.parts.purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := again.Get(t.Context(), "fresh", metav1.GetOptions{}); err != nil {
		t.Errorf("what a shard offers that came back: %v", err)
	}
	if _, err := late.Create(t.Context(), object("late", nil), metav1.CreateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("a delayed write of the store before: %v", err)
	}
}

func TestOnlyTheDeletionOfAShardObjectByRootPurges(t *testing.T) {
	s := start(t, nil)
	create(t, in(t, s.shard(t, "west"), "west", "one").Resource(exports), object("things", nil))
	create(t, in(t, s.shard(t, "root"), "root", "one").Resource(exports), object("things", nil))
	// A shard that forges the Shard object of another one, root in another cluster, the Shard of root, and one that is not there.
	for _, at := range [][3]string{{"beta", "root", "west"}, {"root", "other", "west"}, {"root", "root", "root"}} {
		c := in(t, s.shard(t, at[0]), at[0], at[1]).Resource(shards)
		create(t, c, shardObject(at[2]))
		if err := c.Delete(t.Context(), at[2], metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	err := in(t, s.shard(t, "root"), "root", "root").Resource(shards).Delete(t.Context(), "west", metav1.DeleteOptions{})
	if !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	if err := s.handler.parts.purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	list, err := in(t, s.shard(t, "reader"), "*", "*").Resource(exports).List(t.Context(), metav1.ListOptions{})
	if err != nil || !slices.Equal(names(list), []string{"root/one/things", "west/one/things"}) {
		t.Errorf("got %v, error %v", names(list), err)
	}
}

func TestAnInterruptedPurgeContinues(t *testing.T) {
	s := start(t, func(c *Config) { c.Clock = testclock.NewFakeClock(began) })
	registry := in(t, s.shard(t, "root"), "root", "root").Resource(shards)
	create(t, registry, shardObject("west"))
	create(t, in(t, s.shard(t, "west"), "west", "one").Resource(exports), object("things", nil))
	if err := registry.Delete(t.Context(), "west", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.handler.parts.purge(ctx); err == nil {
		t.Fatal("an interrupted purge reports no error")
	}
	if err := newParts(s.handler.config.Backend, s.handler.config.Clock).purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	list, err := in(t, s.shard(t, "reader"), "*", "*").Resource(exports).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 0 {
		t.Errorf("got %v, error %v", names(list), err)
	}
}
