package feed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// entry is an object in the cache server.
type entry struct {
	// uid and version are those that the cache server gave to the object.
	uid     types.UID
	version string
	sum     sum
	// incarnation, original and term are the annotations of the object.
	incarnation string
	original    origin
	term        uint64
	// subjects are those of a ClusterRoleBinding.
	subjects []rbacv1.Subject
	// encoded is the state on this shard that has the sum encodedSum and the size, so that it is not encoded again. Its UID is empty if
	// there is none.
	encoded    origin
	encodedSum sum
	size       int
}

// reconcile makes the cache server have what a logical cluster offers. While the cache server does not respond it does nothing: everything
// is compared when it does.
func (o *Offer) reconcile(ctx context.Context, key informers.Key) error {
	o.comparing.RLock()
	defer o.comparing.RUnlock()
	if !o.connected {
		return nil
	}
	last, began := o.pending.begin(key.Cluster), o.in.Clock.Now()
	k := o.knownOf(key.Cluster)
	d, unsettled := o.settled(ctx, key.Cluster, k.objects)
	err := errors.Join(unsettled, d.err, o.write(ctx, key.Cluster, k.objects, d, unsettled == nil))
	o.keep(key.Cluster, k, len(d.excess))
	if err = errors.Join(err, o.describe(ctx, key.Cluster, d)); err != nil {
		o.in.Metrics.failed()
		if isUnavailable(err) {
			o.wake()
		}
		return err
	}
	o.pending.done(key.Cluster, last, began)
	return nil
}

// maxSettling limits how often a cluster is read again while its roles change.
const maxSettling = 5

// settled returns what a cluster is to offer, with roles and bindings of one moment: the informers of both kinds may be at different
// revisions, and a role that was widened after a binding was removed must not meet that binding.
func (o *Offer) settled(ctx context.Context, cluster logicalcluster.Name, known map[id]*entry) (desired, error) {
	d := o.desired(cluster, known)
	for range maxSettling {
		if !d.changesRoles(known) {
			return d, nil
		}
		for _, k := range o.kinds {
			if k.isRBAC() {
				if err := o.await(ctx, cluster, k); err != nil {
					return d, fmt.Errorf("reading %s of logical cluster %s: %w", k.resource.Resource, cluster, err)
				}
			}
		}
		again := o.desired(cluster, known)
		if slices.EqualFunc(d.roles, again.roles, origin.equal) {
			return again, nil
		}
		d = again
	}
	return d, fmt.Errorf("the roles of logical cluster %s change faster than they are offered", cluster)
}

// await waits until the informer of a kind has what its cluster stores now.
func (o *Offer) await(ctx context.Context, cluster logicalcluster.Name, k *kind) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	versions := func(ctx context.Context) (map[string]uint64, uint64, error) {
		return o.in.Versions(logicalcluster.WithName(ctx, cluster), k.resource.GroupResource())
	}
	if k.rank == rankRole {
		return o.in.Set.ClusterRoles.Await(ctx, cluster, versions)
	}
	return o.in.Set.ClusterRoleBindings.Await(ctx, cluster, versions)
}

// changesRoles reports whether the write creates or changes a role or binding.
func (d *desired) changesRoles(known map[id]*entry) bool {
	return slices.ContainsFunc(d.items, func(it item) bool { return it.kind.isRBAC() && it.differs(known[it.id]) })
}

// differs reports whether an object must be written.
func (it *item) differs(e *entry) bool { return e == nil || e.sum != it.sum }

// write makes the cache server have what d says. At no time does it have more permissions, or fewer restrictions, than this shard had at
// the last write or has now:
//
//  1. what grants is removed: bindings, subjects of bindings, and everything else but restrictions;
//  2. places and restrictions are written, then content, roles, and at last bindings;
//  3. restrictions and places that are gone are removed.
//
// An object that cannot be written does not block others, except those that it restricts. Roles and bindings that are not of one moment
// (settled is false) are removed, but neither added nor changed.
func (o *Offer) write(ctx context.Context, cluster logicalcluster.Name, known map[id]*entry, d desired, settled bool) error {
	w := &writer{Offer: o, cluster: cluster, known: known, failed: map[rank]bool{rankBinding: !settled}}
	gone := w.gone(d)
	for _, i := range slices.Backward(gone) {
		if i.kind.rank >= rankContent {
			w.do(i.kind, w.remove(ctx, i))
		}
	}
	if w.changesRoles(d) {
		for _, it := range d.items {
			if it.kind.rank == rankBinding {
				w.do(it.kind, w.restrict(ctx, it))
			}
		}
	}
	for at := 0; at < len(d.items); {
		next := at + 1
		for d.items[at].kind.rank == rankContent && next < len(d.items) && d.items[next].kind.rank == rankContent {
			next++
		}
		w.putAll(ctx, d.items[at:next])
		at = next
	}
	for _, i := range gone {
		if i.kind.rank < rankContent && w.mayRemove(i) {
			w.do(i.kind, w.remove(ctx, i))
		}
	}
	return w.err()
}

