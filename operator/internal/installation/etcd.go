package installation

import (
	"cmp"
	"context"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/conditions"
)

// store is a part of an external etcd that a component uses.
type store struct {
	kind   string
	object client.Object
	config v1alpha1.EtcdConfig
	// prefix is the default one of the component.
	prefix string
}

// CheckEtcd returns an error if an older component of the namespace uses the same keys of an external etcd.
func CheckEtcd(ctx context.Context, c client.Reader, owner client.Object) error {
	all, err := stores(ctx, c, owner.GetNamespace())
	if err != nil {
		return err
	}
	own := slices.IndexFunc(all, func(s store) bool { return s.object.GetUID() == owner.GetUID() })
	if own < 0 {
		return nil
	}
	for _, other := range all {
		if other.object.GetUID() != owner.GetUID() && other.before(all[own]) && other.shares(all[own]) {
			return conditions.Stall("EtcdInUse", "spec.etcd: %s %s has its data in this etcd: set another prefix, or use another etcd",
				other.kind, other.object.GetName())
		}
	}
	return nil
}

// before reports whether a component is older than another one.
func (s store) before(other store) bool {
	a, b := s.object.GetCreationTimestamp(), other.object.GetCreationTimestamp()
	return cmp.Or(a.Compare(b.Time), cmp.Compare(s.kind, other.kind), cmp.Compare(s.object.GetName(), other.object.GetName())) < 0
}

// shares reports whether two components would store data under the same keys.
func (s store) shares(other store) bool {
	return cmp.Or(s.config.Prefix, s.prefix) == cmp.Or(other.config.Prefix, other.prefix) &&
		slices.ContainsFunc(s.config.Endpoints, func(e v1alpha1.EtcdEndpoint) bool { return slices.Contains(other.config.Endpoints, e) })
}

// stores returns the external etcds of all components in a namespace.
func stores(ctx context.Context, c client.Reader, namespace string) ([]store, error) {
	roots, further, caches := &v1alpha1.RootShardList{}, &v1alpha1.ShardList{}, &v1alpha1.CacheServerList{}
	for _, list := range []client.ObjectList{roots, further, caches} {
		if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, err
		}
	}
	var all []store
	for i := range roots.Items {
		all = append(all, store{kind: "RootShard", object: &roots.Items[i], config: roots.Items[i].Spec.Etcd, prefix: "/registry"})
	}
	for i := range further.Items {
		all = append(all, store{kind: "Shard", object: &further.Items[i], config: further.Items[i].Spec.Etcd, prefix: "/registry"})
	}
	for i := range caches.Items {
		if config := caches.Items[i].Spec.Etcd; config != nil {
			all = append(all, store{kind: "CacheServer", object: &caches.Items[i], config: *config, prefix: "/cache"})
		}
	}
	return all, nil
}
