package feed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// keptKind is a kind of stored objects.
type keptKind struct {
	informer *informers.Informer
	example  runtime.Object
	// last reports whether the objects are written after, and deleted before, those of all other kinds.
	last bool
}

// prefix of the names of the objects.
func (k keptKind) prefix() string {
	r := k.informer.Resource()
	return r.Group + "/" + r.Version + "/" + r.Resource + "/"
}

func (k keptKind) name(key informers.OfferedKey) string {
	return k.prefix() + key.Shard + "/" + string(key.Cluster) + "/" + key.Name
}

// shardOf returns the shard and the cluster in the name of an object.
func (k keptKind) shardOf(name string) (shard string, cluster logicalcluster.Name, ok bool) {
	rest, ok := strings.CutPrefix(name, k.prefix())
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != 3 {
		return "", "", false
	}
	return parts[0], logicalcluster.Name(parts[1]), true
}

func keptKinds(of []*informers.Informer) []keptKind {
	var kinds []keptKind
	for _, i := range of {
		for _, kind := range informers.Kinds() {
			if kind.Resource == i.Resource() {
				_, isExport := kind.Example.(*apisv1alpha2.APIExport)
				kinds = append(kinds, keptKind{i, kind.Example, isExport})
			}
		}
	}
	slices.SortStableFunc(kinds, func(a, b keptKind) int {
		switch {
		case a.last == b.last:
			return 0
		case b.last:
			return -1
		}
		return 1
	})
	return kinds
}

// kindOf returns the kind of a stored object.
func (k *Kept) kindOf(name string) (keptKind, bool) {
	for _, kind := range k.kinds {
		if strings.HasPrefix(name, kind.prefix()) {
			return kind, true
		}
	}
	return keptKind{}, false
}

// keptState identifies the state of an object.
type keptState struct {
	uid types.UID
	position
}

func stateOf(obj runtime.Object) keptState {
	m, err := meta.Accessor(obj)
	if err != nil {
		return keptState{}
	}
	return keptState{m.GetUID(), positionOf(obj)}
}

// Load makes the informers show what was stored. It must return before the first request is served.
func (k *Kept) Load(ctx context.Context) error {
	loaded := map[logicalcluster.Name]bool{}
	err := k.in.Store.All(ctx, func(name string, value []byte) {
		cluster, err := k.load(name, value)
		if err != nil { // what it is needed for gets 503
			utilruntime.HandleErrorWithContext(ctx, err, "Stored object of another shard is left out", decisionlog.Name, name)
			return
		}
		loaded[cluster] = true
	})
	if err != nil {
		return err
	}
	k.in.Reader.mu.Lock()
	defer k.in.Reader.mu.Unlock()
	k.in.Reader.kept = loaded
	return nil
}

func (k *Kept) load(name string, value []byte) (logicalcluster.Name, error) {
	if export, ok := markOf(name); ok {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.exports.deleted[export] = true
		return export.Cluster, nil
	}
	kind, ok := k.kindOf(name)
	if !ok {
		return "", errors.New("unknown kind")
	}
	shard, cluster, ok := kind.shardOf(name)
	if !ok {
		return "", errors.New("invalid name")
	}
	obj := reflect.New(reflect.TypeOf(kind.example).Elem()).Interface().(runtime.Object)
	if err := json.Unmarshal(value, obj); err != nil {
		return "", err
	}
	key, err := informers.KeyOf(obj)
	if err != nil {
		return "", err
	}
	if kind.name(informers.OfferedKey{Shard: shard, Key: key}) != name {
		return "", fmt.Errorf("it is the object %s", key)
	}
	return cluster, k.in.Elsewhere.Set(kind.informer, shard, obj)
}

// readStates returns the states of all stored objects, by name.
func (k *Kept) readStates(ctx context.Context) (map[string]keptState, error) {
	states := map[string]keptState{}
	err := k.in.Store.All(ctx, func(name string, value []byte) {
		m := &metav1.PartialObjectMetadata{}
		_ = json.Unmarshal(value, m) // an invalid object has no state, and is replaced
		states[name] = stateOf(m)
	})
	return states, err
}

// write makes the store have what is needed. It keeps stored up to date.
func (k *Kept) write(ctx context.Context, stored map[string]keptState) error {
	k.mu.Lock()
	needed := k.needed
	k.mu.Unlock()
	wanted, marks := k.wanted(needed, stored), k.marks()
	maps.Copy(wanted, marks)
	if err := k.put(ctx, marks, stored); err != nil {
		return err
	}
	for _, name := range k.removable(needed, wanted, stored) {
		if err := k.in.Store.Delete(ctx, name); err != nil {
			return err
		}
		delete(stored, name)
	}
	for _, kind := range k.kinds { // exports last
		of := maps.Clone(wanted)
		maps.DeleteFunc(of, func(name string, _ runtime.Object) bool { return !strings.HasPrefix(name, kind.prefix()) })
		if err := k.put(ctx, of, stored); err != nil {
			return err
		}
	}
	k.resize(len(stored))
	return nil
}

// put stores objects unless they are stored already.
func (k *Kept) put(ctx context.Context, objects map[string]runtime.Object, stored map[string]keptState) error {
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		state := stateOf(objects[name])
		if stored[name] == state {
			continue
		}
		value, err := json.Marshal(objects[name])
		if err != nil {
			return err
		}
		if err := k.in.Store.Put(ctx, name, value); err != nil {
			return err
		}
		stored[name] = state
	}
	return nil
}

// wanted returns the objects that must be stored, by name: those of needed clusters that count, and as long as the holder of a cluster is
// not known, those that are stored.
func (k *Kept) wanted(needed map[logicalcluster.Name]bool, stored map[string]keptState) map[string]runtime.Object {
	wanted := map[string]runtime.Object{}
	for cluster := range needed {
		holder := k.in.Elsewhere.Holder(cluster)
		for _, kind := range k.kinds {
			for _, key := range k.in.Elsewhere.OfferedIn(kind.informer, cluster) {
				name := kind.name(key)
				_, isStored := stored[name]
				if key.Shard != holder && (holder != "" || !isStored) {
					continue
				}
				if obj, ok := k.in.Elsewhere.Offered(kind.informer, key); ok {
					wanted[name] = obj
				}
			}
		}
	}
	return wanted
}

// removable returns what is stored and not wanted, exports first.
func (k *Kept) removable(needed map[logicalcluster.Name]bool, wanted map[string]runtime.Object, stored map[string]keptState) []string {
	var exports, others []string
	uncertain := k.uncertain(needed, stored)
	for _, name := range slices.Sorted(maps.Keys(stored)) {
		if _, ok := wanted[name]; ok || uncertain && !needed[k.clusterOf(name)] {
			continue
		}
		if kind, ok := k.kindOf(name); ok && kind.last {
			exports = append(exports, name)
		} else {
			others = append(others, name)
		}
	}
	return append(exports, others...)
}

// uncertain reports whether the holder of a needed cluster is not known of which something is stored.
func (k *Kept) uncertain(needed map[logicalcluster.Name]bool, stored map[string]keptState) bool {
	for name := range stored {
		if cluster := k.clusterOf(name); needed[cluster] && k.in.Elsewhere.Holder(cluster) == "" {
			return true
		}
	}
	return false
}

// clusterOf returns the cluster in the name of an object.
func (k *Kept) clusterOf(name string) logicalcluster.Name {
	if export, ok := markOf(name); ok {
		return export.Cluster
	}
	kind, ok := k.kindOf(name)
	if !ok {
		return ""
	}
	_, cluster, _ := kind.shardOf(name)
	return cluster
}
