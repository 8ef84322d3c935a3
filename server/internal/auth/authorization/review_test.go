package authorization

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kcplane/kcp/server/internal/process/fairqueue/fairqueuetest"
	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// reviewing is shard eu, whose own decision and that of shard us, which holds cluster b, the test sets.
type reviewing struct {
	authorizer.Authorizer
	own, us authorizer.Decision
	err     error
	found   string // the shard that Find returns
	findErr error
	asked   []ReviewQuestion
	until   <-chan struct{} // closed when shard us may respond; nil if it may do so at once
	deep    bool            // whether the last own decision was deep
	clock   *clocktesting.FakeClock
}

func newReviewing() *reviewing {
	r := &reviewing{own: noOpinion, us: noOpinion, clock: clocktesting.NewFakeClock(time.Now())}
	r.Authorizer = NewReviews(ReviewsConfig{
		Shard: "eu", Clock: r.clock,
		Holder: func(cluster logicalcluster.Name) (string, uint64, bool) {
			shard, known := map[logicalcluster.Name]string{"a": "eu", "b": "us"}[cluster]
			return shard, 1, known
		},
		Holds:      func(cluster logicalcluster.Name) bool { return cluster == "a" || cluster == "own, but not placed" },
		Find:       func(context.Context, logicalcluster.Name) (string, error) { return r.found, r.findErr },
		Unanswered: func(_ string, _ logicalcluster.Name, err error) error { return fmt.Errorf("unanswered: %w", err) },
		Ask: func(ctx context.Context, _ string, q ReviewQuestion) (ReviewAnswer, error) {
			if r.until != nil {
				select {
				case <-r.until:
				case <-ctx.Done():
				}
			}
			r.asked = append(r.asked, q)
			return ReviewAnswer{Allowed: r.us == allow}, r.err
		},
	}).Authorizer(authorizer.AuthorizerFunc(func(ctx context.Context, _ authorizer.Attributes) (authorizer.Decision, string, error) {
		r.deep = IsDeepReview(ctx)
		return r.own, "", nil
	}))
	return r
}

func attributes(verb, group, resource, subresource string) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: "alice", Groups: []string{"team"}, Extra: map[string][]string{ScopesKey: {"cluster:b"}}},
		Verb: verb, APIGroup: group, Resource: resource, Subresource: subresource, Name: "x", ResourceRequest: true,
	}
}

var (
	bindExport = attributes("bind", "apis.kcp.io", "apiexports", "")
	using      = attributes("use", "tenancy.kcp.io", "workspacetypes", "")
	getContent = attributes("get", "apis.kcp.io", "apiexports", "content")
	initialize = attributes("initialize", "tenancy.kcp.io", "workspacetypes", "")
)

func TestTheHolderDecidesAboutItsExportsAndTypes(t *testing.T) {
	for name, c := range map[string]struct {
		a     authorizer.AttributesRecord
		in    logicalcluster.Name
		asked bool
	}{
		"bind":                         {bindExport, "b", true},
		"bind a cached resource":       {attributes("bind", "cache.kcp.io", "clustercachedresources", ""), "b", true},
		"use":                          {using, "b", true},
		"content":                      {getContent, "b", true},
		"initialize":                   {initialize, "b", true},
		"terminate":                    {attributes("terminate", "tenancy.kcp.io", "workspacetypes", ""), "b", true},
		"bind in this shard's cluster": {bindExport, "a", false},
		"bind in an unknown cluster":   {bindExport, "c", false},
		"get an export":                {attributes("get", "apis.kcp.io", "apiexports", ""), "b", false},
		"every verb":                   {attributes("*", "apis.kcp.io", "apiexports", ""), "b", false},
		"use an export":                {attributes("use", "apis.kcp.io", "apiexports", ""), "b", false},
		"bind in another group":        {attributes("bind", "example.com", "apiexports", ""), "b", false},
		"get a secret":                 {attributes("get", "", "secrets", ""), "b", false},
	} {
		r := newReviewing()
		r.us = allow
		decision, _, err := r.Authorize(logicalcluster.WithName(context.Background(), c.in), c.a)
		if (decision == allow) != c.asked || err != nil || (len(r.asked) == 1) != c.asked {
			t.Errorf("%s: got %v after %d questions, %v", name, decision, len(r.asked), err)
		}
		if c.asked && (r.asked[0].User.User != "alice" || len(r.asked[0].User.Groups) != 1 || len(r.asked[0].User.Extra[ScopesKey]) != 1) {
			t.Errorf("%s: the question is about %+v", name, r.asked[0].User)
		}
		r.us, r.own = noOpinion, allow
		r.clock.Step(2 * reviewTTL)
		if decision, _, _ := r.Authorize(logicalcluster.WithName(context.Background(), c.in), c.a); (decision == allow) == c.asked {
			t.Errorf("%s, refused by the holder: got %v", name, decision)
		}
	}
}

