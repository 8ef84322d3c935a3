package namespace

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kcplane/kcp/server/internal/apis/discovery"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/objecttest"
)

const name = "team"

var (
	key        = informers.Key{Cluster: "c", Name: name}
	errStorage = errors.New("etcd is away")
)

func resource(group, plural string, namespaced bool) discovery.Resource {
	return discovery.Resource{
		GroupVersionResource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: plural}, Namespaced: namespaced,
		Verbs: sets.New("list", "delete", "deletecollection"),
	}
}

// serves are the resources of the cluster.
var serves = []discovery.Resource{
	resource("", "configmaps", true), resource("", "secrets", true), resource("", "nodes", false), resource("example.org", "widgets", true),
}

// outcome is what is requested, and what the namespace is afterwards.
type outcome struct {
	Candidates []string // the resources whose stored objects were looked up
	Deleted    []string
	Finalizers []corev1.FinalizerName
	Phase      corev1.NamespacePhase
	Failed     []corev1.NamespaceConditionType // conditions that are True
}

func TestContentOfANamespaceIsDeletedBeforeTheNamespace(t *testing.T) {
	const terminating = corev1.NamespaceTerminating
	ours := []corev1.FinalizerName{corev1.FinalizerKubernetes}
	namespaced := []string{"configmaps", "secrets", "widgets.example.org"}
	for _, tc := range []struct {
		name          string
		deleted       bool
		held          []string // resources with objects
		stuck         []string // of these, the resources whose objects wait for finalizers
		discover, ask error
		want          outcome
		fails         bool
	}{
		{"A namespace that is not being deleted stays as it is", false, []string{"configmaps"}, nil, nil, nil, outcome{nil, nil, ours, corev1.NamespaceActive, nil}, false},
		{"An empty namespace is released", true, nil, nil, nil, nil, outcome{namespaced, nil, []corev1.FinalizerName{}, terminating, nil}, false},
		{
			"The objects of stored resources are deleted", true, []string{"configmaps"}, nil, nil, nil,
			outcome{namespaced, []string{"delete-collection configmaps"}, []corev1.FinalizerName{}, terminating, nil}, false,
		},
		{
			"Objects of a resource that cannot be deleted at once are deleted one by one", true, []string{"widgets.example.org"}, nil, nil, nil,
			outcome{namespaced, []string{"delete widgets", "delete-collection widgets"}, []corev1.FinalizerName{}, terminating, nil}, false,
		},
		{
			"Objects with finalizers keep the namespace", true, []string{"configmaps", "secrets"}, []string{"secrets"}, nil, nil,
			outcome{
				namespaced, []string{"delete-collection configmaps", "delete-collection secrets"}, ours, terminating,
				[]corev1.NamespaceConditionType{corev1.NamespaceContentRemaining, corev1.NamespaceFinalizersRemaining},
			}, false,
		},
		{
			"A failure of discovery keeps the namespace", true, []string{"configmaps"}, nil, errStorage, nil,
			outcome{nil, nil, ours, terminating, []corev1.NamespaceConditionType{corev1.NamespaceDeletionDiscoveryFailure}}, true,
		},
		{
			"A failure of storage keeps the namespace", true, []string{"configmaps"}, nil, nil, errStorage,
			outcome{namespaced, nil, ours, terminating, []corev1.NamespaceConditionType{corev1.NamespaceDeletionDiscoveryFailure}}, true,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, tc.deleted, tc.held...)
			w.stuck = sets.New(tc.stuck...)
			in := w.inputs()
			resources, held := in.Resources, in.Held
			in.Resources = func(ctx context.Context) ([]discovery.Resource, error) {
				all, _ := resources(ctx)
				return all, tc.discover
			}
			in.Held = func(ctx context.Context, candidates []schema.GroupResource, namespace string) ([]schema.GroupResource, error) {
				found, _ := held(ctx, candidates, namespace)
				return found, tc.ask
			}
			if err := New(in).Reconcile(t.Context(), key); (err != nil) != tc.fails {
				t.Errorf("got error %v", err)
			}
			if diff := cmp.Diff(tc.want, w.outcome()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestANamespaceThatIsGoneIsNoFailure(t *testing.T) {
	w := newWorld(t, true)
	if err := w.kube.CoreV1().Namespaces().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := New(w.inputs()).Reconcile(t.Context(), key); err != nil {
		t.Errorf("stored no more: %v", err)
	}
	if err := New(w.inputs()).Reconcile(t.Context(), informers.Key{Cluster: "c", Name: "other"}); err != nil {
		t.Errorf("unknown: %v", err)
	}
}

func TestANamespaceIsReconciledAgainUntilItsObjectsAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, true, "secrets")
		w.stuck = sets.New("secrets")
		c := New(w.inputs())
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		go c.Run(ctx)
		synctest.Wait()
		if got := w.outcome().Finalizers; len(got) == 0 {
			t.Fatal("the namespace is released before its objects are gone")
		}
		w.stuck = nil
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := w.outcome().Finalizers; len(got) > 0 {
			t.Errorf("got the finalizers %v", got)
		}
	})
}

