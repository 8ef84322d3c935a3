package feed

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
)

// logged is the number of changes of a cluster that a watch can resume from.
const logged = 2000

// Feed is what the agent of one cluster sees. It implements resources.Objects of the resource workloads.
type Feed struct {
	index   *Index
	cluster string

	// The lock of the index guards all below.

	// items are the workloads, by the name of their Assignment and by their own.
	items map[string]map[string]item
	// version is the resource version of the last change.
	version uint64
	log     []change
	// more is closed at the next change.
	more chan struct{}
}

// item is a workload with the key of its object. Nothing changes the workload after it has been added.
type item struct {
	key      Key
	workload *unstructured.Unstructured
}

// change is one event of a watch.
type change struct {
	version uint64
	kind    watch.EventType
	object  *unstructured.Unstructured
}

func newFeed(x *Index, cluster string) *Feed {
	return &Feed{index: x, cluster: cluster, items: map[string]map[string]item{}, version: x.first, more: make(chan struct{})}
}

// assignmentOf returns the name of the Assignment in the name of a workload.
func assignmentOf(name string) string {
	assignment, _, _ := strings.Cut(name, ".")
	return assignment
}

// at returns a workload. The caller holds the lock.
func (f *Feed) at(name string) (item, bool) {
	i, ok := f.items[assignmentOf(name)][name]
	return i, ok
}

// set adds, replaces or, with nil, removes the workload of an object. The caller holds the lock.
func (f *Feed) set(name string, key Key, w *unstructured.Unstructured) {
	former, exists := f.at(name)
	kind, assignment := watch.Added, assignmentOf(name)
	switch {
	case w == nil && !exists:
		return
	case w == nil:
		kind, w = watch.Deleted, former.workload.DeepCopy()
		if delete(f.items[assignment], name); len(f.items[assignment]) == 0 {
			delete(f.items, assignment)
		}
	case exists && same(former.workload, w):
		return
	default:
		if exists {
			kind = watch.Modified
		}
		if f.items[assignment] == nil {
			f.items[assignment] = map[string]item{}
		}
		f.items[assignment][name] = item{key, w}
	}
	f.version++
	w.SetResourceVersion(strconv.FormatUint(f.version, 10))
	f.log = append(f.log, change{f.version, kind, w})
	if len(f.log) > logged {
		f.log = append([]change(nil), f.log[len(f.log)-logged/2:]...)
	}
	close(f.more)
	f.more = make(chan struct{})
}

// same reports whether two workloads differ in nothing but their versions.
func same(a, b *unstructured.Unstructured) bool {
	return a.GetUID() == b.GetUID() && equality.Semantic.DeepEqual(a.Object["spec"], b.Object["spec"]) &&
		equality.Semantic.DeepEqual(a.Object["status"], b.Object["status"])
}

func (f *Feed) notFound(name string) error {
	return apierrors.NewNotFound(v1alpha1.Resource("workloads"), name)
}

// Get returns a workload. Its answer that a workload does not exist is reliable: if the fleet does not know that, Get returns another
// error.
func (f *Feed) Get(_ context.Context, name string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	f.index.mu.Lock()
	defer f.index.mu.Unlock()
	if i, ok := f.at(name); ok {
		return i.workload.DeepCopy(), nil
	}
	if !f.index.ready {
		return nil, errUnknown()
	}
	if n, ok := f.index.assigned[assignmentOf(name)]; ok && !f.index.synced[n.Endpoint] && !f.index.draining(n, f.cluster) {
		return nil, errUnknown()
	}
	return nil, f.notFound(name)
}

// selection selects workloads by the options of a request.
type selection struct {
	labels labels.Selector
	fields fields.Selector
}

func selectionOf(options metav1.ListOptions) (selection, error) {
	byLabel, err := labels.Parse(options.LabelSelector)
	if err != nil {
		return selection{}, apierrors.NewBadRequest(err.Error())
	}
	byField, err := fields.ParseSelector(options.FieldSelector)
	if err != nil {
		return selection{}, apierrors.NewBadRequest(err.Error())
	}
	return selection{byLabel, byField}, nil
}

