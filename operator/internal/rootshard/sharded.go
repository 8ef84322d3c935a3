package rootshard

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/apply"
	"github.com/kcplane/kcp/operator/internal/component"
	"github.com/kcplane/kcp/operator/internal/installation"
	"github.com/kcplane/kcp/operator/internal/kcpaccess"
	"github.com/kcplane/kcp/operator/internal/shard"
)

// +kubebuilder:rbac:groups=operator.kcp.io,resources=frontproxies;cacheservers,verbs=get;list;watch

// sharded reports whether a RootShard is one of several processes of an installation: another component refers to it, or did once. A store
// that belongs to the root shard of an installation is never that of a single server again. The Secret of the CA for peers, which remains
// when the RootShard is deleted like the data of a managed etcd, is the evidence.
func (r *Reconciler) sharded(ctx context.Context, rs *v1alpha1.RootShard, s *shard.Shard) (bool, error) {
	if installation.CacheName(rs.Spec.Cache) != "" {
		return true, nil
	}
	further, proxies := &v1alpha1.ShardList{}, &v1alpha1.FrontProxyList{}
	for _, list := range []client.ObjectList{further, proxies} {
		if err := r.List(ctx, list, client.InNamespace(rs.Namespace), client.UnsafeDisableDeepCopy); err != nil {
			return false, err
		}
	}
	if slices.ContainsFunc(further.Items, func(s v1alpha1.Shard) bool { return installation.Refers(s.Spec.RootShard, rs) }) ||
		slices.ContainsFunc(proxies.Items, func(f v1alpha1.FrontProxy) bool { return installation.Refers(f.Spec.RootShard, rs) }) {
		return true, nil
	}
	err := r.Get(ctx, client.ObjectKey{Namespace: rs.Namespace, Name: s.PeerCA()}, &corev1.Secret{})
	return err == nil, client.IgnoreNotFound(err)
}

// peerTrust creates the bundles of CAs for the certificates of front proxies and of all peers, the kubeconfig for the cache server, and the
// hash of the CAs with which the shard verifies other processes.
func (s *scope) peerTrust(ctx context.Context) error {
	if !s.shard.Sharded {
		return nil
	}
	proxies, err := s.Trusted(ctx, s.shard.ProxyCA(), s.shard.ProxyBundle(), "", nil)
	if err != nil {
		return err
	}
	peers, err := s.Trusted(ctx, s.shard.PeerCA(), s.shard.PeerBundle(), "", nil)
	if err != nil {
		return err
	}
	all := kcpaccess.Bundle("", "", nil, peers.Data[corev1.TLSCertKey], proxies.Data[corev1.TLSCertKey])
	peers.Data[corev1.TLSCertKey] = all.Data[corev1.TLSCertKey]
	s.Report.Set(v1alpha1.ConditionCertificatesReady,
		s.Compare(ctx, s.shard.PeerCA(), peers.Data[corev1.TLSCertKey], "", s.shard.Leaf(shard.Client)))
	for _, bundle := range []*corev1.Secret{proxies, peers} {
		if err := apply.Keep(ctx, s.Client, s.rs, bundle); err != nil {
			return err
		}
	}
	s.peers = map[string][]byte{"peers": peers.Data[component.OwnAuthorities], "proxies": proxies.Data[component.OwnAuthorities]}
	return s.CacheKubeconfig(ctx, s.shard)
}
