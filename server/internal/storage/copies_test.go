package storage

import (
	"bytes"
	"context"
	"crypto/aes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/value"
	encryption "k8s.io/apiserver/pkg/storage/value/encrypt/aes"
	"k8s.io/kubernetes/pkg/apis/core"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
)

// copied are two stores that encrypt with different keys.
type copied struct {
	origin, destination *fencedStore
	from, to            *Copies
	clusters            *Typed // LogicalClusters of origin
	arriving            *Fence
}

func newCopied(t *testing.T) *copied {
	t.Helper()
	side := func(name string) (*fencedStore, *Copies) {
		block, err := aes.NewCipher([]byte(strings.Repeat(name[:1], 32)))
		if err != nil {
			t.Fatal(err)
		}
		transformer, err := encryption.NewGCMTransformer(block)
		if err != nil {
			t.Fatal(err)
		}
		s := newFencedStoreBelow(t, "/"+strings.ReplaceAll(t.Name(), "/", "_")+"-"+name, transformer)
		return s, s.Copies(func(schema.GroupResource) (value.Transformer, error) { return transformer, nil })
	}
	c := &copied{arriving: &Fence{State: FenceArriving, Epoch: 2, Shard: "west", Migration: "uid"}}
	c.origin, c.from = side("origin")
	c.destination, c.to = side("destination")
	scheme := runtime.NewScheme()
	if err := corev1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var err error
	c.clusters, err = c.origin.Typed(c.origin.base, corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters"), scheme, "LogicalCluster",
		"LogicalClusterList")
	if err != nil {
		t.Fatal(err)
	}
	for _, cluster := range []string{"moving", "other"} {
		lc := &corev1alpha1.LogicalCluster{}
		lc.SetGroupVersionKind(corev1alpha1.SchemeGroupVersion.WithKind("LogicalCluster"))
		lc.Name = corev1alpha1.LogicalClusterName
		if err := c.clusters.Create(in(cluster), lc.Name, lc); err != nil {
			t.Fatal(err)
		}
	}
	c.destination.swap(t, "moving", nil, c.arriving)
	return c
}

// begin copies all keys at a revision, which it returns with the collections.
func (c *copied) begin(t *testing.T) (collections []string, revision int64) {
	t.Helper()
	for after := ""; ; {
		found, next, at, err := c.from.Collections(in("moving"), revision, after)
		if err != nil {
			t.Fatal(err)
		}
		collections, revision = append(collections, found...), at
		if after = next; after == "" {
			break
		}
	}
	for _, collection := range collections {
		for after := ""; ; {
			entries, next, err := c.from.Page(in("moving"), revision, collection, after)
			if err == nil {
				err = c.to.Apply(in("moving"), c.arriving, entries)
			}
			if err != nil {
				t.Fatal(err)
			}
			if after = next; after == "" {
				break
			}
		}
	}
	return collections, revision
}

