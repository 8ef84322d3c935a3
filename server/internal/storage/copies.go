package storage

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// Copies reads all keys of a logical cluster in the store that it leaves, and writes them to the store in which it arrives. Values travel
// as objects: each store encrypts and compresses them in its own way.
type Copies struct {
	backend      *Backend
	transformers Transformers
}

// Transformers returns the transformer of the stored values of a resource; nil means none.
type Transformers func(resource schema.GroupResource) (value.Transformer, error)

// Copies returns the Copies of this store, which must have fences.
func (b *Backend) Copies(transformers Transformers) *Copies { return &Copies{b, transformers} }

// Entry is one key of a cluster.
type Entry struct {
	// Key is the key without the root of the store.
	Key string `json:"key"`
	// Value is the object, neither encrypted nor compressed.
	Value []byte `json:"value,omitempty"`
	// Deleted means that the key does not exist.
	Deleted bool `json:"deleted,omitempty"`
	// Seconds is the remaining time of the key's lease; zero means none.
	Seconds int64 `json:"seconds,omitempty"`
}

func (e Entry) size() int { return len(e.Key) + len(e.Value) }

const (
	// copyBytes is the size of the entries in a response after which it ends.
	copyBytes = 2 << 20
	// firstKeys and mostKeys limit the keys that are read at once, of which each may have the size of the largest object.
	firstKeys, mostKeys = 4, 500
	// scannedCollections limits the collections that one call looks for.
	scannedCollections = 2000
)

// keyParts are the parts of a key without the root.
type keyParts struct {
	// collection is the part before the cluster.
	collection string
	resource   schema.GroupResource
	cluster    logicalcluster.Name
}

// errNoObject means that a key is not that of an object.
var errNoObject = errors.New("not the key of an object")

// splitKey splits a key without the root: /<group>/<resource>[/customresources|/<identity>]/<cluster>/[<namespace>/]<name>. A resource is
// either compiled or custom, and no cluster has a name like an identity.
func splitKey(key string) (keyParts, error) {
	parts := strings.Split(key, "/")
	if len(parts) < 5 || parts[0] != "" {
		return keyParts{}, errNoObject
	}
	for _, part := range parts[1:] {
		if part == "" {
			return keyParts{}, errNoObject
		}
	}
	k := keyParts{resource: schema.GroupResource{Group: parts[1], Resource: parts[2]}}
	if k.resource.Group == "core" {
		k.resource.Group = ""
	}
	at := 3
	if "/"+parts[at] == custom || isIdentity(parts[at]) {
		at++
	}
	if left := len(parts) - at; left < 2 || left > 3 || isOwn(parts[1]) {
		return keyParts{}, errNoObject
	}
	k.collection, k.cluster = strings.Join(parts[:at], "/"), logicalcluster.Name(parts[at])
	return k, nil
}

// CollectionOf returns the collection of the key of an entry.
func CollectionOf(key string) (string, bool) {
	k, err := splitKey(key)
	return k.collection, err == nil
}

// CollectionOfCustom returns the collection of the objects of a resource that definitions of the server describe.
func CollectionOfCustom(resource schema.GroupResource) string {
	return resourcePrefix(resource) + custom
}

// isOwn reports whether keys that begin with a group are of the server, and not of a cluster.
func isOwn(group string) bool {
	return strings.HasPrefix(group, "kcp-") && !strings.Contains(group, ".")
}

// isIdentity reports whether a part of a key is an identity: a SHA-256 hash.
func isIdentity(part string) bool {
	if len(part) != 64 {
		return false
	}
	_, err := hex.DecodeString(part)
	return err == nil
}

// Collections returns the collections, in order, in which the cluster of ctx has keys at a revision. next is empty, or the collection after
// which another call continues. A call that starts at the beginning with revision zero reads the current one, and returns it.
func (c *Copies) Collections(ctx context.Context, revision int64, after string) (found []string, next string, at int64, err error) {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return nil, "", 0, err
	}
	all, next, at, err := c.scan(ctx, revision, after)
	if err != nil {
		return nil, "", 0, err
	}
	for from := 0; from < len(all); from += rangesPerRead {
		part := all[from:min(from+rangesPerRead, len(all))]
		reads := make([]clientv3.Op, len(part))
		for i, collection := range part {
			reads[i] = clientv3.OpGet(c.prefix(collection, cluster), clientv3.WithPrefix(), clientv3.WithRev(at), clientv3.WithKeysOnly(),
				clientv3.WithLimit(1))
		}
		answer, err := c.backend.client.Client.Txn(ctx).Then(reads...).Commit()
		if err != nil {
			return nil, "", 0, compactedError(err)
		}
		for i, r := range answer.Responses {
			if len(r.GetResponseRange().Kvs) > 0 {
				found = append(found, part[i])
			}
		}
	}
	return found, next, at, nil
}