// world is a namespace, and the objects in it: one of each resource that is held.
type world struct {
	o          *objecttest.Objects
	kube       *fake.Clientset
	metadata   *metadatafake.FakeMetadataClient
	held       sets.Set[string]
	stuck      sets.Set[string]
	candidates []string
	t          *testing.T
}

func newWorld(t *testing.T, deleted bool, held ...string) *world {
	t.Helper()
	namespace := objecttest.In("c", &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "1"}, Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
		Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
	})
	if deleted {
		now := metav1.Now()
		namespace.DeletionTimestamp = &now
	}
	w := &world{
		o: objecttest.New(t, namespace), kube: fake.NewSimpleClientset(namespace.DeepCopy()),
		metadata: metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme()), held: sets.New(held...), t: t,
	}
	// As the API server does it.
	w.kube.PrependReactor("create", "namespaces", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "finalize" {
			t.Errorf("got a request to create a namespace")
		}
		stored, err := w.kube.Tracker().Get(action.GetResource(), "", name)
		if err != nil {
			return true, nil, err
		}
		finalized := stored.(*corev1.Namespace).DeepCopy()
		finalized.Spec.Finalizers = action.(clienttesting.CreateAction).GetObject().(*corev1.Namespace).Spec.Finalizers
		return true, finalized, w.kube.Tracker().Update(action.GetResource(), finalized, "")
	})
	w.metadata.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		of := action.GetResource().GroupResource().String()
		if action.GetNamespace() != name {
			t.Errorf("got a request to %s %s in namespace %q", action.GetVerb(), of, action.GetNamespace())
		}
		if action.GetVerb() == "delete-collection" && of == "widgets.example.org" {
			return true, nil, apierrors.NewMethodNotSupported(action.GetResource().GroupResource(), "deletecollection")
		}
		if action.GetVerb() != "list" {
			if !w.stuck.Has(of) {
				w.held.Delete(of)
			}
			return true, nil, nil
		}
		list := &metav1.List{}
		if w.held.Has(of) {
			object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "one"}}
			if w.stuck.Has(of) {
				object.Finalizers = []string{"example.org/mine"}
			}
			list.Items = append(list.Items, runtime.RawExtension{Object: object})
		}
		return true, list, nil
	})
	return w
}

func (w *world) inputs() Inputs {
	return Inputs{
		Set: w.o.Set, Kube: w.kube, Metadata: w.metadata,
		Resources: func(context.Context) ([]discovery.Resource, error) { return serves, nil },
		Held: func(_ context.Context, candidates []schema.GroupResource, namespace string) ([]schema.GroupResource, error) {
			if namespace != name {
				w.t.Errorf("looked up the objects of namespace %q", namespace)
			}
			w.candidates = nil
			var found []schema.GroupResource
			for _, c := range candidates {
				w.candidates = append(w.candidates, c.String())
				if w.held.Has(c.String()) {
					found = append(found, c)
				}
			}
			return found, nil
		},
	}
}

func (w *world) outcome() outcome {
	w.t.Helper()
	namespace, err := w.kube.CoreV1().Namespaces().Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	out := outcome{Candidates: w.candidates, Finalizers: namespace.Spec.Finalizers, Phase: namespace.Status.Phase}
	for _, action := range w.metadata.Actions() {
		if action.GetVerb() != "list" {
			out.Deleted = append(out.Deleted, action.GetVerb()+" "+action.GetResource().Resource)
		}
	}
	for _, c := range namespace.Status.Conditions {
		if c.Status == corev1.ConditionTrue {
			out.Failed = append(out.Failed, c.Type)
		}
	}
	slices.Sort(out.Deleted)
	return out
}
