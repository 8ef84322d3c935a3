package authentication

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/util/keyutil"
	core "k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/logicalcluster"
)

const issuer = "https://issuer.test"

// accounts are the UIDs of the service account ns/bot, by cluster. All other objects are missing.
type accounts map[logicalcluster.Name]types.UID

func (a accounts) GetServiceAccount(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return nil, err
	}
	uid, ok := a[cluster]
	if !ok {
		return nil, apierrors.NewNotFound(corev1.Resource("serviceaccounts"), name)
	}
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uid}}, nil
}

func (accounts) GetSecret(context.Context, string, string) (*corev1.Secret, error) {
	return nil, errors.New("no secrets here")
}

func (accounts) GetPod(context.Context, string, string) (*corev1.Pod, error) {
	return nil, errors.New("no pods here")
}

func (accounts) GetNode(context.Context, string) (*corev1.Node, error) {
	return nil, errors.New("no nodes here")
}

func (accounts) GetValidatingWebhookConfiguration(context.Context, string) (*admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	return nil, errors.New("no configurations here")
}

func (accounts) GetMutatingWebhookConfiguration(context.Context, string) (*admissionregistrationv1.MutatingWebhookConfiguration, error) {
	return nil, errors.New("no configurations here")
}

// authority signs tokens of service accounts and checks them like the server, at every place where a request has tokens.
type authority struct {
	plain, generator serviceaccount.TokenGenerator
	upstream         authenticator.Request
}

func newAuthority(t testing.TB, existing accounts) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := serviceaccount.JWTTokenGenerator(issuer, key)
	if err != nil {
		t.Fatal(err)
	}
	pem, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		t.Fatal(err)
	}
	public, err := keyutil.ParsePublicKeysPEM(pem)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := serviceaccount.StaticPublicKeysGetter(public)
	if err != nil {
		t.Fatal(err)
	}
	tokens := serviceaccount.JWTTokenAuthenticator([]string{issuer}, keys, authenticator.Audiences{issuer}, serviceaccount.NewValidator(existing))
	certificate := authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		name := r.Header.Get("Test-Certificate")
		if name == "" {
			return nil, false, nil
		}
		extra := map[string][]string{"color": {"red"}}
		if cluster := r.Header.Get("Test-Cluster"); cluster != "" {
			extra[logicalcluster.UserExtraKey] = []string{cluster}
		}
		if scope := r.Header.Get("Test-Scope"); scope != "" {
			extra[authorization.ScopesKey] = []string{scope}
		}
		if cluster := r.Header.Get("Test-Former-Cluster"); cluster != "" {
			extra[authorization.FormerClusterNameKey] = []string{cluster}
		}
		return &authenticator.Response{User: &user.DefaultInfo{Name: name, Extra: extra}}, true, nil
	})
	return authority{plain, Generator{TokenGenerator: plain}, union.New(certificate, bearertoken.New(tokens), websocket.NewProtocolAuthenticator(tokens))}
}

// token returns one of ns/bot with a UID, issued in a cluster; without a cluster, it carries no claim.
func (a authority) token(t testing.TB, cluster logicalcluster.Name, uid types.UID) string {
	t.Helper()
	account := core.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "bot", UID: uid}}
	claims, private, err := serviceaccount.Claims(account, nil, nil, nil, nil, nil, 3600, 0, []string{issuer}, nil)
	if err != nil {
		t.Fatal(err)
	}
	generator := a.generator
	if cluster == "" {
		generator = a.plain
	}
	token, err := generator.GenerateToken(logicalcluster.WithName(context.Background(), cluster), claims, private)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func unsigned(payload string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".e30"
}

func requestAt(cluster logicalcluster.Name, headers ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/api", nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r.WithContext(logicalcluster.WithName(r.Context(), cluster))
}

func overWebSocket(token string) []string {
	return []string{"Connection", "Upgrade", "Upgrade", "websocket",
		"Sec-WebSocket-Protocol", "v1, " + protocolPrefix + base64.RawURLEncoding.EncodeToString([]byte(token))}
}

