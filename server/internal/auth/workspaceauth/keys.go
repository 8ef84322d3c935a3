package workspaceauth

import (
	"bytes"
	"context"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc"
	"golang.org/x/time/rate"
	"gopkg.in/go-jose/go-jose.v2"

	"github.com/kcplane/kcp/server/internal/process/outbound"
)

// Limits for the data that an issuer publishes.
const (
	maxKeys    = 50
	maxKeyBits = 8192
)

// A request to a failing issuer is retried after firstRetry, and then after twice as long each time, up to lastRetry. The keys are
// fetched at most keysBurst times, and then once in each keysInterval, because upstream fetches them for every token that the known
// keys do not verify.
const (
	firstRetry, lastRetry   = time.Second, 5 * time.Minute
	keysInterval, keysBurst = 10 * time.Second, 5
)

// Limits of documents and keys.
var (
	documentLimits = outbound.Limits{Bytes: 256 << 10, Time: 10 * time.Second}
	keysLimits     = outbound.Limits{Bytes: 256 << 10, Time: 10 * time.Second, Check: checkKeys}
)

// keys are the public keys of an issuer. The discovery document is fetched when the first token arrives.
type keys struct {
	issuer string
	// document is the URL of the discovery document, if it is not below the URL of the issuer.
	document *http.Client
	set      func(url string) oidc.KeySet
	ctx      context.Context
	now      func() time.Time

	mu       sync.Mutex
	found    oidc.KeySet
	fetching chan struct{} // closed when the fetch has succeeded or failed; nil if no fetch is in progress
	err      error
	next     time.Time // of a fetch
	wait     time.Duration
}

var _ oidc.KeySet = &keys{}

// newKeys returns the keys of an issuer. If discovery is not empty, it is the URL of the discovery document. Nothing is fetched after
// ctx is done.
func newKeys(ctx context.Context, issuer, discovery string, caller func(outbound.Limits) http.RoundTripper) *keys {
	limiter := rate.NewLimiter(rate.Every(keysInterval), keysBurst)
	published := &http.Client{Timeout: keysLimits.Time, Transport: once{caller(keysLimits), func(r *http.Request) error {
		if r.Response == nil && !limiter.Allow() {
			return fmt.Errorf("the keys were fetched too often; the next attempt is allowed in %s", keysInterval)
		}
		return nil
	}}}
	return &keys{
		issuer: issuer, ctx: ctx, now: time.Now,
		document: &http.Client{Timeout: documentLimits.Time, Transport: once{caller(documentLimits), func(r *http.Request) error {
			if discovery == "" || r.Response != nil {
				return nil
			}
			u, err := r.URL.Parse(discovery)
			if err == nil {
				r.URL, r.Host = u, ""
			}
			return err
		}}},
		set: func(url string) oidc.KeySet { return oidc.NewRemoteKeySet(oidc.ClientContext(ctx, published), url) },
	}
}

// once prepares or rejects a request, and does not reuse connections.
type once struct {
	next    http.RoundTripper
	prepare func(*http.Request) error
}

// RoundTrip implements http.RoundTripper.
func (o once) RoundTrip(r *http.Request) (*http.Response, error) {
	out := r.Clone(r.Context())
	out.Close = true
	if err := o.prepare(out); err != nil {
		return nil, err
	}
	return o.next.RoundTrip(out)
}

// VerifySignature implements oidc.KeySet.
func (k *keys) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	set, err := k.discovered(ctx)
	if err != nil {
		return nil, err
	}
	return set.VerifySignature(ctx, token)
}

// discovered returns the key set that verifies tokens. It waits for the discovery document until ctx is done.
func (k *keys) discovered(ctx context.Context) (oidc.KeySet, error) {
	k.mu.Lock()
	if k.found != nil {
		defer k.mu.Unlock()
		return k.found, nil
	}
	if k.fetching == nil {
		if k.now().Before(k.next) {
			defer k.mu.Unlock()
			return nil, k.err
		}
		k.fetching = make(chan struct{})
		go k.discover()
	}
	fetching := k.fetching
	k.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for the discovery document of issuer %s: %w", k.issuer, ctx.Err())
	case <-fetching:
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.found, k.err
}

func (k *keys) discover() {
	found, err := k.fetch()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.found, k.err = found, err
	if err != nil {
		k.wait = min(max(2*k.wait, firstRetry), lastRetry)
		k.next = k.now().Add(k.wait)
	}
	close(k.fetching)
	k.fetching = nil
}

// fetch reads the discovery document.
func (k *keys) fetch() (oidc.KeySet, error) {
	provider, err := oidc.NewProvider(oidc.ClientContext(k.ctx, k.document), k.issuer)
	if err != nil {
		return nil, fmt.Errorf("reading the discovery document of issuer %s: %s", k.issuer, shortened(err))
	}
	var document struct {
		JWKS string `json:"jwks_uri"`
	}
	if err := provider.Claims(&document); err != nil || !strings.HasPrefix(document.JWKS, "https://") {
		return nil, fmt.Errorf("the discovery document of issuer %s has no jwks_uri that begins with https://", k.issuer)
	}
	return k.set(document.JWKS), nil
}

// checkKeys rejects keys with which verification would be too expensive.
func checkKeys(content []byte) error {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.NewDecoder(bytes.NewReader(content)).Decode(&set); err != nil {
		return errors.New("the response is not a JSON Web Key Set")
	}
	if len(set.Keys) > maxKeys {
		return fmt.Errorf("the response has %d keys; at most %d are allowed", len(set.Keys), maxKeys)
	}
	for _, content := range set.Keys {
		key := jose.JSONWebKey{}
		if err := json.Unmarshal(content, &key); err != nil {
			continue // upstream returns the error
		}
		if public, ok := key.Key.(*rsa.PublicKey); ok && public.N.BitLen() > maxKeyBits {
			return fmt.Errorf("the response has an RSA key of %d bits; at most %d are allowed", public.N.BitLen(), maxKeyBits)
		}
	}
	return nil
}

// maxReason limits the logged bytes of an error, because libraries include the response of an issuer in their errors.
const maxReason = 512

func shortened(err error) string {
	if text := err.Error(); len(text) > maxReason {
		return text[:maxReason] + "…"
	}
	return err.Error()
}
