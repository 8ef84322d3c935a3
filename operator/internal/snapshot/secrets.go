package snapshot

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kcplane/kcp/operator/internal/retention"
)

// WithSecrets returns a store that stores a file of encrypted Secrets with each snapshot. The Secrets are stored first, so that each stored
// snapshot has them.
func WithSecrets(store Store, file string) Store { return &withSecrets{store, file} }

type withSecrets struct {
	Store
	file string
}

// Put implements Store.
func (s *withSecrets) Put(ctx context.Context, key, file string) error {
	if err := s.Store.Put(ctx, key+retention.SecretsSuffix, s.file); err != nil {
		return err
	}
	return s.Store.Put(ctx, key, file)
}

// Secrets returns the encrypted Secrets that are stored with a snapshot.
func Secrets(ctx context.Context, store Store, key string) ([]byte, error) {
	directory, err := os.MkdirTemp("", "secrets-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(directory)
	file := filepath.Join(directory, "encrypted")
	if err := store.Get(ctx, key+retention.SecretsSuffix, file); err != nil {
		return nil, fmt.Errorf("reading %s: %w", key+retention.SecretsSuffix, err)
	}
	return os.ReadFile(file)
}
