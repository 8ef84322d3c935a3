package authentication

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kcplane/kcp/server/internal/shards/peers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// twoShards are the shard eu, which receives requests, and the shard us, which holds cluster b.
type twoShards struct {
	*Verdicts
	eu, us authority
	clock  *clocktesting.FakeClock
	placed map[logicalcluster.Name]string
	asked  []string
	// located is the answer of Locate by cluster, hints what it got.
	located map[logicalcluster.Name]string
	hints   []string
	lost    error
	err     error
	answer  *Verdict // instead of that of us
}

func newTwoShards(t *testing.T) *twoShards {
	t.Helper()
	s := &twoShards{eu: newAuthority(t, accounts{"a": "1"}), us: newAuthority(t, accounts{"b": "2"}), clock: clocktesting.NewFakeClock(time.Now())}
	s.placed = map[logicalcluster.Name]string{"a": "eu", "b": "us"}
	judge := Judge(Wrap(s.us.upstream), func(c logicalcluster.Name) bool { return c == "b" })
	s.Verdicts = NewVerdicts(VerdictsConfig{
		Shard: "eu", Clock: s.clock, Serializer: legacyscheme.Codecs,
		IsProxy: func(r *http.Request) bool { return r.RemoteAddr == proxyAddress },
		Holds:   func(cluster logicalcluster.Name) bool { return cluster == "a" },
		Locate: func(_ context.Context, cluster, asker logicalcluster.Name, _, hint string) (string, error) {
			s.hints = append(s.hints, fmt.Sprintf("%s for %s at %q", cluster, asker, hint))
			return s.located[cluster], s.lost
		},
		Holder: func(cluster logicalcluster.Name) (string, uint64, bool) {
			shard, known := s.placed[cluster]
			return shard, 1, known
		},
		Ask: func(ctx context.Context, shard string, q TokenQuestion) (Verdict, error) {
			s.asked = append(s.asked, shard)
			switch {
			case s.err != nil:
				return Verdict{}, s.err
			case s.answer != nil:
				return *s.answer, nil
			}
			return judge(ctx, peers.Identity{Kind: peers.Shard, Name: "eu"}, q)
		},
	})
	return s
}

// login sends a request to eu, and returns the user with the cluster, or the status of the refusal.
func (s *twoShards) login(t *testing.T, headers ...string) string {
	t.Helper()
	result := "401"
	h := s.WithVerdict(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		response, ok, err := union.New(Wrap(s.eu.upstream), s.Authenticator()).AuthenticateRequest(r)
		if ok && err == nil {
			result = response.User.GetName() + " " + fmt.Sprint(response.User.GetExtra()[logicalcluster.UserExtraKey], response.User.GetGroups())
			if r.Header.Get("Authorization") != "" {
				t.Error("the token is still in the request")
			}
		}
	}))
	r := requestAt("a", headers...)
	if address := r.Header.Get("Test-Address"); address != "" {
		r.RemoteAddr = address
	}
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != http.StatusOK {
		return fmt.Sprint(w.Code)
	}
	return result
}

// proxyAddress is the address of a front proxy.
const proxyAddress = "198.51.100.7:1"

// forget removes all verdicts from memory.
func (s *twoShards) forget() {
	for _, known := range []interface{ RemoveAll(func(any) bool) }{s.valid, s.refused, s.trusted} {
		known.RemoveAll(func(any) bool { return true })
	}
}

// forged returns one of many invented tokens of b.
func forged(n int) string {
	return unsigned(fmt.Sprintf(`{"kubernetes.io":{"clusterName":"b"},"n":%d}`, n))
}

func bearing(token string) []string { return []string{"Authorization", "Bearer " + token} }

const botOfB = "system:serviceaccount:ns:bot [b] [system:serviceaccounts system:serviceaccounts:ns system:authenticated]"