// parallelWrites is the number of objects of a logical cluster that are written at a time. All workers together stay below the number of
// requests that the cache server accepts of a shard.
const parallelWrites = 8

// putAll puts objects that may be written in any order.
func (w *writer) putAll(ctx context.Context, items []item) {
	var group errgroup.Group
	group.SetLimit(parallelWrites)
	errs := make([]error, len(items))
	for n, it := range items {
		switch {
		case w.blocks(it.kind), w.isCurrent(it):
		default:
			group.Go(func() error {
				errs[n] = w.put(ctx, it, it.object)
				return nil
			})
		}
	}
	_ = group.Wait() // the errors are in errs
	for n, it := range items {
		w.do(it.kind, errs[n])
	}
}

// writer writes one logical cluster.
type writer struct {
	*Offer
	cluster logicalcluster.Name
	mu      sync.Mutex // guards known while objects are written in parallel
	known   map[id]*entry
	errs    []error
	// failed are the ranks of which a write failed, or must not be made.
	failed map[rank]bool
}

// entry returns what is known of an object, or nil.
func (w *writer) entry(i id) *entry {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.known[i]
}

// set records what the cache server has of an object, nil if it does not exist there.
func (w *writer) set(i id, e *entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e == nil {
		delete(w.known, i)
		return
	}
	w.known[i] = e
}

func (w *writer) do(k *kind, err error) {
	if err == nil {
		return
	}
	w.failed[k.rank] = true
	if len(w.errs) < maxErrors {
		w.errs = append(w.errs, err)
	}
}

// maxErrors is how many errors of a logical cluster are reported at a time.
const maxErrors = 5

func (w *writer) err() error { return errors.Join(w.errs...) }

// blocks reports whether an object of a kind must wait because what restricts it could not be written.
func (w *writer) blocks(k *kind) bool {
	switch k.rank {
	case rankContent:
		return w.failed[rankRestrict]
	case rankRole:
		return w.failed[rankBinding]
	case rankBinding:
		return w.failed[rankBinding] || w.failed[rankRole]
	case rankPlace, rankRestrict:
	}
	return false
}

// gone returns the known objects that are no longer to be offered, in the order of their ranks and names.
func (w *writer) gone(d desired) []id {
	wanted := make(map[id]bool, len(d.items))
	for _, it := range d.items {
		wanted[it.id] = true
	}
	var gone []id
	for i := range w.known {
		if !wanted[i] {
			gone = append(gone, i)
		}
	}
	slices.SortFunc(gone, func(a, b id) int {
		if a.kind.rank != b.kind.rank {
			return int(a.kind.rank - b.kind.rank)
		}
		return compareStrings(a.name, b.name)
	})
	return gone
}

// changesRoles reports whether a role must be changed.
func (w *writer) changesRoles(d desired) bool {
	return slices.ContainsFunc(d.items, func(it item) bool { return it.kind.rank == rankRole && it.differs(w.known[it.id]) })
}

// mayRemove reports whether an object may be removed. The Workspaces of clusters that other shards carry are not known at the start.
func (w *writer) mayRemove(i id) bool { return i.kind.rank != rankPlace || w.neighbours.isComplete() }

// restrict removes subjects from a known binding that no longer has them, without adding others.
func (w *writer) restrict(ctx context.Context, it item) error {
	e := w.known[it.id]
	if e == nil || !it.differs(e) {
		return nil
	}
	binding, ok := it.object.(*rbacv1.ClusterRoleBinding)
	if !ok {
		return nil
	}
	if e.original.uid != binding.UID {
		return w.remove(ctx, it.id) // it may refer to another role now
	}
	kept := slices.DeleteFunc(slices.Clone(e.subjects), func(s rbacv1.Subject) bool { return !slices.Contains(binding.Subjects, s) })
	if len(kept) == len(e.subjects) {
		return nil
	}
	restricted := binding.DeepCopy()
	restricted.Subjects = kept
	return w.put(ctx, it, restricted)
}

