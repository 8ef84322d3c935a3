package authentication

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"

	"k8s.io/client-go/util/keyutil"
	"k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// Signers are the public keys that verify service account tokens: those of this shard and, for tokens of a logical cluster that was moved
// here, those of the shards that held it before. The context of a verification has the logical cluster that the token claims.
type Signers struct {
	serviceaccount.PublicKeysGetter
	own string
	// Former returns the public keys, in PEM, of the shards that held a cluster before.
	Former func(logicalcluster.Name) string
}

// maxSigners limits the bytes of the keys of former shards.
const maxSigners = 32 << 10

// NewSigners returns the keys in files, which may be private.
func NewSigners(files []string) (*Signers, error) {
	s := &Signers{Former: func(logicalcluster.Name) string { return "" }}
	var all []any
	text := &bytes.Buffer{}
	for _, file := range files {
		keys, err := keyutil.PublicKeysFromFile(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, key := range keys {
			der, err := x509.MarshalPKIXPublicKey(key)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			_ = pem.Encode(text, &pem.Block{Type: "PUBLIC KEY", Bytes: der}) // to memory
		}
		all = append(all, keys...)
	}
	s.own = text.String()
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
	keys, err := keyutil.ParsePublicKeysPEM([]byte(text))
	if err != nil {
		return own
	}
	former, err := serviceaccount.StaticPublicKeysGetter(keys)
	if err != nil {
		return own
	}
	return slices.Concat(own, former.GetPublicKeys(ctx, id))
}

// AddTo returns keys in PEM with those of this shard.
func (s *Signers) AddTo(keys string) (string, error) {
	if strings.Contains(keys, s.own) {
		return keys, nil
	}
	if len(keys)+len(s.own) > maxSigners {
		return keys, fmt.Errorf("the keys of the shards that held the logical cluster have more than %d bytes", maxSigners)
	}
	return keys + s.own, nil
}