func TestTheHolderDecidesAboutAToken(t *testing.T) {
	s := newTwoShards(t)
	own, foreign := s.eu.token(t, "a", "1"), s.us.token(t, "b", "2")
	for name, c := range map[string]struct {
		headers []string
		want    string
		asked   int
	}{
		"a token of b":                     {bearing(foreign), botOfB, 1},
		"... over a websocket":             {overWebSocket(foreign), botOfB, 1},
		"a deleted account of b":           {bearing(s.us.token(t, "b", "0")), "401", 1},
		"a token of b that eu has signed":  {bearing(s.eu.token(t, "b", "2")), "401", 1},
		"a token of a that us has signed":  {bearing(s.us.token(t, "a", "1")), "401", 0},
		"a token of a cluster of no shard": {bearing(s.us.token(t, "c", "2")), "401", 0},
		"a token without a cluster":        {bearing(s.us.token(t, "", "2")), "401", 0},
		"no JWT":                           {bearing("x.y"), "401", 0},
		"no token":                         {nil, "401", 0},
		"tokens of both":                   {append(overWebSocket(foreign), bearing(own)...), "401", 0},
	} {
		s.asked = nil
		s.forget()
		if got := s.login(t, c.headers...); got != c.want || len(s.asked) != c.asked {
			t.Errorf("%s: got %s after asking %q, want %s after %d questions", name, got, s.asked, c.want, c.asked)
		}
	}
	if got := s.login(t, bearing(own)...); got[:3] == "401" {
		t.Errorf("an account of eu: got %s", got)
	}
}

func TestAClusterThatSharesNothingIsLocated(t *testing.T) {
	s := newTwoShards(t)
	delete(s.placed, "b")
	token := s.us.token(t, "b", "2")
	if got := s.login(t, bearing(token)...); got != "401" || len(s.asked) != 0 {
		t.Errorf("no shard holds the cluster: got %s after asking %q", got, s.asked)
	}
	s.located = map[logicalcluster.Name]string{"b": "us"}
	if got := s.login(t, bearing(token)...); got != botOfB {
		t.Errorf("the cluster is located: got %s", got)
	}
	s.us.generator = Generator{TokenGenerator: s.us.plain, Shard: "us"}
	s.hints = nil
	s.login(t, bearing(s.us.token(t, "b", "2"))...)
	if want := []string{`b for a at "us"`}; !slices.Equal(s.hints, want) {
		t.Errorf("the shard that signed is asked first: got %q, want %q", s.hints, want)
	}
	for _, tc := range []struct {
		err  error
		want string
	}{{errors.New("cut"), "503"}, {apierrors.NewTooManyRequests("", 1), "429"}} {
		s.lost = tc.err
		if got := s.login(t, bearing(token)...); got != tc.want {
			t.Errorf("%v: got %s", tc.err, got)
		}
	}
}

func TestAVerdictCountsForTenSeconds(t *testing.T) {
	s := newTwoShards(t)
	token := s.us.token(t, "b", "2")
	for range 3 {
		if got := s.login(t, bearing(token)...); got != botOfB || len(s.asked) != 1 {
			t.Errorf("got %s after %d questions", got, len(s.asked))
		}
	}
	s.answer = &Verdict{} // the account is deleted
	s.clock.Step(verdictTTL + time.Second)
	if got := s.login(t, bearing(token)...); got != "401" || len(s.asked) != 2 {
		t.Errorf("after 10 s: got %s after %d questions", got, len(s.asked))
	}
}

func TestAShardDecidesOnlyAboutItsOwnServiceAccounts(t *testing.T) {
	s := newTwoShards(t)
	token := s.us.token(t, "b", "2")
	for _, answer := range []Verdict{
		{Name: "admin"}, {Name: "system:masters"}, {Name: "system:serviceaccount:ns"}, {},
	} {
		s.answer = &answer
		s.forget()
		if got := s.login(t, bearing(token)...); got != "401" {
			t.Errorf("%+v: got %s", answer, got)
		}
	}
	verdict := Verdict{Name: "system:serviceaccount:ns:bot", Extra: map[string][]string{
		logicalcluster.UserExtraKey: {"a"}, "authorization.kcp.io/warrant": {`{"user":"x"}`}, "authentication.kubernetes.io/cluster-name": {"a"},
		"authentication.kubernetes.io/credential-id": {"JTI=x"},
	}}
	response, ok := verdict.responseIn("b")
	if extra := response.User.GetExtra(); !ok || len(extra) != 2 || !slices.Equal(extra[logicalcluster.UserExtraKey], []string{"b"}) {
		t.Errorf("got extra %v", response.User.GetExtra())
	}
	judge := Judge(Wrap(s.us.upstream), func(c logicalcluster.Name) bool { return c == "b" })
	caller := peers.Identity{Kind: peers.Shard, Name: "eu"}
	for _, token := range []string{s.us.token(t, "c", "2"), "x", ""} {
		if got, err := judge(context.Background(), caller, TokenQuestion{Token: token}); !apierrors.IsBadRequest(err) {
			t.Errorf("a token of a cluster that us does not hold: got %+v, %v", got, err)
		}
	}
}