// remove removes an object from the cache server.
func (w *writer) remove(ctx context.Context, i id) error {
	e := w.known[i]
	if err := w.mayChange(i, e); err != nil {
		return err
	}
	err := w.cache.delete(ctx, w.leader(), w.cluster, i, e.uid, e.version)
	if apierrors.IsConflict(err) {
		return w.refresh(ctx, i, err)
	}
	if err != nil {
		w.doubt(err)
		return fmt.Errorf("removing %s %s of logical cluster %s from the cache server: %w", i.kind.name, i.name, w.cluster, err)
	}
	delete(w.known, i)
	return nil
}

// isCurrent reports whether the cache server has the object, and then remembers what it was encoded from.
func (w *writer) isCurrent(it item) bool {
	e := w.entry(it.id)
	if e == nil || it.differs(e) {
		return false
	}
	e.encoded, e.encodedSum, e.size = it.origin, it.sum, it.size
	return true
}

// put creates or updates an object, unless the cache server has it already.
func (w *writer) put(ctx context.Context, it item, obj object) error {
	if w.isCurrent(it) {
		return nil
	}
	e := w.entry(it.id)
	if err := w.mayReplace(it, e); err != nil {
		return err
	}
	content, _, written, err := copyOf(it.kind, obj, it.origin.words, w.in.Incarnation)
	if err != nil {
		return err
	}
	stamp(content, it.origin.version, w.term)
	stored, err := w.send(ctx, it.id, e, content)
	switch {
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err):
		return w.refresh(ctx, it.id, err)
	case err != nil:
		w.doubt(err)
		return fmt.Errorf("writing %s %s of logical cluster %s to the cache server: %w", it.kind.name, it.name, w.cluster, err)
	}
	w.set(it.id, &entry{
		uid: stored.UID, version: stored.ResourceVersion, sum: written, incarnation: w.in.Incarnation, original: it.origin, term: w.term,
		subjects: subjectsOf(obj), encoded: it.origin, encodedSum: it.sum, size: it.size,
	})
	return nil
}

func subjectsOf(obj object) []rbacv1.Subject {
	if binding, ok := obj.(*rbacv1.ClusterRoleBinding); ok {
		return binding.Subjects
	}
	return nil
}

// mayChange returns an error if the object in the cache server is that of a later leader.
func (w *writer) mayChange(i id, e *entry) error {
	if e.incarnation == w.in.Incarnation && e.term > w.term {
		return fmt.Errorf("offering %s %s of logical cluster %s: another process of this shard has become the leader, in term %d",
			i.kind.name, i.name, w.cluster, e.term)
	}
	return nil
}

// mayReplace returns an error if the object in the cache server is newer than the one that would replace it.
func (w *writer) mayReplace(it item, e *entry) error {
	if e == nil || e.incarnation != w.in.Incarnation {
		return nil
	}
	if err := w.mayChange(it.id, e); err != nil {
		return err
	}
	if version(e.original.version) > version(it.origin.version) {
		return fmt.Errorf("offering %s %s of logical cluster %s: the cache server has version %s, this process has read version %s only",
			it.kind.name, it.name, w.cluster, e.original.version, it.origin.version)
	}
	return nil
}

// doubt records the error of a write, unless the cache server has refused it.
func (w *writer) doubt(err error) {
	if !isRefusal(err) {
		w.unsure.Store(true)
	}
}

// send creates an object, or replaces the known state of it.
func (w *writer) send(ctx context.Context, i id, e *entry, content map[string]any) (*metav1.ObjectMeta, error) {
	if e == nil {
		return w.cache.create(ctx, w.leader(), w.cluster, i, content)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetUID(e.uid)
	u.SetResourceVersion(e.version)
	return w.cache.update(ctx, w.leader(), w.cluster, i, content)
}

// refresh reads an object whose state in the cache server is not the known one, and returns the cause so that the object is written again.
func (w *writer) refresh(ctx context.Context, i id, cause error) error {
	u, err := w.cache.get(ctx, w.cluster, i)
	switch {
	case apierrors.IsNotFound(err):
		w.set(i, nil)
	case err != nil:
		return fmt.Errorf("reading %s %s of logical cluster %s in the cache server: %w", i.kind.name, i.name, w.cluster, err)
	default:
		w.set(i, entryOf(u))
	}
	return fmt.Errorf("writing %s %s of logical cluster %s to the cache server: its state there has changed: %w", i.kind.name, i.name,
		w.cluster, cause)
}