// follow copies the changes after a revision, and returns the revision until which all are copied.
func (c *copied) follow(t *testing.T, revision int64) int64 {
	t.Helper()
	entries, revision, err := c.from.Changes(in("moving"), revision)
	if err == nil {
		err = c.to.Apply(in("moving"), c.arriving, entries)
	}
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

// objects returns the keys of a cluster without the root.
func (s *fencedStore) objects(t *testing.T, cluster string) []string {
	t.Helper()
	var keys []string
	for _, key := range s.cluster(t, cluster) {
		key, _, _ = strings.Cut(strings.TrimPrefix(key, s.root), " ")
		keys = append(keys, key)
	}
	return keys
}

// A cluster is copied while random writers change it. Behind the fence, both stores have the same objects.
func TestACopyIsCompleteBehindTheFence(t *testing.T) {
	c := newCopied(t)
	writers := c.origin.writers()
	var names []string
	for name := range writers {
		names = append(names, name)
	}
	slices.Sort(names)
	wait, began := sync.WaitGroup{}, make(chan struct{}, 3)
	for worker := range 3 {
		random := rand.New(rand.NewPCG(3, uint64(worker)))
		wait.Go(func() {
			for n := range 300 {
				cluster := []string{"moving", "moving", "other"}[random.IntN(3)]
				_ = writers[names[random.IntN(len(names))]](in(cluster), fmt.Sprint("x", random.IntN(8)), fmt.Sprintf("%d-%d", worker, n))
				if n == 50 {
					began <- struct{}{}
				}
			}
		})
	}
	for range 3 {
		<-began
	}
	collections, revision := c.begin(t)
	for range 5 {
		revision = c.follow(t, revision)
	}
	fence := c.origin.leave(t, "moving")
	for revision < fence {
		revision = c.follow(t, revision)
	}
	wait.Wait()

	collections = append(collections, collectionsOf(t, c.origin.objects(t, "moving"))...)
	slices.Sort(collections)
	collections = slices.Compact(collections)
	digest, err := c.from.Digest(in("moving"), 0, collections)
	if err != nil {
		t.Fatal(err)
	}
	copied, err := c.to.Digest(in("moving"), 0, collections)
	if err != nil {
		t.Fatal(err)
	}
	if digest != copied || digest.Keys < 5 {
		t.Errorf("the origin has the digest %v, the destination %v", digest, copied)
	}
	if at, there := c.origin.objects(t, "moving"), c.destination.objects(t, "moving"); !slices.Equal(at, there) {
		t.Errorf("the origin has %v, the destination %v", at, there)
	}
	if others := c.destination.objects(t, "other"); len(others) > 0 {
		t.Errorf("of another cluster, %v is copied", others)
	}
	published := c.publish(t)
	c.origin.swap(t, "moving", leaving(), nil) // to read it
	var at, there core.ConfigMapList
	for s, out := range map[storage.Interface]*core.ConfigMapList{c.origin.maps: &at, c.destination.maps: &there} {
		if err := s.GetList(in("moving"), prefix, storage.ListOptions{Predicate: everything(), Recursive: true}, out); err != nil {
			t.Fatal(err)
		}
		for i := range out.Items {
			out.Items[i].ResourceVersion = ""
		}
	}
	if fmt.Sprint(at.Items) != fmt.Sprint(there.Items) {
		t.Errorf("the origin has %v, the destination %v", at.Items, there.Items)
	}
	if err := c.destination.writers()["create"](in("moving"), "new", ""); err != nil || published <= fence {
		t.Errorf("after publishing at %d, with the fence at %d: %v", published, fence, err)
	}
}

func collectionsOf(t *testing.T, keys []string) (collections []string) {
	t.Helper()
	for _, key := range keys {
		k, err := splitKey(key)
		if err != nil {
			t.Fatal(key, err)
		}
		collections = append(collections, k.collection)
	}
	return collections
}

func (c *copied) publish(t *testing.T) int64 {
	t.Helper()
	above, err := c.origin.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.destination.Raise(t.Context(), int64(above)); err != nil {
		t.Fatal(err)
	}
	settling := with(c.arriving, FenceSettling)
	c.destination.swap(t, "moving", c.arriving, settling)
	changes := 0
	published := int64(0)
	for range 2 {
		revision, err := c.to.Publish(in("moving"), settling, int64(above), func(object []byte) ([]byte, error) {
			changes++
			if !bytes.Contains(object, []byte(`"kind":"LogicalCluster"`)) {
				t.Errorf("the LogicalCluster is %q", object)
			}
			return object, nil
		})
		if err != nil || published != 0 && revision != published {
			t.Errorf("published at %d, then %d, %v", published, revision, err)
		}
		published = revision
	}
	c.destination.known(t, published)
	if changes != 1 {
		t.Errorf("the LogicalCluster was changed %d times", changes)
	}
	return published
}

func TestPublishingNeedsALaterRevisionAndTheFence(t *testing.T) {
	c := newCopied(t)
	c.begin(t)
	now, err := c.destination.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	unchanged := func(object []byte) ([]byte, error) { return object, nil }
	if _, err := c.to.Publish(in("moving"), c.arriving, int64(now)-1, unchanged); err == nil {
		t.Error("published although reads across all clusters do not wait")
	}
	settling := with(c.arriving, FenceSettling)
	c.destination.swap(t, "moving", c.arriving, settling)
	if _, err := c.to.Publish(in("moving"), settling, int64(now)+1000, unchanged); err == nil {
		t.Error("published before a revision of the origin")
	}
	another := *settling
	another.Epoch++
	if _, err := c.to.Publish(in("moving"), &another, int64(now)-1, unchanged); !IsFenceChanged(err) {
		t.Errorf("with another fence: %v", err)
	}
	if fence, _, err := c.destination.Fence(t.Context(), "moving"); err != nil || *fence != *settling {
		t.Errorf("the fence is %v, %v", fence, err)
	}
}

func TestOnlyTheMigrationOfAFenceWritesBehindIt(t *testing.T) {
	c := newCopied(t)
	c.begin(t)
	entry := []Entry{{Key: "/core/configmaps/moving/n/x", Value: []byte("{}")}}
	for name, change := range map[string]func(*Fence){
		"another migration": func(f *Fence) { f.Migration = "other" }, "another epoch": func(f *Fence) { f.Epoch = 3 },
		"another origin": func(f *Fence) { f.Shard = "north" },
	} {
		other := *c.arriving
		change(&other)
		if err := c.to.Apply(in("moving"), &other, entry); !IsFenceChanged(err) {
			t.Errorf("%s writes: %v", name, err)
		}
		if err := c.to.Clear(in("moving"), &other); !IsFenceChanged(err) {
			t.Errorf("%s deletes: %v", name, err)
		}
	}
	c.origin.leave(t, "moving")
	if err := c.from.Apply(in("moving"), leaving(), entry); err == nil {
		t.Error("a leaving cluster is written")
	}
	if err := c.from.Clear(in("moving"), leaving()); err == nil {
		t.Error("a leaving cluster is deleted")
	}
}

func TestACopyWritesOnlyObjectsOfItsCluster(t *testing.T) {
	c := newCopied(t)
	for _, key := range []string{
		"", "/", "/core/configmaps/other/n/x", "/core/configmaps/moving", "core/configmaps/moving/n/x", "/core/configmaps/moving//x",
		"/core/configmaps/moving/n/x/y", "/kcp-store/fences/moving/x", "/kcp-store/fences/moving", "/kcp-kept/x/moving/y",
		"/example.org/widgets/" + widgetIdentity + "/other/moving/x", "/example.org/widgets/customresources/other/moving/x",
	} {
		for _, deleted := range []bool{true, false} {
			if err := c.to.Apply(in("moving"), c.arriving, []Entry{{Key: key, Value: []byte("{}"), Deleted: deleted}}); !apierrors.IsBadRequest(err) {
				t.Errorf("key %q (deleted: %v): %v", key, deleted, err)
			}
		}
	}
	if keys := c.destination.objects(t, "moving"); len(keys) > 0 {
		t.Errorf("there is %v", keys)
	}
}

func TestRemainsOfAMovedClusterAreDeletedBehindItsFence(t *testing.T) {
	c := newCopied(t)
	writers := c.origin.writers()
	for _, cluster := range []string{"moving", "other"} {
		for _, name := range []string{"create", "create by the server", "create bound", "create with a lease"} {
			if err := writers[name](in(cluster), fmt.Sprint("x", len(name)), ""); err != nil {
				t.Fatal(err)
			}
		}
	}
	before := c.origin.cluster(t, "other")
	c.origin.leave(t, "moving")
	moved := with(leaving(), FenceMoved)
	c.origin.swap(t, "moving", leaving(), moved)
	if err := c.from.Clear(in("moving"), moved); err != nil {
		t.Fatal(err)
	}
	if keys := c.origin.objects(t, "moving"); len(keys) > 0 {
		t.Errorf("%v remains", keys)
	}
	if after := c.origin.cluster(t, "other"); !slices.Equal(before, after) {
		t.Errorf("another cluster had %v, now %v", before, after)
	}
	if err := writers["create"](in("moving"), "late", ""); !IsFenced(err) {
		t.Errorf("a late write: %v", err)
	}
}

func TestACopyKeepsTheRemainingTimeOfALease(t *testing.T) {
	c := newCopied(t)
	if err := c.origin.writers()["create with a lease"](in("moving"), "x", ""); err != nil {
		t.Fatal(err)
	}
	c.begin(t)
	found, err := client.Get(t.Context(), c.destination.root+"/core/configmaps/moving/n/x")
	if err != nil || len(found.Kvs) != 1 || found.Kvs[0].Lease == 0 {
		t.Fatalf("copied is %+v, %v", found, err)
	}
	left, err := client.TimeToLive(t.Context(), clientv3.LeaseID(found.Kvs[0].Lease))
	if err != nil || left.GrantedTTL < 3300 || left.GrantedTTL > 3660 { // upstream's leases are up to 5% longer or shared
		t.Errorf("the lease is %+v, %v", left, err)
	}
}

func TestPagesAndChangesAreLimited(t *testing.T) {
	c := newCopied(t)
	large := strings.Repeat("x", copyBytes/3)
	for n := range 10 {
		if err := c.origin.writers()["create"](in("moving"), fmt.Sprint("x", n), large); err != nil {
			t.Fatal(err)
		}
	}
	_, _, began, err := c.from.Collections(in("moving"), 0, "")
	if err != nil {
		t.Fatal(err)
	}
	limited := func(entries []Entry) {
		t.Helper()
		size := 0
		for _, entry := range entries {
			size += entry.size()
		}
		if size > 2*copyBytes {
			t.Errorf("a response has %d bytes", size)
		}
	}
	names, pages := []string{}, 0
	for after := ""; ; pages++ {
		entries, next, err := c.from.Page(in("moving"), began, "/core/configmaps", after)
		if err != nil {
			t.Fatal(err)
		}
		limited(entries)
		for _, entry := range entries {
			names = append(names, entry.Key)
		}
		if after = next; after == "" {
			break
		}
	}
	if len(names) != 10 || len(slices.Compact(names)) != 10 || pages < 2 {
		t.Errorf("after %d pages: %v", pages, names)
	}
	for n := range 10 {
		if err := c.origin.writers()["update"](in("moving"), fmt.Sprint("x", n), large+"y"); err != nil {
			t.Fatal(err)
		}
	}
	now, err := c.origin.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	changed := 0
	for revision := began; revision < int64(now); {
		entries, until, err := c.from.Changes(in("moving"), revision)
		if err != nil || until <= revision {
			t.Fatal(until, err)
		}
		limited(entries)
		changed, revision = changed+len(entries), until
	}
	if changed != 10 {
		t.Errorf("%d changes", changed)
	}
	if _, _, err := c.from.Page(in("moving"), began, "/core/configmaps", "/core/secrets/moving/n/x"); !apierrors.IsBadRequest(err) {
		t.Errorf("a page after a key of another collection: %v", err)
	}
	if _, _, err := c.from.Page(in("moving"), began, "/core/configmaps", "/core/configmaps/other/n/x"); !apierrors.IsBadRequest(err) {
		t.Errorf("a page after a key of another cluster: %v", err)
	}
}

func TestKeysAreSplit(t *testing.T) {
	id := widgetIdentity
	for key, want := range map[string]keyParts{
		"/core/configmaps/c/n/x":                     {"/core/configmaps", schema.GroupResource{Resource: "configmaps"}, "c"},
		"/core/namespaces/c/x":                       {"/core/namespaces", schema.GroupResource{Resource: "namespaces"}, "c"},
		"/example.org/widgets/customresources/c/x":   {"/example.org/widgets/customresources", widgetResource, "c"},
		"/example.org/widgets/customresources/c/n/x": {"/example.org/widgets/customresources", widgetResource, "c"},
		"/example.org/widgets/" + id + "/c/x":        {"/example.org/widgets/" + id, widgetResource, "c"},
		"/example.org/widgets/" + id + "/c/n/x":      {"/example.org/widgets/" + id, widgetResource, "c"},
		"/kcp-store.example.org/widgets/c/n/x":       {"/kcp-store.example.org/widgets", schema.GroupResource{Group: "kcp-store.example.org", Resource: "widgets"}, "c"},
	} {
		if got, err := splitKey(key); err != nil || got != want {
			t.Errorf("%s: got %+v, %v", key, got, err)
		}
	}
}

func TestACompactedCopyBeginsAgain(t *testing.T) {
	c := newCopied(t)
	_, revision := c.begin(t)
	if err := c.origin.writers()["create"](in("moving"), "x", ""); err != nil {
		t.Fatal(err)
	}
	now, err := c.origin.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Compact(context.Background(), int64(now)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.from.Changes(in("moving"), revision); !apierrors.IsResourceExpired(err) {
		t.Errorf("changes: %v", err)
	}
	if _, _, err := c.from.Page(in("moving"), revision, "/core/configmaps", ""); !apierrors.IsResourceExpired(err) {
		t.Errorf("page: %v", err)
	}
	if _, _, _, err := c.from.Collections(in("moving"), revision, ""); !apierrors.IsResourceExpired(err) {
		t.Errorf("collections: %v", err)
	}
}
