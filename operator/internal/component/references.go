package component

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/operator/internal/settings"
)

// References checks that the objects in the spec exist, and hashes those that the component reads only when it starts.
func (s *Scope) References(ctx context.Context, references []settings.Reference) error {
	for _, ref := range references {
		data, err := s.Read(ctx, ref)
		if err != nil {
			return err
		}
		if keys := ref.Hashed(); len(keys) > 0 {
			s.Inputs[ref.Input()] = hash(data, keys)
		}
	}
	return nil
}

func (s *Scope) content(ctx context.Context, ref settings.Reference) (kind, name string, data map[string][]byte, err error) {
	if ref.ConfigMap == "" {
		secret := &corev1.Secret{}
		err = s.Get(ctx, client.ObjectKey{Namespace: s.Owner.GetNamespace(), Name: ref.Secret}, secret)
		return "Secret", ref.Secret, secret.Data, err
	}
	configMap := &corev1.ConfigMap{}
	err = s.Get(ctx, client.ObjectKey{Namespace: s.Owner.GetNamespace(), Name: ref.ConfigMap}, configMap)
	data = map[string][]byte{}
	for key, value := range configMap.Data {
		data[key] = []byte(value)
	}
	return "ConfigMap", ref.ConfigMap, data, err
}

func hash(data map[string][]byte, keys []string) string {
	sum := sha256.New()
	for _, key := range keys {
		part := sha256.Sum256(data[key])
		sum.Write(part[:])
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}
