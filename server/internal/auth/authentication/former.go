package authentication

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/kubernetes/pkg/serviceaccount"
)

// formerKey is a public key of a shard that held a logical cluster before.
type formerKey struct {
	shard string
	der   []byte
	// lifetime is the longest of the tokens that the shard signs. It counts until the cluster has moved.
	lifetime time.Duration
	// end is when the last of these tokens ends; zero until the cluster has moved.
	end time.Time
}

const (
	// maxSigners limits the bytes of the keys of former shards.
	maxSigners = 32 << 10
	// clockSkew is how far the clock of a former shard may be ahead.
	clockSkew = time.Minute
)

const publicKey = "PUBLIC KEY"

// Headers of a key in PEM.
const (
	shardHeader    = "Shard"
	lifetimeHeader = "Token-Lifetime"
	endHeader      = "End"
)

// parseFormer returns the keys in a text of formatFormer. A key without a shard, or with neither a lifetime nor an end, is left out.
func parseFormer(text string) []formerKey {
	var keys []formerKey
	for rest := []byte(text); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return keys
		}
		k := formerKey{shard: block.Headers[shardHeader], der: block.Bytes}
		var endErr, lifetimeErr error
		k.end, endErr = time.Parse(time.RFC3339, block.Headers[endHeader])
		k.lifetime, lifetimeErr = time.ParseDuration(block.Headers[lifetimeHeader])
		if block.Type == publicKey && k.shard != "" && (endErr == nil || lifetimeErr == nil) {
			keys = append(keys, k)
		}
	}
}

func formatFormer(keys []formerKey) string {
	text := &bytes.Buffer{}
	for _, k := range keys {
		headers := map[string]string{shardHeader: k.shard}
		if k.end.IsZero() {
			headers[lifetimeHeader] = k.lifetime.String()
		} else {
			headers[endHeader] = k.end.UTC().Format(time.RFC3339)
		}
		_ = pem.Encode(text, &pem.Block{Type: publicKey, Headers: headers, Bytes: k.der}) // to memory
	}
	return text.String()
}

// AddTo returns the keys of former shards, in PEM, with those of this shard, which the logical cluster is about to leave. Keys that this
// shard no longer accepts are removed.
func (s *Signers) AddTo(text string) (string, error) {
	keys := slices.DeleteFunc(parseFormer(text), func(k formerKey) bool { return k.shard == s.config.Shard || k.end.IsZero() })
	for _, der := range s.own {
		keys = append(keys, formerKey{shard: s.config.Shard, der: der, lifetime: s.config.TokenLifetime})
	}
	for {
		text = formatFormer(keys)
		if len(text) <= maxSigners {
			return text, nil
		}
		oldest := -1 // of the keys that verify only tokens in Secrets
		for i, k := range keys {
			if s.isEnded(k) && (oldest < 0 || k.end.Before(keys[oldest].end)) {
				oldest = i
			}
		}
		if oldest < 0 {
			return "", fmt.Errorf("the keys of the shards that held the logical cluster have more than %d bytes: tokens that they have signed "+
				"are still valid", maxSigners)
		}
		keys = slices.Delete(keys, oldest, oldest+1)
	}
}

// Arrive returns the keys of former shards, in PEM, of a logical cluster that has moved to this shard: the key of its origin ends when the
// last token ends that the origin can have signed. A repeated call changes nothing.
func (s *Signers) Arrive(text string) string {
	keys := parseFormer(text)
	for i, k := range keys {
		if k.end.IsZero() {
			keys[i].end = s.config.Clock.Now().Add(k.lifetime + clockSkew)
		}
	}
	return formatFormer(keys)
}

// isEnded reports whether all tokens have ended that a key has signed, except for those in Secrets, which have no end.
func (s *Signers) isEnded(k formerKey) bool {
	return !k.end.IsZero() && !s.config.Clock.Now().Before(k.end)
}

// former returns the keys of former shards that verify the tokens of a request. The files of this shard alone decide about its own keys.
func (s *Signers) former(text string, tokens []string) []any {
	var keys []any
	for _, k := range parseFormer(text) {
		if k.shard == s.config.Shard || k.end.IsZero() || (s.isEnded(k) && !(s.config.SecretsAreRead && areLegacy(tokens))) {
			continue
		}
		if key, err := x509.ParsePKIXPublicKey(k.der); err == nil {
			keys = append(keys, key)
		}
	}
	return keys
}

// areLegacy reports whether all tokens are of the kind that is stored in Secrets. Upstream compares them with the Secret, so that a key
// alone proves nothing.
func areLegacy(tokens []string) bool {
	return len(tokens) > 0 && !slices.ContainsFunc(tokens, func(token string) bool { return issuerOf(token) != serviceaccount.LegacyIssuer })
}

// issuerOf returns the issuer that a token claims, as upstream reads it to choose how the token is verified.
func issuerOf(token string) string {
	parts := strings.Split(token, ".")
	if len(token) > maxTokenLength || len(parts) != 3 {
		return ""
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var claims struct {
		Issuer string `json:"iss"`
	}
	if json.Unmarshal(payload, &claims) != nil {
		return ""
	}
	return claims.Issuer
}