func (s selection) matches(u *unstructured.Unstructured) bool {
	return s.labels.Matches(labels.Set(u.GetLabels())) && s.fields.Matches(fields.Set{metav1.ObjectNameField: u.GetName()})
}

// selected returns the workloads that a selection matches. It looks only at those of an Assignment if the selection names one. The caller
// holds the lock.
func (f *Feed) selected(s selection) (list []*unstructured.Unstructured) {
	add := func(items map[string]item) {
		for _, i := range items {
			if s.matches(i.workload) {
				list = append(list, i.workload)
			}
		}
	}
	if assignment, ok := s.labels.RequiresExactMatch(assignmentLabel); ok {
		add(f.items[assignment])
		return list
	}
	for _, items := range f.items {
		add(items)
	}
	return list
}

// List returns all workloads. It fails while the fleet does not know all objects.
func (f *Feed) List(_ context.Context, options metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	selects, err := selectionOf(options)
	if err != nil {
		return nil, err
	}
	selected, version, err := f.present(selects)
	if err != nil {
		return nil, err
	}
	list := &unstructured.UnstructuredList{Object: map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": "WorkloadList",
	}}
	for _, w := range selected {
		list.Items = append(list.Items, *w.DeepCopy())
	}
	list.SetResourceVersion(strconv.FormatUint(version, 10))
	return list, nil
}

// present returns the workloads of a selection, with the version of the feed.
func (f *Feed) present(s selection) ([]*unstructured.Unstructured, uint64, error) {
	f.index.mu.Lock()
	defer f.index.mu.Unlock()
	if !f.index.ready {
		return nil, 0, errUnknown()
	}
	return f.selected(s), f.version, nil
}

// Update stores what the agent reports of a workload.
func (f *Feed) Update(
	_ context.Context,
	u *unstructured.Unstructured,
	_ metav1.UpdateOptions,
	_ ...string,
) (*unstructured.Unstructured, error) {
	n, key, w, err := f.report(u)
	if err == nil && f.index.changed != nil {
		f.index.changed(n, key)
	}
	return w, err
}

func (f *Feed) report(u *unstructured.Unstructured) (n Namespace, key Key, w *unstructured.Unstructured, err error) {
	f.index.mu.Lock()
	defer f.index.mu.Unlock()
	i, ok := f.at(u.GetName())
	if !ok {
		return n, key, nil, f.notFound(u.GetName())
	}
	if v := u.GetResourceVersion(); v != "" && v != i.workload.GetResourceVersion() {
		return n, key, nil, apierrors.NewConflict(v1alpha1.Resource("workloads"), u.GetName(), fmt.Errorf("the workload has changed"))
	}
	n, key = f.index.assigned[assignmentOf(u.GetName())], i.key
	c := f.index.at(n)
	r := Report{}
	r.Status, _, _ = unstructured.NestedMap(u.Object, "status", "object")
	r.Message, _, _ = unstructured.NestedString(u.Object, "status", "message")
	if c.reports[key] == nil {
		c.reports[key] = map[string]Report{}
	}
	c.reports[key][f.cluster] = r
	f.index.project(c, f.cluster, key)
	i, _ = f.at(u.GetName())
	return n, key, i.workload.DeepCopy(), nil
}

// Create is not supported.
func (f *Feed) Create(
	_ context.Context,
	u *unstructured.Unstructured,
	_ metav1.CreateOptions,
	_ ...string,
) (*unstructured.Unstructured, error) {
	return nil, apierrors.NewMethodNotSupported(v1alpha1.Resource("workloads"), "create")
}

// Delete is not supported.
func (f *Feed) Delete(context.Context, string, metav1.DeleteOptions, ...string) error {
	return apierrors.NewMethodNotSupported(v1alpha1.Resource("workloads"), "delete")
}
