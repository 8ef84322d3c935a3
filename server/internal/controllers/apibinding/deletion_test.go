package apibinding

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/internal/objecttest"
)

func deleted(b *apisv1alpha2.APIBinding) { b.DeletionTimestamp = &metav1.Time{Time: now} }

func TestDeletionOfABinding(t *testing.T) {
	const list, remove, storage = "list widgets.example.org", "delete widgets.example.org one", "stored: delete widgets.example.org " + identity
	stored := bound(schemaUID, identity, "v1")
	here := []customresources.Installed{served(crd("widgets", "Widget"), key.Name, customresources.Traits{Identity: identity})}
	one := []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Name: "one", UID: "1"}}}
	other := func(change func(*apisv1alpha2.APIBinding)) *apisv1alpha2.APIBinding {
		return binding(func(b *apisv1alpha2.APIBinding) { b.Name = "other" }, change)
	}
	for _, tc := range []struct {
		name     string
		binding  *apisv1alpha2.APIBinding
		objects  []objecttest.Object
		world    func(*world)
		requests []string
		released bool
		want     []string // conditions that are False
		fails    bool
	}{
		{
			"A binding without our finalizer stays as it is",
			binding(complete(stored), deleted, func(b *apisv1alpha2.APIBinding) { b.Finalizers = []string{"example.org/mine"} }), nil, nil, nil, false, nil, false,
		},
		{
			"Objects are deleted through the API, then in storage", binding(complete(stored), deleted), nil,
			func(w *world) { w.serves, w.items = here, one }, []string{list, remove, list, storage}, true, nil, false,
		},
		{
			"Objects are deleted in storage if the API fails", binding(complete(stored), deleted), nil,
			func(w *world) { w.serves, w.failing = here, errStorage }, []string{list, storage}, true, nil, false,
		},
		{
			"Objects with finalizers keep the binding", binding(complete(stored), deleted), nil,
			func(w *world) { w.serves, w.remains.left = here, 1 },
			[]string{list, storage}, false, []string{"BindingResourceDeleteSuccess SomeFinalizersRemain"}, false,
		},
		{
			"Objects that are not served are deleted in storage only", binding(complete(stored), deleted), nil, nil, []string{storage}, true, nil, false,
		},
		{
			"Objects that the workspace's own definition serves are not those of the binding", binding(complete(stored), deleted), nil,
			func(w *world) {
				w.serves = []customresources.Installed{served(crd("widgets", "Widget"), "", customresources.Traits{})}
			}, []string{storage}, true, nil, false,
		},
		{
			"Objects under another identity are not those of the binding", binding(complete(stored), deleted), nil,
			func(w *world) {
				w.serves = []customresources.Installed{served(crd("widgets", "Widget"), "other", customresources.Traits{Identity: "other"})}
			}, []string{storage}, true, nil, false,
		},
		{
			"Objects of the server stay", binding(complete(stored), deleted), nil, func(w *world) {
				w.serves = []customresources.Installed{served(crd("widgets", "Widget"), "", customresources.Traits{System: true})}
			}, nil, true, nil, false,
		},
		{"A resource that stored no objects has none", binding(complete(bound(schemaUID, identity)), deleted), nil, nil, nil, true, nil, false},
		{
			"Objects stay if another binding goes on with them", binding(complete(stored), deleted), []objecttest.Object{other(complete(stored))},
			nil, nil, true, nil, false,
		},
		{
			"Objects go if the other binding is being deleted too", binding(complete(stored), deleted), []objecttest.Object{other(deleted)},
			nil, []string{storage}, true, nil, false,
		},
		{
			"Objects under former identities are deleted, but for those of other bindings", binding(complete(stored), deleted),
			[]objecttest.Object{other(func(b *apisv1alpha2.APIBinding) {
				b.Spec.Reference.Export.Name = "none"
				b.Status.BoundResources = []apisv1alpha2.BoundAPIResource{bound(schemaUID, "of another", "v1")}
			})},
			func(w *world) { w.remains.identities = []string{"former", identity, "of another"} },
			[]string{storage, "stored: delete widgets.example.org former"}, true, nil, false,
		},
		{
			"A failure of storage keeps the binding", binding(complete(stored), deleted), nil, func(w *world) { w.remains.err = errStorage },
			[]string{storage}, false, nil, true,
		},
		{
			"Labels of claims are removed before the binding is released", binding(complete(), claiming(), applied, deleted), nil,
			func(w *world) { w.items = one }, []string{"list configmaps"}, true, nil, false,
		},
		{
			"A failure to remove labels keeps the binding", binding(complete(), claiming(), applied, deleted), nil,
			func(w *world) { w.failing = errStorage }, []string{"list configmaps"}, false, nil, true,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, all(tc.binding, tc.objects...)...)
			if tc.world != nil {
				tc.world(w)
			}
			if err := w.reconcile(); (err != nil) != tc.fails {
				t.Errorf("got error %v", err)
			}
			if diff := cmp.Diff(tc.requests, w.requests); diff != "" {
				t.Error(diff)
			}
			got := w.stored()
			if (got == nil) != tc.released {
				t.Fatalf("got %v", got)
			}
			if got != nil {
				if _, others := conditionsOf(got); !cmp.Equal(tc.want, others) {
					t.Error(cmp.Diff(tc.want, others))
				}
			}
		})
	}
}

