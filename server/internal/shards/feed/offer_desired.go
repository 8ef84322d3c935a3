package feed

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Limits of what a logical cluster may offer. Without them, one tenant could fill the cache server and the memory of all shards. The excess
// is what is youngest. Places do not count: each of them belongs to a logical cluster that offers something.
const (
	// DefaultMaxObjects is more than twice the schemas of the largest known providers.
	DefaultMaxObjects = 5_000
	// DefaultMaxBytes is the maximum size of all objects as JSON.
	DefaultMaxBytes = 64 << 20
)

// Limits are the maximum number of objects that a logical cluster offers, and the sum of their sizes.
type Limits struct{ Objects, Bytes int }

// id identifies an object in a logical cluster.
type id struct {
	kind *kind
	name string
}

// origin is a state of an object on this shard, and why it is offered.
type origin struct {
	uid     types.UID
	version string
	words   []string
}

func (o origin) equal(other origin) bool {
	return o.uid == other.uid && o.version == other.version && sameStrings(o.words, other.words)
}

// item is an object to offer.
type item struct {
	id
	object object
	origin origin
	size   int
	sum    sum
}

// desired is what a logical cluster is to offer, in the order in which it is written.
type desired struct {
	items []item
	// excess are the objects over the limit.
	excess []item
	bytes  int
	// roles are the states of all ClusterRoles and ClusterRoleBindings that were considered.
	roles []origin
	err   error // of objects that cannot be offered
}

// candidates are the objects of one kind of a logical cluster to offer.
type candidates struct {
	kind    *kind
	objects []object
}

// content returns the objects that a logical cluster offers, without its places, and the states of its roles and bindings. It is empty for
// a cluster that this shard does not hold, and for those of the server.
func (o *Offer) content(cluster logicalcluster.Name) (found []candidates, s *surroundings, roles []origin) {
	if cluster.IsSystem() {
		return nil, nil, nil
	}
	if _, err := o.in.Set.LogicalClusters.Get(cluster, "", corev1alpha1.LogicalClusterName); err != nil {
		return nil, nil, nil
	}
	all := make([]candidates, 0, len(o.kinds))
	for _, k := range o.kinds {
		objects := existing(k, cluster)
		if k.isRBAC() {
			for _, obj := range objects {
				roles = append(roles, origin{uid: obj.GetUID(), version: obj.GetResourceVersion()})
			}
		}
		if len(objects) > 0 {
			all = append(all, candidates{k, objects})
		}
	}
	s = surroundingsOf(cluster, all)
	for _, c := range all {
		c.objects = slices.DeleteFunc(c.objects, func(obj object) bool { return !c.kind.offered(obj, s) })
		if len(c.objects) > 0 {
			inOrderOfAge(c.objects)
			found = append(found, c)
		}
	}
	return found, s, roles
}

// existing returns the objects of a kind in a cluster, in the order of their names.
func existing(k *kind, cluster logicalcluster.Name) []object {
	local := k.informer.Local(cluster)
	objects := make([]object, 0, len(local))
	for _, obj := range local {
		if o, ok := obj.(object); ok && !isGone(o) {
			objects = append(objects, o)
		}
	}
	slices.SortFunc(objects, func(a, b object) int { return compareStrings(a.GetName(), b.GetName()) })
	return objects
}

func surroundingsOf(cluster logicalcluster.Name, all []candidates) *surroundings {
	var roles []*rbacv1.ClusterRole
	var bindings []*rbacv1.ClusterRoleBinding
	exports, hasTypes := false, false
	for _, c := range all {
		exports = exports || c.kind.name == "APIExport"
		hasTypes = hasTypes || c.kind.name == "WorkspaceType"
		for _, obj := range c.objects {
			switch obj := obj.(type) {
			case *rbacv1.ClusterRole:
				roles = append(roles, obj)
			case *rbacv1.ClusterRoleBinding:
				bindings = append(bindings, obj)
			}
		}
	}
	return newSurroundings(cluster, roles, bindings, exports, hasTypes)
}

// desired returns what a cluster is to offer. known is what the cache server has of it.
func (o *Offer) desired(cluster logicalcluster.Name, known map[id]*entry) desired {
	content, s, roles := o.content(cluster)
	d := desired{roles: roles}
	places := o.place(cluster, len(content) > 0)
	if s == nil || len(places) == 0 {
		return d
	}
	for _, p := range places {
		d.add(o, known, s, p.kind, p.object)
	}
	limit := meter{limits: o.in.Limits}
	for _, c := range content {
		for _, obj := range c.objects {
			if limit.isFull() {
				d.excess = append(d.excess, item{id: id{c.kind, obj.GetName()}, object: obj})
				continue
			}
			size := d.add(o, known, s, c.kind, obj)
			if !limit.add(size) {
				d.items = d.items[:len(d.items)-1]
				d.bytes -= size
				d.excess = append(d.excess, item{id: id{c.kind, obj.GetName()}, object: obj})
			}
		}
	}
	return d
}

// meter counts the objects of a logical cluster. Once an object does not fit, it is full: an object is never offered without those that
// are written before it, which may restrict it.
type meter struct {
	limits         Limits
	objects, bytes int
	full           bool
}

func (m *meter) isFull() bool { return m.full }

// add counts an object, and returns whether it is within the limits.
func (m *meter) add(size int) bool {
	m.objects++
	m.bytes += size
	m.full = m.objects > m.limits.Objects || m.bytes > m.limits.Bytes
	return !m.full
}

// itemOf returns an object to offer. It is encoded only if it has changed since it was written.
func (o *Offer) itemOf(known map[id]*entry, k *kind, obj object, words []string) (item, error) {
	it := item{
		id: id{k, obj.GetName()}, object: obj, origin: origin{uid: obj.GetUID(), version: obj.GetResourceVersion(), words: words},
	}
	if e := known[it.id]; e != nil && e.encoded.uid != "" && e.encoded.equal(it.origin) {
		it.size, it.sum = e.size, e.encodedSum
		return it, nil
	}
	var err error
	_, it.size, it.sum, err = copyOf(k, obj, words, o.in.Incarnation)
	return it, err
}

// add adds an object and returns its size.
func (d *desired) add(o *Offer, known map[id]*entry, s *surroundings, k *kind, obj object) int {
	it, err := o.itemOf(known, k, obj, s.wordsOf(obj))
	if err != nil && d.err == nil {
		d.err = err
	}
	d.items = append(d.items, it)
	d.bytes += it.size
	return it.size
}
