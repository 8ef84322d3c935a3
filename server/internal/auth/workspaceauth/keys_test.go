package workspaceauth

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/kcplane/kcp/server/internal/process/outbound"
)

// site contains the documents of an issuer, by URL, and how often they were fetched.
type site struct {
	mu      sync.Mutex
	answers map[string]string
	fetched map[string]int
}

func (s *site) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fetched[r.URL.String()]++
	content, ok := s.answers[r.URL.String()]
	if !ok {
		return nil, errors.New("connection refused")
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(content)), ContentLength: -1, Request: r}, nil
}

func (s *site) answer(url, content string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[url] = content
}

func (s *site) count(url string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fetched[url]
}

const (
	issuerURL   = "https://issuer.example.org"
	documentURL = issuerURL + "/.well-known/openid-configuration"
	keysURL     = issuerURL + "/keys"
)

func document(keys string) string { return fmt.Sprintf(`{"issuer":%q,"jwks_uri":%q}`, issuerURL, keys) }

// published returns the keys of an issuer that publishes a site.
func published(t *testing.T, discovery string) (*keys, *site) {
	s := &site{answers: map[string]string{}, fetched: map[string]int{}}
	return newKeys(t.Context(), issuerURL, discovery, func(l outbound.Limits) http.RoundTripper { return l.RoundTripper(s) }), s
}

// signer returns a signer of tokens, and the set with its key.
func signer(t *testing.T) (sign func() string, set string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	content, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "one", Algorithm: "ES256", Use: "sig"}}})
	if err != nil {
		t.Fatal(err)
	}
	return func() string {
		s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "one"}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		token, err := jwt.Signed(s).Claims(map[string]any{"iss": issuerURL}).Serialize()
		if err != nil {
			t.Fatal(err)
		}
		return token
	}, string(content)
}

func TestRequestsToAFailingIssuerBackOff(t *testing.T) {
	k, s := published(t, "")
	now := time.Now()
	k.now = func() time.Time { return now }
	sign, set := signer(t)
	began := now
	var at []time.Duration
	for ; now.Sub(began) < time.Hour; now = now.Add(time.Second) {
		before := s.count(documentURL)
		for range 3 {
			if _, err := k.VerifySignature(t.Context(), sign()); err == nil || !strings.Contains(err.Error(), "connection refused") {
				t.Fatalf("got %v", err)
			}
		}
		if after := s.count(documentURL); after > before {
			at = append(at, now.Sub(began))
		}
	}
	if want := "[0s 1s 3s 7s 15s 31s 1m3s 2m7s 4m15s 8m31s 13m31s"; !strings.HasPrefix(fmt.Sprint(at), want) || s.count(documentURL) != len(at) {
		t.Errorf("it got %d requests, at %v", s.count(documentURL), at)
	}
	s.answer(documentURL, document(keysURL))
	s.answer(keysURL, set)
	now = now.Add(lastRetry)
	if _, err := k.VerifySignature(t.Context(), sign()); err != nil {
		t.Errorf("an issuer that works by now is not trusted: %v", err)
	}
}

func TestFetchesOfKeysForUnverifiedTokensAreLimited(t *testing.T) {
	k, s := published(t, "")
	sign, set := signer(t)
	strange, _ := signer(t)
	s.answer(documentURL, document(keysURL))
	s.answer(keysURL, set)
	for range 100 {
		if _, err := k.VerifySignature(t.Context(), strange()); err == nil {
			t.Fatal("a token of another issuer is verified")
		}
	}
	if n := s.count(keysURL); n != keysBurst || s.count(documentURL) != 1 {
		t.Errorf("the keys were fetched %d times, the document %d times", n, s.count(documentURL))
	}
	if _, err := k.VerifySignature(t.Context(), sign()); err != nil {
		t.Error(err)
	}
}

func TestManyTokensWaitForOneDocument(t *testing.T) {
	k, s := published(t, "")
	sign, set := signer(t)
	s.answer(documentURL, document(keysURL))
	s.answer(keysURL, set)
	s.mu.Lock() // nothing responds
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := k.VerifySignature(impatient, sign()); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	var wait sync.WaitGroup
	for range 20 {
		wait.Go(func() {
			if _, err := k.VerifySignature(t.Context(), sign()); err != nil {
				t.Error(err)
			}
		})
	}
	s.mu.Unlock()
	wait.Wait()
	if n := s.count(documentURL); n != 1 {
		t.Errorf("the document was fetched %d times", n)
	}
}

func TestADiscoveryDocumentCanHaveAnotherURL(t *testing.T) {
	k, s := published(t, "https://elsewhere.example.org/document")
	sign, set := signer(t)
	s.answer("https://elsewhere.example.org/document", document(keysURL))
	s.answer(keysURL, set)
	if _, err := k.VerifySignature(t.Context(), sign()); err != nil {
		t.Error(err)
	}
}

func TestTheDocumentsOfIssuersAreLimited(t *testing.T) {
	sign, set := signer(t)
	large := rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), maxKeyBits), E: 65537}
	rsaSet, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &large, KeyID: "one"}}})
	if err != nil {
		t.Fatal(err)
	}
	spaces := strings.Repeat(" ", int(keysLimits.Bytes))
	for name, test := range map[string]struct{ document, set, want string }{
		"valid documents":         {document(keysURL), set, ""},
		"a large document":        {document(keysURL) + spaces, set, "more than 262144 bytes"},
		"a deep document":         {`{"x":` + strings.Repeat("[", 200000), set, "discovery document of issuer " + issuerURL},
		"large keys":              {document(keysURL), set + spaces, "more than 262144 bytes"},
		"many keys":               {document(keysURL), `{"keys":[` + strings.Repeat("{},", maxKeys) + `{}]}`, "has 51 keys; at most 50 are allowed"},
		"a key of very many bits": {document(keysURL), string(rsaSet), "an RSA key of 8193 bits; at most 8192 are allowed"},
		"keys without encryption": {document("http://issuer.example.org/keys"), set, "has no jwks_uri that begins with https://"},
		"no keys":                 {document(keysURL), "none", "not a JSON Web Key Set"},
	} {
		k, s := published(t, "")
		s.answer(documentURL, test.document)
		s.answer(keysURL, test.set)
		_, err := k.VerifySignature(t.Context(), sign())
		if (test.want == "") != (err == nil) || (err != nil && (!strings.Contains(err.Error(), test.want) || len(shortened(err)) > 2*maxReason)) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