func TestWithoutAVerdictNothingIsAuthenticated(t *testing.T) {
	s := newTwoShards(t)
	s.err = &peers.Unreachable{Shard: "us", Err: errors.New("cut")}
	token := s.us.token(t, "b", "2")
	if got := s.login(t, bearing(token)...); got != "503" {
		t.Errorf("without an answer: got %s", got)
	}
	s.err = nil
	if got := s.login(t, bearing(token)...); got != botOfB {
		t.Errorf("after an error, which is not remembered: got %s", got)
	}
	refused := 0
	for i := range 3 * verdictBurst {
		if s.login(t, bearing(unsigned(fmt.Sprintf(`{"kubernetes.io":{"clusterName":"b"},"n":%d}`, i)))...) == "429" {
			refused++
		}
	}
	if refused == 0 || len(s.asked) > 2*verdictBurst {
		t.Errorf("%d forged tokens were refused, %d questions asked", refused, len(s.asked))
	}
	if got := s.login(t, bearing(token)...); got != botOfB {
		t.Errorf("a known token during the flood: got %s", got)
	}
}

// from returns the headers of a request with a token from an address.
func from(address, token string) []string { return append(bearing(token), "Test-Address", address) }

func TestAClientThatInventsTokensDoesNotDelayOthers(t *testing.T) {
	s := newTwoShards(t)
	flood := func(headers ...string) (refused int) {
		for n := range 4 * verdictBurst {
			switch got := s.login(t, append(bearing(forged(n)), headers...)...); got {
			case "429":
				refused++
			case "401":
			default:
				t.Fatalf("got %s", got)
			}
		}
		return refused
	}
	if got, want := flood("Test-Address", "192.0.2.1:1"), 4*verdictBurst-clientBurst; got != want || len(s.asked) != clientBurst {
		t.Errorf("%d tokens were refused after %d questions, want %d after %d", got, len(s.asked), want, clientBurst)
	}
	token := s.us.token(t, "b", "2")
	if got := s.login(t, from("192.0.2.2:1", token)...); got != botOfB {
		t.Errorf("a token of another client: got %s", got)
	}
	if got := s.login(t, from("192.0.2.1:2", s.us.token(t, "b", "2")+"x")...); got != "429" {
		t.Errorf("the client from another port: got %s", got)
	}
	if got := s.login(t, append(from("192.0.2.1:2", forged(-1)), "X-Forwarded-For", "203.0.113.9")...); got != "429" {
		t.Errorf("the client names another address: got %s", got)
	}
	if got := flood("Test-Address", proxyAddress, "X-Forwarded-For", "203.0.113.1"); got == 0 {
		t.Error("a client behind a front proxy is not limited")
	}
	fresh := s.us.token(t, "b", "2")
	if got := s.login(t, append(from(proxyAddress, fresh), "X-Forwarded-For", "203.0.113.1, 203.0.113.2")...); got != botOfB {
		t.Errorf("another client behind the front proxy: got %s", got)
	}
}

func TestManyClientsDoNotLockOutAValidToken(t *testing.T) {
	s := newTwoShards(t)
	token := s.us.token(t, "b", "2")
	if got := s.login(t, bearing(token)...); got != botOfB {
		t.Fatalf("got %s", got)
	}
	for n := range maxVerdicts + 1 {
		s.refused.Add(fmt.Sprint(n), Verdict{}, verdictTTL)
	}
	for n := range 2 * verdictBurst {
		s.login(t, from(fmt.Sprintf("192.0.2.%d:1", n), forged(n))...)
	}
	asked := len(s.asked)
	if got := s.login(t, bearing(token)...); got != botOfB || len(s.asked) != asked {
		t.Errorf("the token: got %s after %d questions", got, len(s.asked)-asked)
	}
	if got := s.login(t, from("192.0.2.250:1", s.us.token(t, "b", "2")+"x")...); got != "429" {
		t.Errorf("an unknown token beyond the limit of the cluster: got %s", got)
	}
	s.clock.Step(verdictTTL + time.Millisecond)
	for n := range 20 * verdictBurst {
		s.login(t, from(fmt.Sprintf("198.18.%d.%d:1", n/200, n%200), forged(n+1000))...)
	}
	if got := s.login(t, bearing(token)...); got != botOfB {
		t.Errorf("the token after 10 s, beyond the limit of the cluster: got %s", got)
	}
	s.answer = &Verdict{}
	s.clock.Step(verdictTTL + time.Millisecond)
	s.login(t, bearing(token)...)
	if _, trusted := s.trusted.Get(fmt.Sprintf("us %x", sha256.Sum256([]byte(token)))); trusted {
		t.Error("a token that was revoked is still asked about beyond the limits")
	}
}
