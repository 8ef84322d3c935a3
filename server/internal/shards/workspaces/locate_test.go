package workspaces

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	testingclock "k8s.io/utils/clock/testing"

	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// locating returns a locator of shard root, in an installation whose shard b has team.
func locating(t *testing.T) (*installation, *Locator) {
	t.Helper()
	i := start(t)
	lc := cluster(team, "root:org:team", org)
	lc.Annotations[tenancyv1alpha1.AncestorsAnnotation] = "root," + org
	i.shards["b"].Store(lc)
	i.shards["b"].Objects.Show(lc)
	return i, i.shards["root"].NewLocator(func() []string { return []string{"root", "a", "b"} })
}

func TestTheShardOfAClusterIsFoundByItsName(t *testing.T) {
	for _, hint := range []string{"", "a", "b", "none"} {
		i, l := locating(t)
		if got, err := l.Locate(t.Context(), team, "root", "client", hint); got != "b" || err != nil {
			t.Errorf("hint %q: got %q, %v", hint, got, err)
		}
		i.stop("b")
		if got, err := l.Locate(t.Context(), team, "root", "client", hint); got != "b" || err != nil {
			t.Errorf("again: got %q, %v", got, err)
		}
		i.clock.SetTime(i.clock.Now().Add(locatedFor + time.Second))
		if got, err := l.Locate(t.Context(), team, "root", "client", hint); got != "" || err == nil {
			t.Errorf("after 10 s: got %q, %v", got, err)
		}
	}
}

// Users may refer to a cluster, such as a home, before it exists and right after that.
func TestAClusterThatWasAbsentIsFoundWhenItExists(t *testing.T) {
	_, l := locating(t)
	l.absent.Add(logicalcluster.Name(team), true, locatedFor)
	if got, err := l.Locate(t.Context(), team, "root", "client", ""); got != "" || err != nil {
		t.Errorf("for a token: got %q, %v", got, err)
	}
	if got, err := l.LocateNow(t.Context(), team, "root", "client", ""); got != "b" || err != nil {
		t.Errorf("for a reference: got %q, %v", got, err)
	}
}

func TestAClusterIsAbsentOnlyAfterASearchThatBeganLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		searches, end := 0, make(chan struct{})
		l := New(Config{Clock: testingclock.NewFakePassiveClock(time.Now())}).NewLocator(func() []string {
			if searches++; searches == 1 {
				<-end
			}
			return nil
		})
		var done sync.WaitGroup
		for range 2 {
			done.Go(func() {
				if got, err := l.LocateNow(t.Context(), team, "root", "client", ""); got != "" || err != nil {
					t.Errorf("got %q, %v", got, err)
				}
			})
			synctest.Wait() // the second request waits for the search of the first one
		}
		close(end)
		done.Wait()
		if searches < 2 {
			t.Error("the second request got the absence of a search that began before it")
		}
	})
}

func TestAClusterIsFoundWhileTheShardThatItHasLeftIsDown(t *testing.T) {
	_, l := locating(t)
	l.shards = func() []string { return []string{"root", "a", "b", "gone"} }
	if got, err := l.Locate(t.Context(), team, "root", "client", "gone"); got != "b" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := l.Locate(t.Context(), "absentabsentabse", "root", "client", "gone"); got != "" || err == nil {
		t.Errorf("an absent cluster: got %q, %v", got, err)
	}
}

