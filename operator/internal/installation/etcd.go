package installation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/conditions"
)

// rootKind is the kind of root shards in messages.
const rootKind = "RootShard"

// store is a part of an external etcd that a component uses.
type store struct {
	kind   string
	object client.Object
	config v1alpha1.EtcdConfig
	// prefix is the default one of the component.
	prefix string
}

// recheck is the interval of checks whether another component still uses what only one may use, because no watch reports it.
const recheck = 30 * time.Second

// CheckEtcd returns an error if an older component of the namespace uses the same keys of an external etcd. RootShards are not compared
// with each other: see SharedEtcd.
func CheckEtcd(ctx context.Context, c client.Reader, owner client.Object) error {
	other, err := olderUser(ctx, c, owner, func(a, b store) bool { return a.kind != rootKind || b.kind != rootKind })
	if err != nil || other == nil {
		return err
	}
	return conditions.Unwatched(recheck, conditions.Stall("EtcdInUse",
		"spec.etcd: %s %s has its data in this etcd: set another prefix, or use another etcd", other.kind, other.object.GetName()))
}

// SharedEtcd sets the condition EtcdShared of a RootShard: a warning that an older RootShard of the namespace uses the same keys of an
// external etcd. This is not an error, because a RootShard replaces another one in this way. It returns when to check again, if at all.
func SharedEtcd(ctx context.Context, c client.Reader, rs *v1alpha1.RootShard) (time.Duration, error) {
	other, err := olderUser(ctx, c, rs, func(a, b store) bool { return a.kind == rootKind && b.kind == rootKind })
	if err != nil {
		return 0, err
	}
	if other == nil {
		if meta.FindStatusCondition(rs.Status.Conditions, v1alpha1.ConditionEtcdShared) != nil {
			meta.SetStatusCondition(&rs.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionEtcdShared, Status: metav1.ConditionFalse,
				Reason: "AsExpected", ObservedGeneration: rs.Generation})
		}
		return 0, nil
	}
	meta.SetStatusCondition(&rs.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionEtcdShared, Status: metav1.ConditionTrue,
		Reason: "SameKeys", ObservedGeneration: rs.Generation, Message: fmt.Sprintf("RootShard %s has the same data in this etcd, and accepts "+
			"other credentials: delete it if this RootShard replaces it, otherwise set another spec.etcd.prefix", other.object.GetName())})
	return recheck, nil
}

// olderUser returns the oldest of the components that use the same keys of an external etcd as the owner and are older, or nil. Only pairs
// that compared accepts are compared. Lists of a cache have no order.
func olderUser(ctx context.Context, c client.Reader, owner client.Object, compared func(a, b store) bool) (*store, error) {
	all, err := stores(ctx, c, owner.GetNamespace())
	if err != nil {
		return nil, err
	}
	own := slices.IndexFunc(all, func(s store) bool { return s.object.GetUID() == owner.GetUID() })
	if own < 0 {
		return nil, nil
	}
	var oldest *store
	for i, other := range all {
		if i != own && compared(other, all[own]) && other.before(all[own]) && other.shares(all[own]) &&
			(oldest == nil || other.before(*oldest)) {
			oldest = &all[i]
		}
	}
	return oldest, nil
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
		if err := c.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
			return nil, err
		}
	}
	var all []store
	for i := range roots.Items {
		all = append(all, store{kind: rootKind, object: &roots.Items[i], config: roots.Items[i].Spec.Etcd, prefix: "/registry"})
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
