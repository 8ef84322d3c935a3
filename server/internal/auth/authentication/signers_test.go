package authentication

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	typedv1core "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/kubernetes/pkg/serviceaccount"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// signing is a shard that signs tokens.
type signing struct {
	*Signers
	key any
}

// lifetime is that of tokens of the shards of these tests.
const lifetime = 24 * time.Hour

func newSigners(t *testing.T, shard string, clock *clocktesting.FakeClock) signing {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	text, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key")
	if err := keyutil.WriteKey(file, text); err != nil {
		t.Fatal(err)
	}
	signers, err := NewSigners(SignersConfig{
		Shard: shard, Files: []string{file}, TokenLifetime: lifetime, SecretsAreRead: true, Clock: clock,
	})
	if err != nil {
		t.Fatal(err)
	}
	return signing{signers, key}
}

// move returns the keys of a cluster that moves from one shard to another.
func move(t *testing.T, from, to signing, keys string) string {
	t.Helper()
	keys, err := from.AddTo(keys)
	if err != nil {
		t.Fatal(err)
	}
	keys = to.Arrive(keys)
	to.Former = func(cluster logicalcluster.Name) string {
		return map[logicalcluster.Name]string{"moved": keys}[cluster]
	}
	return keys
}

// accepts reports whether the key of another shard verifies tokens of a cluster.
func (s signing) accepts(ctx context.Context, other signing) bool {
	id := other.PublicKeysGetter.GetPublicKeys(ctx, "")[0].KeyID
	return slices.ContainsFunc(s.GetPublicKeys(ctx, ""), func(key serviceaccount.PublicKey) bool { return key.KeyID == id })
}

func at(cluster logicalcluster.Name) context.Context {
	return logicalcluster.WithName(context.Background(), cluster)
}

func TestKeysOfFormerShardsCountInTheMovedClusterOnly(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	origin, destination := newSigners(t, "eu", clock), newSigners(t, "us", clock)
	if move(t, origin, destination, ""); !destination.accepts(at("moved"), origin) {
		t.Error("the key does not count in the moved cluster")
	}
	if destination.accepts(at("other"), origin) || destination.accepts(t.Context(), origin) {
		t.Error("the key counts in another cluster, or without one")
	}
}

func TestKeysOfFormerShardsEndWithTheirTokens(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	eu, us, asia := newSigners(t, "eu", clock), newSigners(t, "us", clock), newSigners(t, "asia", clock)
	keys := move(t, eu, us, "")
	clock.Step(lifetime / 2)
	if again := us.Arrive(keys); again != keys {
		t.Errorf("a repeated step of the migration moves the end:\n%s\nwas\n%s", again, keys)
	}
	keys = move(t, us, asia, keys)
	if !asia.accepts(at("moved"), eu) || !asia.accepts(at("moved"), us) {
		t.Error("after a second move, a former key does not count")
	}
	clock.Step(lifetime/2 + clockSkew)
	if asia.accepts(at("moved"), eu) || !asia.accepts(at("moved"), us) {
		t.Error("the key of the first shard counts after its end, or that of the second one does not")
	}
	keys = move(t, asia, eu, keys)
	if !eu.accepts(at("moved"), us) || !eu.accepts(at("moved"), asia) {
		t.Error("after the cluster has returned, a former key does not count")
	}
	clock.Step(lifetime + clockSkew)
	if eu.accepts(at("moved"), us) || eu.accepts(at("moved"), asia) {
		t.Error("a former key counts after its end")
	}
	if move(t, eu, us, keys); !us.accepts(at("moved"), eu) {
		t.Error("the key of a shard does not count after a second move from there")
	}
}

func TestAShardThatReplacedItsKeyDoesNotAcceptTheFormerOneAgain(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	eu, us := newSigners(t, "eu", clock), newSigners(t, "us", clock)
	keys, err := us.AddTo(move(t, eu, us, ""))
	if err != nil {
		t.Fatal(err)
	}
	replaced := newSigners(t, "eu", clock)
	replaced.Former = func(logicalcluster.Name) string { return replaced.Arrive(keys) }
	if replaced.accepts(at("moved"), eu) {
		t.Error("the key that the shard has replaced counts in a cluster that has returned")
	}
	if keys = move(t, replaced, us, keys); us.accepts(at("moved"), eu) || !us.accepts(at("moved"), replaced) {
		t.Errorf("after another move, the shard vouches for other keys than its own:\n%s", keys)
	}
}

func TestKeysWithoutAnEndDoNotCount(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	origin, destination := newSigners(t, "eu", clock), newSigners(t, "us", clock)
	described, err := origin.AddTo("")
	if err != nil {
		t.Fatal(err)
	}
	for name, keys := range map[string]string{
		"a cluster that has not arrived":        described,
		"no lifetime":                           strings.ReplaceAll(described, lifetimeHeader, "Other"),
		"no number":                             strings.ReplaceAll(described, lifetime.String(), "long"),
		"no shard":                              strings.ReplaceAll(described, shardHeader+":", "Other:"),
		"a negative lifetime":                   destination.Arrive(strings.ReplaceAll(described, lifetime.String(), "-1h")),
		"the header of an end that is no time":  strings.ReplaceAll(described, lifetimeHeader, endHeader),
		"something else than a key":             "x",
		"a certificate in the place of the key": strings.ReplaceAll(destination.Arrive(described), publicKey, "CERTIFICATE"),
	} {
		destination.Former = func(logicalcluster.Name) string { return keys }
		if destination.accepts(at("moved"), origin) {
			t.Errorf("%s: the key counts", name)
		}
	}
}

