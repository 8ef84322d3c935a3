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

	items map[string]*unstructured.Unstructured
	// version is the resource version of the last change.
	version uint64
	log     []change
	// more is closed at the next change.
	more chan struct{}
}

// change is one event of a watch.
type change struct {
	version uint64
	kind    watch.EventType
	object  *unstructured.Unstructured
}

func newFeed(x *Index, cluster string) *Feed {
	return &Feed{index: x, cluster: cluster, items: map[string]*unstructured.Unstructured{}, version: x.first, more: make(chan struct{})}
}

// set adds, replaces or, with nil, removes a workload. The caller holds the lock.
func (f *Feed) set(name string, w *unstructured.Unstructured) {
	former := f.items[name]
	if former == nil && w == nil {
		return
	}
	kind := watch.Added
	switch {
	case w == nil:
		kind = watch.Deleted
		w = former.DeepCopy()
		delete(f.items, name)
	case former != nil && same(former, w):
		return
	case former != nil:
		kind = watch.Modified
		fallthrough
	default:
		f.items[name] = w
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
	if w := f.items[name]; w != nil {
		return w.DeepCopy(), nil
	}
	if !f.index.ready {
		return nil, errUnknown()
	}
	assignment, _, _ := strings.Cut(name, ".")
	if n, ok := f.index.assigned[assignment]; ok && !f.index.synced[n.Endpoint] && !f.index.draining(n, f.cluster) {
		return nil, errUnknown()
	}
	return nil, f.notFound(name)
}

// selector selects workloads by the options of a request.
func selector(options metav1.ListOptions) (func(*unstructured.Unstructured) bool, error) {
	byLabel, err := labels.Parse(options.LabelSelector)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	byField, err := fields.ParseSelector(options.FieldSelector)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return func(u *unstructured.Unstructured) bool {
		return byLabel.Matches(labels.Set(u.GetLabels())) && byField.Matches(fields.Set{metav1.ObjectNameField: u.GetName()})
	}, nil
}

// List returns all workloads. It fails while the fleet does not know all objects.
func (f *Feed) List(_ context.Context, options metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	selects, err := selector(options)
	if err != nil {
		return nil, err
	}
	f.index.mu.Lock()
	defer f.index.mu.Unlock()
	if !f.index.ready {
		return nil, errUnknown()
	}
	list := &unstructured.UnstructuredList{Object: map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": "WorkloadList",
	}}
	for _, w := range f.items {
		if selects(w) {
			list.Items = append(list.Items, *w.DeepCopy())
		}
	}
	list.SetResourceVersion(strconv.FormatUint(f.version, 10))
	return list, nil
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
	item := f.items[u.GetName()]
	if item == nil {
		return n, key, nil, f.notFound(u.GetName())
	}
	if v := u.GetResourceVersion(); v != "" && v != item.GetResourceVersion() {
		return n, key, nil, apierrors.NewConflict(v1alpha1.Resource("workloads"), u.GetName(), fmt.Errorf("the workload has changed"))
	}
	assignment, _, _ := strings.Cut(u.GetName(), ".")
	n = f.index.assigned[assignment]
	c := f.index.at(n)
	for key = range c.objects {
		if nameOf(c.assignments[f.cluster], key) == u.GetName() {
			break
		}
	}
	r := Report{}
	r.Status, _, _ = unstructured.NestedMap(u.Object, "status", "object")
	r.Message, _, _ = unstructured.NestedString(u.Object, "status", "message")
	if c.reports[key] == nil {
		c.reports[key] = map[string]Report{}
	}
	c.reports[key][f.cluster] = r
	f.set(u.GetName(), c.workload(f.cluster, key, c.references()))
	return n, key, f.items[u.GetName()].DeepCopy(), nil
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
