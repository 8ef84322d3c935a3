// Package installation finds the other components of the installation that a component belongs to, and what they share.
package installation

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/conditions"
	"github.com/kcplane/kcp/operator/internal/pki"
	"github.com/kcplane/kcp/operator/internal/shard"
	"github.com/kcplane/kcp/operator/internal/workload"
)

// Root returns the RootShard that an object refers to in a field.
func Root(ctx context.Context, c client.Reader, namespace, field string, ref *v1alpha1.LocalReference) (*v1alpha1.RootShard, error) {
	if ref == nil { // an object from before the field was required
		return nil, conditions.Stall("NoReference", "spec.%s is empty: set it to the name of a RootShard", field)
	}
	rs := &v1alpha1.RootShard{}
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, rs)
	if apierrors.IsNotFound(err) {
		return nil, conditions.Stall("ReferenceNotFound", "spec.%s: there is no RootShard %s: create it", field, ref.Name)
	}
	if err != nil {
		return nil, err
	}
	return rs, nil
}

// Refers reports whether a component is one of the installation of a RootShard in its namespace.
func Refers(config v1alpha1.RootShardConfig, rs *v1alpha1.RootShard) bool {
	return config.Reference != nil && config.Reference.Name == rs.Name
}

// CacheName returns the name of the CacheServer in a field, or an empty string.
func CacheName(config *v1alpha1.CacheConfig) string {
	if config == nil || config.Reference == nil {
		return ""
	}
	return config.Reference.Name
}

// Cache returns the cache server of an installation, or nil if its root shard contains the cache. The CacheServer and its certificates may
// not exist yet.
func Cache(rs *v1alpha1.RootShard) *shard.Cache {
	name := CacheName(rs.Spec.Cache)
	if name == "" {
		return nil
	}
	prefix := CachePrefix(name)
	return &shard.Cache{Issuer: prefix + "ca", Bundle: prefix + "merged-ca-bundle"}
}

// CacheLabel has the name of a CacheServer on its Secrets.
const CacheLabel = "operator.kcp.io/cache-server"

// CachePrefix returns the prefix of the names of the objects of a CacheServer.
func CachePrefix(name string) string { return name + "-cache-server-" }

// CacheHost returns the DNS name of the Service of a CacheServer.
func CacheHost(c *v1alpha1.CacheServer) string {
	return CacheWorkload(c.Name) + "." + c.Namespace + ".svc." + cmp.Or(c.Spec.ClusterDomain, "cluster.local")
}

// CacheWorkload returns the name of the StatefulSet and of the Service of a CacheServer.
func CacheWorkload(name string) string { return name + "-cache-server" }

// CheckCache completes the cache server of an installation from its CacheServer, and returns an error if shards cannot use it.
func CheckCache(ctx context.Context, c client.Reader, rs *v1alpha1.RootShard, cache *shard.Cache) error {
	if cache == nil {
		return nil
	}
	name := CacheName(rs.Spec.Cache)
	server := &v1alpha1.CacheServer{}
	err := c.Get(ctx, client.ObjectKey{Namespace: rs.Namespace, Name: name}, server)
	if apierrors.IsNotFound(err) {
		return conditions.Stall("ReferenceNotFound", "spec.cache.ref of RootShard %s: there is no CacheServer %s: create it", rs.Name, name)
	}
	if err != nil {
		return err
	}
	first, err := CacheUser(ctx, c, rs.Namespace, name)
	if err != nil {
		return err
	}
	if first != rs.Name {
		return conditions.Unwatched(recheck, conditions.Stall("CacheInUse", "spec.cache.ref of RootShard %s: CacheServer %s is that of "+
			"RootShard %s: a cache server is for the shards of one installation: create another CacheServer", rs.Name, name, first))
	}
	if template, ok := server.Spec.CertificateTemplates["client"]; ok {
		cache.Template = &template
	}
	cache.URL = fmt.Sprintf("https://%s:%d", CacheHost(server), workload.Port)
	bundle := &corev1.Secret{}
	err = c.Get(ctx, client.ObjectKey{Namespace: rs.Namespace, Name: cache.Bundle}, bundle)
	if apierrors.IsNotFound(err) {
		return conditions.Wait("CacheNotReady", "waiting for CacheServer %s to publish its certificate authority", name)
	}
	return err
}

// CacheUser returns the name of the RootShard whose shards use a CacheServer: the oldest one that names it. Empty: none does.
func CacheUser(ctx context.Context, c client.Reader, namespace, name string) (string, error) {
	list := &v1alpha1.RootShardList{}
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return "", err
	}
	users := slices.DeleteFunc(list.Items, func(rs v1alpha1.RootShard) bool { return CacheName(rs.Spec.Cache) != name })
	if len(users) == 0 {
		return "", nil
	}
	first := &users[0]
	for i := range users {
		if older(&users[i], first) {
			first = &users[i]
		}
	}
	return first.Name, nil
}

// Bundles returns the CAs that a RootShard publishes for its installation, by the names of their Secrets.
func Bundles(ctx context.Context, c client.Reader, root *shard.Shard, names ...string) (map[string][]byte, error) {
	all := map[string][]byte{}
	for _, name := range names {
		secret := &corev1.Secret{}
		err := c.Get(ctx, client.ObjectKey{Namespace: root.Namespace, Name: name}, secret)
		if client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		if len(secret.Data[corev1.TLSCertKey]) == 0 {
			return nil, conditions.Wait("RootShardNotReady", "waiting for RootShard %s to publish its certificate authorities in Secret %s",
				root.Name, name)
		}
		all[name] = secret.Data[corev1.TLSCertKey]
	}
	return all, nil
}

// Trusted returns an error if the other components of an installation do not trust the server's certificate of one.
func Trusted(certificate string, chain, authorities []byte, root string) error {
	if pki.TrustedBy(chain, authorities) {
		return nil
	}
	return conditions.Wait("CertificateNotTrusted", "Certificate %s: the other components of the installation do not trust its authority: "+
		"name a Secret with it in spec.caBundleSecretRef of RootShard %s", certificate, root)
}