func TestTheKeysOfFormerShardsAreLimited(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	us := newSigners(t, "us", clock)
	many := func(end time.Time) string {
		keys := make([]formerKey, 300)
		for i := range keys {
			keys[i] = formerKey{shard: "eu", der: us.own[0], end: end.Add(time.Duration(i) * time.Second)}
		}
		return formatFormer(keys)
	}
	if _, err := us.AddTo(many(clock.Now().Add(time.Hour))); err == nil {
		t.Error("keys of tokens that are valid were dropped")
	}
	text, err := us.AddTo(many(clock.Now().Add(-time.Hour)))
	kept := parseFormer(text)
	if err != nil || len(text) > maxSigners || len(kept) < 100 {
		t.Fatalf("got %d bytes with %d keys, %v", len(text), len(kept), err)
	}
	if last := kept[len(kept)-1]; last.shard != "us" || kept[0].end.Before(clock.Now().Add(-time.Hour+100*time.Second)) {
		t.Errorf("got a first key with end %s and a last key of shard %s, want the newest and that of this shard", kept[0].end, last.shard)
	}
}

// secrets has the Secret ns/bot.
type secrets struct {
	accounts
	token string
}

func (s *secrets) GetSecret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	if s.token == "" {
		return nil, apierrors.NewNotFound(corev1.Resource("secrets"), name)
	}
	today := map[string]string{serviceaccount.LastUsedLabelKey: time.Now().UTC().Format(time.DateOnly)}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: today},
		Data: map[string][]byte{corev1.ServiceAccountTokenKey: []byte(s.token)}}, nil
}

// secretToken returns a token that a shard has signed for a Secret in a cluster.
func (s signing) secretToken(t *testing.T, id string) string {
	t.Helper()
	plain, err := serviceaccount.JWTTokenGenerator(serviceaccount.LegacyIssuer, s.key)
	if err != nil {
		t.Fatal(err)
	}
	account := corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "bot", UID: "1"}}
	claims, private := serviceaccount.LegacyClaims(account, corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "bot"}})
	claims.ID = id
	token, err := Generator{TokenGenerator: plain}.GenerateToken(at("moved"), claims, private)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestATokenInASecretIsValidWhileTheSecretHasIt(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	eu, us := newSigners(t, "eu", clock), newSigners(t, "us", clock)
	move(t, eu, us, "")
	stored, other := eu.secretToken(t, "stored"), eu.secretToken(t, "other")
	objects := &secrets{accounts: accounts{"moved": "1"}, token: stored}
	validator, err := serviceaccount.NewLegacyValidator(true, objects, struct{ typedv1core.SecretsGetter }{}) // which is not called
	if err != nil {
		t.Fatal(err)
	}
	legacy := serviceaccount.JWTTokenAuthenticator([]string{serviceaccount.LegacyIssuer}, us.Signers, authenticator.Audiences{issuer}, validator)
	login := func(token string) bool {
		_, ok, err := Wrap(bearertoken.New(legacy)).AuthenticateRequest(requestAt("moved", "Authorization", "Bearer "+token))
		return ok && err == nil
	}
	clock.Step(10 * lifetime)
	if !login(stored) {
		t.Error("the token in the Secret is refused after the end of the key")
	}
	if login(other) {
		t.Error("a token that is not in the Secret is accepted")
	}
	us.config.SecretsAreRead = false
	if login(stored) {
		t.Error("a token that is not compared with its Secret outlives its key")
	}
	us.config.SecretsAreRead = true
	if objects.token = ""; login(stored) {
		t.Error("a token is accepted after its Secret was deleted")
	}
}

func TestOnlyTokensOfSecretsOutliveTheirKey(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	eu, us := newSigners(t, "eu", clock), newSigners(t, "us", clock)
	move(t, eu, us, "")
	clock.Step(10 * lifetime)
	secret := unsigned(`{"iss":"kubernetes/serviceaccount"}`)
	for name, tc := range map[string]struct {
		tokens []string
		want   bool
	}{
		"a token of a Secret":          {[]string{secret}, true},
		"no token":                     {nil, false},
		"a bound token":                {[]string{unsigned(`{"iss":"https://kcp.default.svc"}`)}, false},
		"... with claims of a Secret":  {[]string{unsigned(`{"iss":"https://kcp.default.svc","kubernetes.io/serviceaccount/clusterName":"moved"}`)}, false},
		"both":                         {[]string{secret, unsigned(`{"iss":"https://kcp.default.svc"}`)}, false},
		"two issuers, the last counts": {[]string{unsigned(`{"iss":"kubernetes/serviceaccount","iss":"https://kcp.default.svc"}`)}, false},
		"no JWT":                       {[]string{"x"}, false},
		"no JSON":                      {[]string{unsigned("x")}, false},
		"no base64":                    {[]string{"a.?.c"}, false},
	} {
		if got := us.accepts(withBorne(at("moved"), tc.tokens), eu); got != tc.want {
			t.Errorf("%s: the ended key counts: %t, want %t", name, got, tc.want)
		}
	}
}

func TestTheTokensOfARequestReachTheVerification(t *testing.T) {
	var got []string
	inner := authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		got = borneBy(r.Context())
		return nil, false, nil
	})
	token := unsigned(`{"kubernetes.io/serviceaccount/clusterName":"a"}`)
	_, _, _ = Wrap(inner).AuthenticateRequest(requestAt("a", "Authorization", "Bearer "+token))
	if !slices.Equal(got, []string{token}) {
		t.Errorf("got %q", got)
	}
}
