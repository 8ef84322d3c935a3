package feed

import (
	"hash/maphash"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcplane/kcp/server/internal/cacheserver"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// received is an object of another shard.
type received struct {
	informers.OfferedKey
	object runtime.Object
}

// dropped are annotations of objects in the cache server that no reader needs.
var dropped = []string{
	cacheserver.Shard, cacheserver.OriginalResourceVersion, cacheserver.OriginalUID, cacheserver.LeaderTerm,
	corev1.LastAppliedConfigAnnotation,
	"internal.kcp.io/replicate",
}

// receive returns an object of the cache server as its shard has it, and false for one that this shard does not take. It changes obj.
func (i *interner) receive(obj runtime.Object, own string) (received, bool) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return received{}, false
	}
	annotations := m.GetAnnotations()
	shard, cluster := annotations[cacheserver.Shard], logicalcluster.Of(m)
	if shard == "" || shard == own || cluster == "" || cluster.IsSystem() {
		return received{}, false
	}
	if uid := annotations[cacheserver.OriginalUID]; uid != "" {
		m.SetUID(types.UID(uid))
	}
	m.SetResourceVersion(annotations[cacheserver.OriginalResourceVersion])
	m.SetManagedFields(nil)
	for _, key := range dropped {
		delete(annotations, key)
	}
	m.SetAnnotations(i.strings(annotations))
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	key := informers.OfferedKey{Shard: i.shared(shard), Key: informers.Key{Cluster: cluster, Namespace: m.GetNamespace(), Name: m.GetName()}}
	return received{key, obj}, true
}

// position is the state of a shard in which it offered an object.
type position struct {
	incarnation string
	version     uint64
}

func positionOf(obj runtime.Object) position {
	m, err := meta.Accessor(obj)
	if err != nil {
		return position{}
	}
	version, _ := strconv.ParseUint(m.GetResourceVersion(), 10, 64) // zero is older than all
	return position{m.GetAnnotations()[cacheserver.Incarnation], version}
}

// follows reports whether an object at p may replace, or delete, one at held. Within an incarnation versions rise. Versions of different
// incarnations cannot be compared: then the one with which the shard is registered stays.
func (p position) follows(held position, registered string) bool {
	if p.incarnation == held.incarnation {
		return p.version >= held.version
	}
	return held.incarnation != registered || registered == ""
}

// interner makes equal strings of different objects share memory.
type interner struct {
	seed  maphash.Seed
	mu    sync.Mutex
	slots [1 << 12]string // a new string replaces an older one in its slot
}

func newInterner() *interner { return &interner{seed: maphash.MakeSeed()} }

// strings returns an equal map with shared keys, and shared values of the annotations that repeat. Other values are copied: the memory of a
// whole response would remain otherwise.
func (i *interner) strings(m map[string]string) map[string]string {
	i.mu.Lock()
	defer i.mu.Unlock()
	shared := make(map[string]string, len(m))
	for key, value := range m {
		shared[i.string(key)] = i.string(value)
	}
	return shared
}

func (i *interner) shared(s string) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.string(s)
}

func (i *interner) string(s string) string {
	slot := &i.slots[maphash.String(i.seed, s)%uint64(len(i.slots))]
	if *slot != s {
		*slot = strings.Clone(s)
	}
	return *slot
}