func TestServiceAccountTokensCarryTheirCluster(t *testing.T) {
	a := newAuthority(t, accounts{"a": "1", "b": "2"})
	const bot = "system:serviceaccount:ns:bot"
	bearer := func(token string) []string { return []string{"Authorization", "Bearer " + token} }
	ours, deleted, bare := a.token(t, "a", "1"), a.token(t, "a", "0"), a.token(t, "", "2")
	forged := unsigned(`{"kubernetes.io":{"clusterName":"a"}}`)
	for name, c := range map[string]struct {
		headers       []string
		user, cluster string // user is empty if the request is rejected
	}{
		"a token of a":                 {bearer(ours), bot, "a"},
		"... with something behind it": {[]string{"Authorization", "bearer " + ours + " x.y"}, bot, "a"},
		"... over a websocket":         {overWebSocket(ours), bot, "a"},
		"... twice":                    {append(overWebSocket(ours), bearer(ours)...), bot, "a"},
		"a token of an account that was created again":  {bearer(deleted), "", ""},
		"a token without a claim":                       {bearer(bare), "", ""},
		"... beside one with a claim":                   {append(overWebSocket(bare), bearer(forged)...), "", ""},
		"... behind one with a claim":                   {append(overWebSocket(forged), bearer(bare)...), "", ""},
		"tokens of two clusters":                        {append(overWebSocket(a.token(t, "b", "2")), bearer(ours)...), "", ""},
		"a forged token":                                {bearer(forged), "", ""},
		"a user with a certificate":                     {[]string{"Test-Certificate", "alice"}, "alice", ""},
		"... who claims a cluster":                      {[]string{"Test-Certificate", "alice", "Test-Cluster", "a"}, "alice", ""},
		"... in scope, for a front proxy":               {[]string{"Test-Certificate", "alice", "Test-Cluster", "a", "Test-Scope", "cluster:a"}, "alice", "a"},
		"... out of scope":                              {[]string{"Test-Certificate", "alice", "Test-Cluster", "a", "Test-Scope", "cluster:a,cluster:b"}, "alice", ""},
		"... by the former key":                         {[]string{"Test-Certificate", "alice", "Test-Former-Cluster", "a"}, "", ""},
		"a service account with the former key":         {[]string{"Test-Certificate", bot, "Test-Former-Cluster", "a", "Test-Cluster", "a"}, "", ""},
		"... and bears a token":                         {append(bearer(ours), "Test-Certificate", "alice", "Test-Cluster", "a"), "alice", ""},
		"a service account from a front proxy":          {[]string{"Test-Certificate", bot, "Test-Cluster", "a"}, bot, "a"},
		"... with its token":                            {append(bearer(ours), "Test-Certificate", bot, "Test-Cluster", "a"), bot, "a"},
		"... with the token of another account":         {append(bearer(forged), "Test-Certificate", bot, "Test-Cluster", "b"), "", ""},
		"a service account from nowhere":                {[]string{"Test-Certificate", bot}, "", ""},
		"... that borrows the cluster of a token":       {append(bearer(ours), "Test-Certificate", bot), "", ""},
		"... that borrows the cluster of a forged one":  {append(bearer(forged), "Test-Certificate", bot), "", ""},
		"... that borrows it of one over the websocket": {append(overWebSocket(forged), "Test-Certificate", bot), "", ""},
	} {
		// The cluster of the request has an account of that name too, with the UID of the token without a claim.
		response, ok, err := Wrap(a.upstream).AuthenticateRequest(requestAt("b", c.headers...))
		switch {
		case c.user == "" && ok && err == nil:
			t.Errorf("%s: authenticated as %v", name, response.User)
		case c.user != "" && (!ok || err != nil):
			t.Errorf("%s: refused: %v", name, err)
		case c.user != "":
			cluster := ""
			if values := response.User.GetExtra()[logicalcluster.UserExtraKey]; len(values) > 0 {
				cluster = values[0]
			}
			if response.User.GetName() != c.user || cluster != c.cluster {
				t.Errorf("%s: got %s of %q, want %s of %q", name, response.User.GetName(), cluster, c.user, c.cluster)
			}
		}
	}
}

func TestAUsedTokenIsNotPassedOn(t *testing.T) {
	a := newAuthority(t, accounts{"a": "1"})
	r := requestAt("b", append(overWebSocket(a.token(t, "a", "1")), "Authorization", "Bearer "+a.token(t, "a", "1"))...)
	if _, ok, err := Wrap(a.upstream).AuthenticateRequest(r); !ok || err != nil {
		t.Fatal(err)
	}
	if r.Header.Get("Authorization") != "" {
		t.Error("the token is still in the request")
	}
	if cluster, _ := logicalcluster.NameFrom(r.Context()); cluster != "b" {
		t.Errorf("the request now addresses %s", cluster)
	}
}

func TestReviewsAuthenticateOnlyServiceAccountsOfTheirCluster(t *testing.T) {
	a := newAuthority(t, accounts{"a": "1", "b": "2"})
	reviews := Reviews(Wrap(a.upstream))
	token := []string{"Authorization", "Bearer " + a.token(t, "a", "1")}
	if _, ok, err := reviews.AuthenticateRequest(requestAt("a", token...)); !ok || err != nil {
		t.Errorf("not authenticated in its own cluster: %v", err)
	}
	if _, ok, err := reviews.AuthenticateRequest(requestAt("b", token...)); ok || err == nil {
		t.Error("authenticated in another cluster")
	}
	if _, ok, _ := reviews.AuthenticateRequest(httptest.NewRequest(http.MethodGet, "/", nil)); ok {
		t.Error("authenticated without a cluster")
	}
	if _, ok, err := reviews.AuthenticateRequest(requestAt("b", "Test-Certificate", "alice")); !ok || err != nil {
		t.Errorf("users are not authenticated: %v", err)
	}
}