// scan returns the next collections of all clusters. It reads one key of each.
func (c *Copies) scan(ctx context.Context, revision int64, after string) (all []string, next string, at int64, err error) {
	root := c.backend.root
	end := clientv3.WithRange(clientv3.GetPrefixRangeEnd(root + "/"))
	from := root + "/"
	if after != "" {
		from = clientv3.GetPrefixRangeEnd(root + after + "/")
	}
	for len(all) < scannedCollections {
		first, err := c.backend.client.Client.Get(ctx, from, end, clientv3.WithLimit(1), clientv3.WithKeysOnly(), clientv3.WithRev(revision))
		if err != nil {
			return nil, "", 0, compactedError(err)
		}
		if revision == 0 {
			revision = first.Header.Revision
		}
		if len(first.Kvs) == 0 {
			return all, "", revision, nil
		}
		key := strings.TrimPrefix(string(first.Kvs[0].Key), root)
		group, _, _ := strings.Cut(strings.TrimPrefix(key, "/"), "/")
		k, err := splitKey(key)
		switch {
		case isOwn(group):
			from = clientv3.GetPrefixRangeEnd(root + "/" + group + "/")
			continue
		case err != nil:
			return nil, "", 0, fmt.Errorf("etcd key %s: %w", key, err)
		}
		all = append(all, k.collection)
		from = clientv3.GetPrefixRangeEnd(root + k.collection + "/")
	}
	return all, all[len(all)-1], revision, nil
}

// prefix returns the prefix of the keys of a cluster in a collection.
func (c *Copies) prefix(collection string, cluster logicalcluster.Name) string {
	return c.backend.root + collection + "/" + string(cluster) + "/"
}

// Page returns the next entries, in order, of the cluster of ctx in a collection at a revision. next is empty, or the key after which
// another call continues.
func (c *Copies) Page(ctx context.Context, revision int64, collection, after string) (entries []Entry, next string, err error) {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return nil, "", err
	}
	prefix := c.prefix(collection, cluster)
	from, end := prefix, clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix))
	if after != "" {
		if from = c.backend.root + after + "\x00"; !strings.HasPrefix(from, prefix) {
			return nil, "", apierrors.NewBadRequest("the key to continue after is in another collection")
		}
	}
	leases := map[int64]int64{}
	for size, limit := 0, int64(firstKeys); ; {
		page, err := c.backend.client.Client.Get(ctx, from, end, clientv3.WithLimit(limit), clientv3.WithRev(revision))
		if err != nil {
			return nil, "", compactedError(err)
		}
		for _, kv := range page.Kvs {
			if size >= copyBytes {
				return entries, entries[len(entries)-1].Key, nil
			}
			entry, err := c.read(ctx, string(kv.Key), kv.Value, kv.Lease, leases)
			if err != nil {
				return nil, "", err
			}
			entries = append(entries, entry)
			size += entry.size()
			from = string(kv.Key) + "\x00"
		}
		if !page.More {
			return entries, "", nil
		}
		limit = min(mostKeys, max(firstKeys, int64(copyBytes-size)*int64(len(entries))/int64(max(size, 1))))
	}
}

// read returns the entry of a stored value.
func (c *Copies) read(ctx context.Context, key string, stored []byte, lease int64, leases map[int64]int64) (Entry, error) {
	entry := Entry{Key: strings.TrimPrefix(key, c.backend.root)}
	k, err := splitKey(entry.Key)
	if err != nil {
		return entry, fmt.Errorf("etcd key %s: %w", entry.Key, err)
	}
	if lease != 0 {
		if _, known := leases[lease]; !known {
			left, err := c.backend.client.Client.TimeToLive(ctx, clientv3.LeaseID(lease))
			if err != nil {
				return entry, err
			}
			leases[lease] = left.TTL
		}
		if entry.Seconds = leases[lease]; entry.Seconds <= 0 {
			entry.Seconds, entry.Deleted = 0, true
			return entry, nil
		}
	}
	transformer, err := c.transformer(k.resource)
	if err != nil {
		return entry, err
	}
	if entry.Value, _, err = transformer.TransformFromStorage(ctx, stored, value.DefaultContext(key)); err != nil {
		return entry, fmt.Errorf("reading etcd key %s: %w", entry.Key, err)
	}
	return entry, nil
}

// transformer returns what a storage of the resource uses, see Backend.open.
func (c *Copies) transformer(resource schema.GroupResource) (value.Transformer, error) {
	t, err := c.transformers(resource)
	if err != nil {
		return nil, fmt.Errorf("encryption of %s: %w", resource, err)
	}
	if t == nil {
		t = identity.NewEncryptCheckTransformer()
	}
	if compressedResources[resource] {
		t = compressed{t}
	}
	return t, nil
}
