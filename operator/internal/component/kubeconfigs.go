package component

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/operator/internal/apply"
	"github.com/kcplane/kcp/operator/internal/kcpaccess"
	"github.com/kcplane/kcp/operator/internal/shard"
)

// CacheKubeconfig creates the Secret with which a shard finds the cache server. The kubeconfig names the files of the certificates, which
// the shard reads again when they are renewed. Without a cache server, it removes the Secret.
func (s *Scope) CacheKubeconfig(ctx context.Context, of *shard.Shard) error {
	if of.Cache == nil {
		return apply.Remove(ctx, s.Client, s.Owner,
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: of.Namespace, Name: of.Kubeconfig(shard.CacheClient)}})
	}
	if of.Cache.URL == "" {
		return nil
	}
	secret, err := kcpaccess.FilesSecret(of.Namespace, of.Kubeconfig(shard.CacheClient), s.Labels, shard.CacheFiles(of))
	if err != nil {
		return err
	}
	return apply.All(ctx, s.Client, s.Owner, secret)
}
