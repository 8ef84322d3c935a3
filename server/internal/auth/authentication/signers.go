package authentication

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	"k8s.io/client-go/util/keyutil"
	"k8s.io/kubernetes/pkg/serviceaccount"
	"k8s.io/utils/clock"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// SignersConfig is the configuration of Signers.
type SignersConfig struct {
	// Shard is this shard.
	Shard string
	// Files contain its keys, which may be private.
	Files []string
	// TokenLifetime is how long the keys of this shard count for a logical cluster that leaves it.
	TokenLifetime time.Duration
	// SecretsAreRead means that a token in a Secret is valid only while the Secret has it. Only then does it outlive its key.
	SecretsAreRead bool
	Clock          clock.PassiveClock
}

// Signers are the public keys that verify service account tokens: those of this shard and, for tokens of a logical cluster that was moved
// here, those of the shards that held it before. The context of a verification has the logical cluster that the token claims.
//
// Invariants:
//   - The key of another shard counts only for clusters that it held, and until the last token ends that it can have signed for them.
//   - After that, it counts only for tokens that are stored in a Secret of the cluster, because these have no end: the Secret decides.
//   - Keys of this shard count only while they are in its files, also for a cluster that has returned.
type Signers struct {
	serviceaccount.PublicKeysGetter
	config SignersConfig
	own    [][]byte // DER
	// Former returns the public keys, in PEM, of the shards that held a cluster before.
	Former func(logicalcluster.Name) string
}

// NewSigners returns the keys in files.
func NewSigners(config SignersConfig) (*Signers, error) {
	s := &Signers{config: config, Former: func(logicalcluster.Name) string { return "" }}
	var all []any
	for _, file := range config.Files {
		keys, err := keyutil.PublicKeysFromFile(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, key := range keys {
			der, err := x509.MarshalPKIXPublicKey(key)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			s.own = append(s.own, der)
		}
		all = append(all, keys...)
	}
	var err error
	s.PublicKeysGetter, err = serviceaccount.StaticPublicKeysGetter(all)
	return s, err
}

// GetPublicKeys implements serviceaccount.PublicKeysGetter.
func (s *Signers) GetPublicKeys(ctx context.Context, id string) []serviceaccount.PublicKey {
	own := s.PublicKeysGetter.GetPublicKeys(ctx, id)
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return own
	}
	text := s.Former(cluster)
	if text == "" {
		return own
	}
	former, err := serviceaccount.StaticPublicKeysGetter(s.former(text, borneBy(ctx)))
	if err != nil {
		return own
	}
	return slices.Concat(own, former.GetPublicKeys(ctx, id))
}

type borneKey struct{}

// withBorne returns a context with the tokens of its request.
func withBorne(ctx context.Context, tokens []string) context.Context {
	return context.WithValue(ctx, borneKey{}, tokens)
}

func borneBy(ctx context.Context) []string {
	tokens, _ := ctx.Value(borneKey{}).([]string)
	return tokens
}
