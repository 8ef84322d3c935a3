package logicalcluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/utils/clock"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/internal/apis/discovery"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// object returns a stored object by its resource, namespace and name: "configmaps default/x". A name that ends with ! has a finalizer.
func object(text string) storage.StoredObject {
	of, at, _ := strings.Cut(text, " ")
	namespace, name, namespaced := strings.Cut(at, "/")
	if !namespaced {
		namespace, name = "", at
	}
	m := metav1.ObjectMeta{Namespace: namespace, Name: strings.TrimSuffix(name, "!")}
	if m.Name != name {
		m.Finalizers = []string{"example.org/mine"}
	}
	stored := storage.StoredObject{Resource: schema.ParseGroupResource(of), Object: &m}
	if stored.Resource == namespaces {
		stored.Object = &core.Namespace{ObjectMeta: m, Spec: core.NamespaceSpec{Finalizers: []core.FinalizerName{core.FinalizerKubernetes}}}
	}
	return stored
}

func text(o storage.StoredObject) string {
	at := o.Object.GetName()
	if namespace := o.Object.GetNamespace(); namespace != "" {
		at = namespace + "/" + at
	}
	if len(o.Object.GetFinalizers()) > 0 {
		at += "!"
	}
	return o.Resource.String() + " " + at
}

func texts(objects []storage.StoredObject) []string {
	var all []string
	for _, o := range objects {
		all = append(all, text(o))
	}
	return all
}

const (
	accounts = "serviceaccounts"
	binding  = "clusterrolebindings.rbac.authorization.k8s.io"
)

// defaults are the default objects of a logical cluster.
var defaults = []string{
	"configmaps default/ca", "configmaps kube-system/ca", accounts + " default/default", accounts + " kube-system/default",
	"namespaces default", "namespaces kube-system", binding + " owner",
}