// The feed has not brought where a cluster is, which another shard has just created.
func TestTheHolderIsFoundIfTheFeedDoesNotKnowIt(t *testing.T) {
	late := apierrors.NewServiceUnavailable("cut")
	for name, c := range map[string]struct {
		in      logicalcluster.Name
		found   string
		err     error
		asked   bool
		decided authorizer.Decision
	}{
		"of another shard":          {"new", "us", nil, true, allow},
		"of no shard":               {"none", "", nil, false, noOpinion},
		"not found out":             {"new", "", late, false, noOpinion},
		"of this shard, not placed": {"own, but not placed", "us", nil, false, noOpinion},
		"of the system":             {"system:admin", "us", nil, false, noOpinion},
	} {
		r := newReviewing()
		r.us, r.found, r.findErr = allow, c.found, c.err
		decision, _, err := r.Authorize(logicalcluster.WithName(context.Background(), c.in), bindExport)
		if decision != c.decided || !errors.Is(err, c.err) || (len(r.asked) == 1) != c.asked {
			t.Errorf("%s: got %v, %v after %d questions", name, decision, err, len(r.asked))
		}
	}
}

func TestWithoutTheHolderNothingNewIsGrantedAndSettledUseGoesOn(t *testing.T) {
	cut := &peers.Unreachable{Shard: "us", Err: errors.New("cut")}
	for name, c := range map[string]struct {
		a    authorizer.AttributesRecord
		err  error
		want authorizer.Decision
	}{
		"bind":                  {bindExport, cut, noOpinion},
		"use":                   {using, cut, noOpinion},
		"content":               {getContent, cut, allow},
		"initialize":            {initialize, cut, allow},
		"content, but an error": {getContent, apierrors.NewBadRequest("no"), noOpinion},
	} {
		r := newReviewing()
		r.err, r.own = c.err, allow
		decision, _, err := r.Authorize(logicalcluster.WithName(context.Background(), "b"), c.a)
		if decision != c.want || (err == nil) != (c.want == allow) || (c.want == allow) != r.deep {
			t.Errorf("%s: got %v, %v, want %v", name, decision, err, c.want)
		}
	}
}

func TestAReviewByAnotherShardTakesNoSeat(t *testing.T) {
	r := newReviewing()
	r.us = allow
	fairqueuetest.WhileOthersWait(t, func(ctx context.Context, seated <-chan struct{}) {
		r.until = seated
		if decision, _, err := r.Authorize(logicalcluster.WithName(ctx, "b"), bindExport); decision != allow || err != nil {
			t.Errorf("got %v, %v", decision, err)
		}
	})
}

func TestAnAnswerAboutAViewCountsForTenSeconds(t *testing.T) {
	r := newReviewing()
	r.us = allow
	ctx := logicalcluster.WithName(context.Background(), "b")
	for i, want := range []int{1, 1, 2} {
		if i == 2 {
			r.clock.Step(reviewTTL + time.Second)
		}
		if _, _, err := r.Authorize(ctx, getContent); err != nil || len(r.asked) != want {
			t.Errorf("request %d: %d questions, want %d, %v", i, len(r.asked), want, err)
		}
	}
	other := getContent
	other.User = &user.DefaultInfo{Name: "bob"}
	if _, _, _ = r.Authorize(ctx, other); len(r.asked) != 3 {
		t.Error("the answer about alice counts for bob")
	}
	for range 2 {
		_, _, _ = r.Authorize(ctx, bindExport)
	}
	if len(r.asked) != 5 {
		t.Errorf("%d questions, want one for each binding", len(r.asked))
	}
}