func TestAShardIsLocatedOnlyIfTheRecordsLeadToIt(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(*installation)
		absent  bool
	}{
		"a record that names another shard": {func(i *installation) {
			i.shards["a"].Store(workspace(org, "team", uid, "a", team))
		}, true},
		"a record of another cluster": {func(i *installation) {
			i.shards["a"].Store(workspace(org, "team", uid, "b", "otherotherotheo0"))
		}, false},
		"a cluster that has moved":      {func(i *installation) { i.shards["b"].left[team] = true }, true},
		"a shard that does not answer":  {func(i *installation) { i.stop("b") }, false},
		"a parent that does not answer": {func(i *installation) { i.stop("a") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			i, l := locating(t)
			tc.prepare(i)
			if got, err := l.Locate(t.Context(), team, "root", "client", ""); got != "" || (err == nil) != tc.absent {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

func TestAKnownClusterIsFoundBeyondTheLimits(t *testing.T) {
	i, l := locating(t)
	if got, err := l.Locate(t.Context(), team, "orgs", "client", ""); got != "b" || err != nil {
		t.Fatalf("got %q, %v", got, err)
	}
	exhaust := func() { // after all is forgotten
		i.clock.SetTime(i.clock.Now().Add(locatedFor + time.Second))
		for n := range serverBurst + 10 {
			name := logicalcluster.Name(fmt.Sprintf("invented%08d", n))
			_, _ = l.Locate(t.Context(), name, logicalcluster.Name(fmt.Sprint("asker", n%10)), fmt.Sprint("client", n), "")
		}
	}
	exhaust()
	if _, err := l.Locate(t.Context(), "absentabsentabse", "orgs", "client", ""); !apierrors.IsTooManyRequests(err) {
		t.Errorf("an unknown cluster: got %v", err)
	}
	if got, err := l.Locate(t.Context(), team, "orgs", "client", ""); got != "b" || err != nil {
		t.Errorf("the cluster that was found before: got %q, %v", got, err)
	}
	i.shards["b"].left[team] = true
	exhaust()
	if got, err := l.Locate(t.Context(), team, "orgs", "client", ""); got == "b" || !apierrors.IsTooManyRequests(err) {
		t.Errorf("after it has moved: got %q, %v", got, err)
	}
}

func TestSearchesAreLimited(t *testing.T) {
	_, l := locating(t)
	refused := func(asker logicalcluster.Name, hint string) (n int) {
		for i := range searchBurst + 10 {
			name := logicalcluster.Name(fmt.Sprintf("%s%012d", asker, i))
			if _, err := l.Locate(t.Context(), name, asker, fmt.Sprint(asker, i), hint); apierrors.IsTooManyRequests(err) {
				n++
			}
		}
		return n
	}
	if n := refused("root", ""); n != 10 {
		t.Errorf("the requests to one cluster were refused %d times, want 10", n)
	}
	if n := refused("orgs", ""); n != searchBurst+10 {
		t.Errorf("searches that ask every shard were refused %d times, want %d", n, searchBurst+10)
	}
	if got, err := l.Locate(t.Context(), team, "team", "client", "b"); got != "b" || err != nil {
		t.Errorf("a token with a hint, to another cluster: got %q, %v", got, err)
	}
}

func TestAClientThatInventsClustersDoesNotDelayOthers(t *testing.T) {
	i, l := locating(t)
	refused := 0
	for n := range 4 * serverBurst {
		name := logicalcluster.Name(fmt.Sprintf("invented%08d", n))
		if _, err := l.Locate(t.Context(), name, "orgs", "hostile", ""); apierrors.IsTooManyRequests(err) {
			refused++
		}
	}
	if want := 4*serverBurst - clientBurst; refused != want {
		t.Errorf("%d searches of the client were refused, want %d", refused, want)
	}
	if got, err := l.Locate(t.Context(), team, "orgs", "other", ""); got != "b" || err != nil {
		t.Errorf("another client in the same cluster: got %q, %v", got, err)
	}
	for n := range maxLocated {
		l.absent.Add(logicalcluster.Name(fmt.Sprintf("invented%08d", n)), true, locatedFor)
	}
	i.stop("b")
	if got, err := l.Locate(t.Context(), team, "orgs", "other", ""); got != "b" || err != nil {
		t.Errorf("a known cluster after many that do not exist: got %q, %v", got, err)
	}
	if got, err := l.Locate(t.Context(), team, "orgs", "hostile", ""); got != "b" || err != nil {
		t.Errorf("a known cluster, for the client beyond its limit: got %q, %v", got, err)
	}
}
