package rootshard

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/conditions"
	"github.com/kcplane/kcp/operator/internal/shard"
)

// references checks that the objects in the spec exist, and hashes those that the server reads only when it starts.
func (s *scope) references(ctx context.Context) error {
	s.shard.Inputs = map[string]string{}
	if ref := s.rs.Spec.KCPVirtualWorkspace; ref != nil {
		return conditions.Stall("NotSupported", "spec.kcpVirtualWorkspace: this operator does not support the kind VirtualWorkspace: remove "+
			"the field, and the shard serves virtual workspaces")
	}
	if c := s.rs.Spec.Cache; c != nil && c.Reference != nil {
		return conditions.Stall("NotSupported",
			"spec.cache.ref: this operator does not support the kind CacheServer: remove the field; the root shard contains the cache")
	}
	for _, ref := range shard.References(s.shard) {
		data, err := s.read(ctx, ref)
		if err != nil {
			return err
		}
		if keys := ref.Hashed(); len(keys) > 0 {
			s.shard.Inputs[ref.Input()] = hash(data, keys)
		}
	}
	return nil
}

// withoutEffect returns the fields that are set and have no effect, with the reason.
func withoutEffect(spec *v1alpha1.RootShardSpec) []string {
	var fields []string
	add := func(set bool, field string) {
		if set {
			fields = append(fields, field)
		}
	}
	add(spec.Proxy != nil, "spec.proxy: the operator connects to the shard directly")
	add(spec.Cache != nil && spec.Cache.Embedded != nil, "spec.cache.embedded: the root shard contains the cache")
	if auth := spec.Auth; auth != nil {
		add(auth.OIDC != nil && auth.OIDC.ClientSecret != "", "spec.auth.oidc.clientSecret: the server does not need it")
		add(len(auth.DropGroups)+len(auth.PassOnGroups) > 0, "spec.auth.dropGroups and passOnGroups: they apply to front proxies")
	}
	return fields
}

func (s *scope) content(ctx context.Context, ref shard.Reference) (kind, name string, data map[string][]byte, err error) {
	if ref.ConfigMap == "" {
		secret := &corev1.Secret{}
		err = s.Get(ctx, client.ObjectKey{Namespace: s.rs.Namespace, Name: ref.Secret}, secret)
		return "Secret", ref.Secret, secret.Data, err
	}
	configMap := &corev1.ConfigMap{}
	err = s.Get(ctx, client.ObjectKey{Namespace: s.rs.Namespace, Name: ref.ConfigMap}, configMap)
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