func TestObjectsAreDeletedInRounds(t *testing.T) {
	for name, c := range map[string]struct {
		objects []string
		part    bool
		want    [][]string
	}{
		"nothing": {},
		"the default objects, with each namespace in the round of its last object": {defaults, false, [][]string{
			{"configmaps default/ca", accounts + " default/default", "namespaces default"},
			{"configmaps kube-system/ca", accounts + " kube-system/default", "namespaces kube-system", binding + " owner"},
		}},
		"a part of the content: namespaces and the bindings that grant access stay": {defaults, true, [][]string{
			{"configmaps default/ca", accounts + " default/default"}, {"configmaps kube-system/ca", accounts + " kube-system/default"},
		}},
		"several objects in a namespace": {[]string{"configmaps a/1", "configmaps a/2", "configmaps b/1", "namespaces a", "namespaces b"}, false, [][]string{
			{"configmaps a/1"}, {"configmaps a/2", "namespaces a"}, {"configmaps b/1", "namespaces b"},
		}},
		"a namespace that is empty waits for no other": {[]string{"configmaps b/1", "configmaps b/2", "namespaces a", "namespaces b"}, false, [][]string{
			{"configmaps b/1", "namespaces a"}, {"configmaps b/2", "namespaces b"},
		}},
		"bindings follow everything else": {[]string{binding + " x", binding + " y", "configmaps a/1", "configmaps a/2"}, false, [][]string{
			{"configmaps a/1"}, {"configmaps a/2", binding + " x"}, {binding + " y"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var objects []storage.StoredObject
			for _, o := range c.objects {
				objects = append(objects, object(o))
			}
			var got [][]string
			for _, round := range inRounds(objects, !c.part) {
				got = append(got, texts(round))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// content is the content of a logical cluster, and Contents of it. Its deletions are requests to the API, and rounds.
type content struct {
	t       *testing.T
	holder  *storage.StoredObject
	objects []string
	rounds  [][]string
	failing int // the round that fails; zero for none
	reads   int
}

func (c *content) Read(_ context.Context, resources []schema.GroupResource, limit int) (*storage.StoredObject, []storage.StoredObject, []schema.GroupResource, error) {
	c.reads++
	var found []storage.StoredObject
	number := map[schema.GroupResource]int{}
	var more []schema.GroupResource
	for _, text := range c.objects {
		o := object(text)
		if number[o.Resource]++; !slices.Contains(resources, o.Resource) {
			continue
		}
		if number[o.Resource] > limit {
			more = append(more, o.Resource)
			continue
		}
		found = append(found, o)
	}
	return c.holder, found, more, nil
}

var errStorage = errors.New("etcd is away")

func (c *content) Delete(_ context.Context, holder *storage.StoredObject, objects []storage.StoredObject) error {
	if c.failing == len(c.rounds)+1 {
		return errStorage
	}
	seen := sets.New[schema.GroupResource]()
	for _, o := range objects {
		if seen.Has(o.Resource) {
			c.t.Errorf("a transaction deletes two %s", o.Resource)
		}
		seen.Insert(o.Resource)
		if o.Resource == resource.GroupResource() {
			c.holder = nil
		}
	}
	deleted := texts(objects)
	c.rounds = append(c.rounds, deleted)
	c.objects = slices.DeleteFunc(c.objects, func(o string) bool { return slices.Contains(deleted, o) })
	return nil
}

// reconciled reconciles the deletion of the logical cluster c, with finalizers, once.
func (c *content) reconciled(lc *corev1alpha1.LogicalCluster) (*metadatafake.FakeMetadataClient, error) {
	c.t.Helper()
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		c.t.Fatal(err)
	}
	var stored []runtime.Object
	var served []discovery.Resource
	for _, text := range c.objects {
		o := object(text)
		version := o.Resource.WithVersion("v1")
		if !slices.ContainsFunc(served, func(r discovery.Resource) bool { return r.GroupVersionResource == version }) {
			served = append(served, discovery.Resource{GroupVersionResource: version, Verbs: sets.New("list", "delete")})
		}
		kind := map[string]string{"namespaces": "Namespace", "configmaps": "ConfigMap"}[o.Resource.Resource]
		if kind == "" {
			kind = "Widget"
		}
		stored = append(stored, &metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: version.GroupVersion().String(), Kind: kind},
			ObjectMeta: metav1.ObjectMeta{Namespace: o.Object.GetNamespace(), Name: o.Object.GetName(), Finalizers: o.Object.GetFinalizers()},
		})
	}
	client := metadatafake.NewSimpleMetadataClient(scheme, stored...)
	client.PrependReactor("delete", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, nil }) // finalizers keep it
	o := objecttest.New(c.t)
	o.Show(lc)
	r := New(Inputs{
		Set: o.Set, Metadata: client, Contents: c, Clusters: o.Stored(o.Set.LogicalClusters.Informer), Clock: clock.RealClock{},
		Serves:    func(logicalcluster.Name) []customresources.Installed { return nil },
		Resources: func(context.Context) ([]discovery.Resource, error) { return served, nil },
		Held: func(_ context.Context, resources []schema.GroupResource, _ string) ([]schema.GroupResource, error) {
			return resources, nil
		},
	})
	err := r.Reconcile(c.t.Context(), informers.Key{Cluster: "c", Name: corev1alpha1.LogicalClusterName})
	return client, err
}

// doomed returns a logical cluster whose content is deleted now, and what is stored of it.
func doomed() (*corev1alpha1.LogicalCluster, *storage.StoredObject) {
	lc := cluster(corev1alpha1.LogicalClusterPhaseReady, func(lc *corev1alpha1.LogicalCluster) {
		lc.UID = "1"
		deleted(lc)
	})
	return lc, &storage.StoredObject{Resource: resource.GroupResource(), Object: &metav1.ObjectMeta{
		Name: lc.Name, UID: lc.UID, Finalizers: slices.Clone(lc.Finalizers),
	}}
}

func TestDefaultObjectsAreDeletedWithTheirLogicalClusterInTwoTransactions(t *testing.T) {
	lc, holder := doomed()
	c := &content{t: t, holder: holder, objects: slices.Clone(defaults)}
	client, err := c.reconciled(lc)
	if err != nil || len(client.Actions()) != 0 {
		t.Errorf("%d requests to the API: %v", len(client.Actions()), err)
	}
	if c.reads != 1 || len(c.rounds) != 2 || c.holder != nil || len(c.objects) != 0 {
		t.Errorf("%d reads, and the transactions %v", c.reads, c.rounds)
	}
}

// What a crash leaves is deleted after the restart.
func TestADeletionThatStoppedInTheMiddleContinues(t *testing.T) {
	lc, holder := doomed()
	c := &content{t: t, holder: holder, objects: slices.Clone(defaults), failing: 2}
	if _, err := c.reconciled(lc); !errors.Is(err, errStorage) || c.holder == nil || len(c.objects) != 4 {
		t.Fatalf("left are %v, and the cluster %v: %v", c.objects, c.holder, err)
	}
	c.failing = 0
	if _, err := c.reconciled(lc); err != nil || c.holder != nil || len(c.objects) != 0 {
		t.Errorf("left are %v, and the cluster %v: %v", c.objects, c.holder, err)
	}
}

func TestManyObjectsAreDeletedInPages(t *testing.T) {
	lc, holder := doomed()
	c := &content{t: t, holder: holder, objects: slices.Clone(defaults)}
	for i := range 3 * page {
		c.objects = append(c.objects, fmt.Sprintf("secrets default/%d", i))
	}
	if _, err := c.reconciled(lc); err != nil || c.holder != nil || len(c.objects) != 0 || c.reads < 3 {
		t.Errorf("left are %v after %d reads: %v", c.objects, c.reads, err)
	}
	last := slices.IndexFunc(c.rounds, func(round []string) bool { return slices.Contains(round, "namespaces default") })
	for at, round := range c.rounds {
		if at > last && slices.ContainsFunc(round, func(o string) bool { return strings.HasPrefix(o, "secrets ") }) {
			t.Errorf("transaction %d deletes %v, after the namespace in transaction %d", at, round, last)
		}
	}
}

// Finalizers, webhooks and objects of other resources need requests to the API. Namespaces and the bindings that grant access wait for them.
func TestObjectsThatNeedMoreAreDeletedThroughTheAPI(t *testing.T) {
	for name, c := range map[string]struct {
		more string
		want []string // the resources with requests to the API
		left []string // in storage
	}{
		"an object with a finalizer": {
			"configmaps default/mine!", []string{"configmaps", "namespaces"},
			[]string{"configmaps default/mine!", "namespaces default", "namespaces kube-system", binding + " owner"},
		},
		"a custom object": {
			"widgets.example.org default/mine!", []string{"namespaces", "widgets.example.org"},
			[]string{"widgets.example.org default/mine!", "namespaces default", "namespaces kube-system", binding + " owner"},
		},
		"a webhook": {
			"validatingwebhookconfigurations.admissionregistration.k8s.io mine!",
			[]string{"configmaps", "namespaces", "serviceaccounts", "validatingwebhookconfigurations.admissionregistration.k8s.io"},
			append(slices.Clone(defaults), "validatingwebhookconfigurations.admissionregistration.k8s.io mine!"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			lc, holder := doomed()
			w := &content{t: t, holder: holder, objects: append(slices.Clone(defaults), c.more)}
			client, _ := w.reconciled(lc)
			asked := sets.New[string]()
			for _, action := range client.Actions() {
				asked.Insert(action.GetResource().GroupResource().String())
			}
			if diff := cmp.Diff(c.want, sets.List(asked)); diff != "" {
				t.Errorf("requests to the API: %s", diff)
			}
			slices.Sort(w.objects)
			slices.Sort(c.left)
			if diff := cmp.Diff(c.left, w.objects); diff != "" || w.holder == nil {
				t.Errorf("stored: %s", diff)
			}
		})
	}
}

func TestALogicalClusterWithFinalizersOfOthersStays(t *testing.T) {
	lc, holder := doomed()
	holder.Object.SetFinalizers(append(holder.Object.GetFinalizers(), "example.org/mine"))
	c := &content{t: t, holder: holder, objects: slices.Clone(defaults)}
	if _, err := c.reconciled(lc); len(c.objects) != 0 || c.holder == nil {
		t.Errorf("left are %v, and the cluster %v: %v", c.objects, c.holder, err)
	}
}

func TestAWorkspaceIsMarkedAsDeletedOnlyIfItIsTheListedOne(t *testing.T) {
	for name, tc := range map[string]struct {
		uid  types.UID
		want bool
	}{"the listed one": {"1", true}, "another one of its name": {"2", false}} {
		t.Run(name, func(t *testing.T) {
			o := objecttest.New(t)
			ws := objecttest.In("c", &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: "team", Generation: 1}})
			ws.UID = tc.uid
			o.Store(ws)
			stored := o.Stored(o.Set.Workspaces.Informer)
			r := &reconciler{Inputs: Inputs{Workspaces: stored, Clock: clock.RealClock{}}}
			ctx := logicalcluster.WithName(t.Context(), "c")
			err := r.markDeleted(ctx, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "team", UID: "1"}})
			if tc.want != (err == nil) || err != nil && !apierrors.IsNotFound(err) {
				t.Errorf("got %v", err)
			}
			live := &tenancyv1alpha1.Workspace{}
			if err := stored.Get(ctx, "team", live); err != nil {
				t.Fatal(err)
			}
			if (live.DeletionTimestamp != nil) != tc.want || (live.Generation == 2) != tc.want {
				t.Errorf("stored is %+v", live.ObjectMeta)
			}
		})
	}
}