func TestAShardReviewsOnlyWhatIsListedAndItsOwn(t *testing.T) {
	var got authorizer.Attributes
	deep := false
	review := Review(authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		got, deep = a, IsDeepReview(ctx)
		return allow, "", nil
	}), func(_ context.Context, caller peers.Identity, c logicalcluster.Name) (bool, error) {
		if c == "late" {
			return false, apierrors.NewTooManyRequests("later", 1)
		}
		return c == "b" && caller.Name == "eu", nil
	})
	_, err := review(context.Background(), peers.Identity{Kind: peers.Shard, Name: "eu"}, questionOf(context.Background(), "late", bindExport))
	if !apierrors.IsTooManyRequests(err) {
		t.Errorf("without knowing whether it holds the cluster, the shard answers %v", err)
	}
	for name, c := range map[string]struct {
		a     authorizer.AttributesRecord
		in    logicalcluster.Name
		valid bool
		deep  bool
	}{
		"bind":             {bindExport, "b", true, true},
		"use":              {using, "b", true, true},
		"content":          {getContent, "b", true, false},
		"initialize":       {initialize, "b", true, false},
		"of another shard": {bindExport, "a", false, false},
		"get a secret":     {attributes("get", "", "secrets", ""), "b", false, false},
		"impersonate":      {attributes("impersonate", "", "users", ""), "b", false, false},
		"access":           {attributes("access", "apis.kcp.io", "apiexports", ""), "b", false, false},
	} {
		q := questionOf(context.Background(), c.in, c.a)
		answer, err := review(context.Background(), peers.Identity{Kind: peers.Shard, Name: "eu"}, q)
		if c.valid != (err == nil) || answer.Allowed != c.valid || (!c.valid && !apierrors.IsBadRequest(err)) {
			t.Errorf("%s: got %+v, %v", name, answer, err)
		}
		if c.valid && (deep != c.deep || got.GetUser().GetName() != "alice" || got.GetVerb() != c.a.Verb || got.GetSubresource() != c.a.Subresource) {
			t.Errorf("%s: the shard decides about %+v, deep %t", name, got, deep)
		}
	}
	for name, q := range map[string]ReviewQuestion{
		"no name": {Cluster: "b", User: warrant{User: "alice"}, Verb: "bind", Group: "apis.kcp.io", Resource: "apiexports"},
		"no user": {Cluster: "b", Verb: "bind", Group: "apis.kcp.io", Resource: "apiexports", Name: "x"},
	} {
		if _, err := review(context.Background(), peers.Identity{Kind: peers.Shard, Name: "eu"}, q); !apierrors.IsBadRequest(err) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// An error of this shard must not refuse the user.
func TestAReviewThatFailsDecidesNothing(t *testing.T) {
	review := Review(authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return noOpinion, "", errors.New("etcd is away")
	}), func(context.Context, peers.Identity, logicalcluster.Name) (bool, error) { return true, nil })
	if got, err := review(t.Context(), peers.Identity{}, questionOf(t.Context(), "b", bindExport)); err == nil {
		t.Errorf("got %+v", got)
	}
}

func TestAViewIsReviewedAgainAfterAFailure(t *testing.T) {
	r := newReviewing()
	ctx := logicalcluster.WithName(t.Context(), "b")
	r.err = &peers.Unreachable{Shard: "us", Err: errors.New("cut")}
	if decision, _, err := r.Authorize(ctx, getContent); decision != noOpinion || err != nil {
		t.Fatalf("got %v, %v", decision, err)
	}
	r.err, r.us = nil, allow
	if decision, _, err := r.Authorize(ctx, getContent); decision != allow || err != nil {
		t.Errorf("after the failure: got %v, %v", decision, err)
	}
}

func TestAGrantIsDecidedByAQuestionThatWasSentAfterTheRequestBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, answer := newReviewing(), make(chan struct{})
		r.until = answer
		authorize := func() chan authorizer.Decision {
			decided := make(chan authorizer.Decision, 1)
			go func() {
				decision, _, _ := r.Authorize(logicalcluster.WithName(t.Context(), "b"), bindExport)
				decided <- decision
			}()
			synctest.Wait()
			return decided
		}
		first, second := authorize(), authorize()
		answer <- struct{}{}
		if got := <-first; got != noOpinion {
			t.Errorf("the first request: got %v", got)
		}
		synctest.Wait()
		r.us = allow // the role was granted before the second question was answered
		close(answer)
		if got := <-second; got != allow {
			t.Errorf("the second request got the answer to an earlier question: %v", got)
		}
	})
}