// The informer can show a deleted binding for longer than the next one of its name takes to get objects.
func TestTheObjectsOfTheNextBindingOfTheNameAreKept(t *testing.T) {
	w := newWorld(t, all(binding(complete(bound(schemaUID, identity, "v1")), deleted))...)
	w.serves = []customresources.Installed{served(crd("widgets", "Widget"), key.Name, customresources.Traits{Identity: identity})}
	w.items = []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Name: "one", UID: "1"}}}
	next := binding(complete(bound(schemaUID, identity, "v1")), func(b *apisv1alpha2.APIBinding) { b.UID = "2" })
	w.Store(next)
	if err := w.reconcile(); err != nil || len(w.requests) > 0 {
		t.Errorf("got error %v, requests %v", err, w.requests)
	}
	if diff := cmp.Diff(next.Status, w.stored().Status); diff != "" {
		t.Error(diff)
	}
}

// A resource that was bound at the last moment is in the stored binding only.
func TestTheObjectsOfAResourceThatTheInformerDoesNotShowAreDeleted(t *testing.T) {
	w := newWorld(t, all(binding(complete(), deleted))...)
	w.Store(binding(complete(bound(schemaUID, identity, "v1")), deleted))
	want := []string{"stored: delete widgets.example.org " + identity}
	if err := w.reconcile(); err != nil || !cmp.Equal(want, w.requests) {
		t.Errorf("got error %v, requests %v", err, w.requests)
	}
}

func TestFinalizersThatCannotBeRemovedAreNamedInTheCondition(t *testing.T) {
	w := newWorld(t, all(binding(complete(bound(schemaUID, identity, "v1")), deleted))...)
	w.serves = []customresources.Installed{served(crd("widgets", "Widget"), key.Name, customresources.Traits{Identity: identity})}
	w.remains.left, w.remains.deleted = 1, true
	w.failing = apierrors.NewForbidden(widgets, "one", nil)
	if err := w.reconcile(); err != nil {
		t.Fatal(err)
	}
	want := "2027-01-02T04:04:05Z" // an hour later
	for _, c := range w.stored().Status.Conditions {
		if c.Type == apisv1alpha2.APIBindingResourceDeleteSuccess {
			if c.Reason != apisv1alpha2.ReasonSomeFinalizersRemain || !strings.Contains(c.Message, want) || !strings.Contains(c.Message, "1 widgets.example.org") {
				t.Errorf("got %+v", c)
			}
			return
		}
	}
	t.Error("the condition is missing")
}
