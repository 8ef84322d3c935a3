package apibinding

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	testingclock "k8s.io/utils/clock/testing"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/internal/apis/discovery"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/internal/tenancy/exports"
	"github.com/kcplane/kcp/server/internal/tenancy/pathindex"
	"github.com/kcplane/kcp/server/logicalcluster"
)

const (
	consumer, provider = "c", "p"
	identity           = "identity-of-the-export"
	schemaUID          = "uid-of-the-schema"
	widgetsKey         = "widgets.example.org"
)

var (
	key           = informers.Key{Cluster: consumer, Name: "widgets"}
	now           = time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)
	widgets       = schema.GroupResource{Group: "example.org", Resource: "widgets"}
	configMaps    = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	errStorage    = errors.New("etcd is away")
	systemExports = exports.System{{Group: "tenancy.kcp.io", Resource: "workspaces"}: "tenancy.kcp.io"}
)

// cluster returns a logical cluster, with an annotation of locks unless it is empty.
func cluster(name, locks string) *corev1alpha1.LogicalCluster {
	lc := objecttest.In(name, &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.LogicalClusterName}})
	if locks != "" {
		lc.Annotations[apisv1alpha2.ResourceBindingsAnnotation] = locks
	}
	return lc
}

// binding returns the binding of the consumer, as changes leave it.
func binding(changes ...func(*apisv1alpha2.APIBinding)) *apisv1alpha2.APIBinding {
	b := objecttest.In(consumer, &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{
		Name: key.Name, UID: "1", Finalizers: []string{apisv1alpha2.APIBindingFinalizer},
	}})
	b.Spec.Reference.Export = &apisv1alpha2.ExportBindingReference{Path: provider, Name: "widgets"}
	for _, change := range changes {
		change(b)
	}
	return b
}

// export returns the export of the provider, as changes leave it.
func export(changes ...func(*apisv1alpha2.APIExport)) *apisv1alpha2.APIExport {
	e := objecttest.In(provider, &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: "widgets"}})
	e.Spec.Resources = []apisv1alpha2.ResourceSchema{{Group: "example.org", Name: "widgets", Schema: "v1.widgets.example.org"}}
	e.Status.IdentityHash = identity
	for _, change := range changes {
		change(e)
	}
	return e
}

// apiSchema returns the schema of widgets of the provider, as changes leave it.
func apiSchema(changes ...func(*apisv1alpha1.APIResourceSchema)) *apisv1alpha1.APIResourceSchema {
	s := objecttest.In(provider, &apisv1alpha1.APIResourceSchema{ObjectMeta: metav1.ObjectMeta{Name: "v1.widgets.example.org", UID: schemaUID}})
	s.Spec = apisv1alpha1.APIResourceSchemaSpec{
		Group: "example.org", Scope: apiextensionsv1.ClusterScoped,
		Names:    apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget", ListKind: "WidgetList"},
		Versions: []apisv1alpha1.APIResourceVersion{{Name: "v1", Served: true, Storage: true}},
	}
	for _, change := range changes {
		change(s)
	}
	return s
}

// keptAs returns a schema as the server keeps it.
func keptAs(uid string, s *apisv1alpha1.APIResourceSchema) *apisv1alpha1.APIResourceSchema {
	kept := objecttest.In(string(logicalcluster.SystemBoundCRDs), s)
	kept.Name = uid
	return kept
}

// crd returns a definition of a cluster's own that is established.
func crd(plural, kind string) *apiextensionsv1.CustomResourceDefinition {
	c := objecttest.In(consumer, &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: plural + ".example.org"}})
	c.Spec.Group, c.Spec.Scope = "example.org", apiextensionsv1.ClusterScoped
	c.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: kind, ListKind: kind + "List"}
	c.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true}}
	c.Status.AcceptedNames = c.Spec.Names
	c.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}}
	return c
}

// served returns what a cluster serves because of a binding, or of its own definition without one.
func served(c *apiextensionsv1.CustomResourceDefinition, binding string, traits customresources.Traits) customresources.Installed {
	return customresources.Installed{Definition: customresources.Unserved(c, traits), Binding: binding}
}

// bound returns what a status says of the resource of a schema, with the versions in which objects were stored.
func bound(uid, identityHash string, versions ...string) apisv1alpha2.BoundAPIResource {
	return apisv1alpha2.BoundAPIResource{
		Group: "example.org", Resource: "widgets", StorageVersions: versions,
		Schema: apisv1alpha2.BoundAPIResourceSchema{Name: "v1.widgets.example.org", UID: uid, IdentityHash: identityHash},
	}
}

// complete is the change to a binding that is bound to the export.
func complete(resources ...apisv1alpha2.BoundAPIResource) func(*apisv1alpha2.APIBinding) {
	return func(b *apisv1alpha2.APIBinding) {
		b.Status.Phase, b.Status.APIExportClusterName, b.Status.BoundResources = apisv1alpha2.APIBindingPhaseBound, provider, resources
		for _, kind := range []string{
			apisv1alpha2.APIBindingExportValid, apisv1alpha2.APIBindingInitialBindingCompleted, apisv1alpha2.APIBindingUpToDate,
			apisv1alpha2.APIBindingPermissionClaimsApplied, apisv1alpha2.APIBindingPermissionClaimsValid, apisv1alpha2.APIBindingReady,
		} {
			condition(&b.Status, kind, nil, "")
		}
	}
}

// world is what is stored and served, and the requests of the controller.
type world struct {
	*objecttest.Objects
	serves   []customresources.Installed
	builtIn  []apiextensionsv1.CustomResourceDefinitionNames
	defaults []*apisv1alpha2.APIBinding
	// items are the objects of any resource that clients list, failing is what clients get instead.
	items   []metav1.PartialObjectMetadata
	failing error
	remains remains
	// requests are those for objects, by clients and of what is stored.
	requests   []string
	controller *runner.Controller
	t          *testing.T
}

func newWorld(t *testing.T, objects ...objecttest.Object) *world {
	t.Helper()
	w := &world{Objects: objecttest.New(t, objects...), t: t}
	w.remains.world = w
	all, err := exports.New(w.Set, pathindex.New(w.Set), systemExports, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme())
	client.PrependReactor("*", "*", w.react)
	w.controller = New(Inputs{
		Set: w.Set, Exports: all, Metadata: client, Remains: &w.remains, Clock: testingclock.NewFakePassiveClock(now),
		Defaults: func(*corev1alpha1.LogicalCluster) []*apisv1alpha2.APIBinding { return w.defaults },
		Serves:   func(logicalcluster.Name) []customresources.Installed { return w.serves },
		BuiltIn:  func(string) []apiextensionsv1.CustomResourceDefinitionNames { return w.builtIn },
		Resources: func(context.Context) ([]discovery.Resource, error) {
			verbs := sets.New("list", "patch")
			return []discovery.Resource{
				{GroupVersionResource: configMaps, Verbs: verbs}, {GroupVersionResource: widgets.WithVersion("v1"), Verbs: verbs},
			}, nil
		},
		Bindings: w.Stored(w.Set.APIBindings.Informer), Schemas: w.Stored(w.Set.APIResourceSchemas.Informer),
		Conversions: w.Stored(w.Set.APIConversions.Informer), Clusters: w.Stored(w.Set.LogicalClusters.Informer),
	})
	return w
}

func (w *world) reconcile() error {
	w.t.Helper()
	return w.controller.Reconcile(w.t.Context(), key)
}

// react answers the requests of clients.
func (w *world) react(action clienttesting.Action) (bool, runtime.Object, error) {
	text := action.GetVerb() + " " + action.GetResource().GroupResource().String()
	if named, ok := action.(interface{ GetName() string }); ok && action.GetVerb() != "list" {
		text += " " + named.GetName()
	}
	w.requests = append(w.requests, text)
	if w.failing != nil {
		return true, nil, w.failing
	}
	if action.GetVerb() == "delete" {
		w.items = slices.DeleteFunc(w.items, func(item metav1.PartialObjectMetadata) bool {
			return strings.HasSuffix(text, " "+item.Name) && len(item.Finalizers) == 0
		})
		return true, nil, nil
	}
	if action.GetVerb() != "list" {
		return true, &metav1.PartialObjectMetadata{}, nil
	}
	list := &metav1.List{}
	for _, item := range w.items {
		list.Items = append(list.Items, runtime.RawExtension{Object: item.DeepCopy()})
	}
	return true, list, nil
}

// stored returns the stored binding, nil if there is none.
func (w *world) stored() *apisv1alpha2.APIBinding {
	w.t.Helper()
	b := &apisv1alpha2.APIBinding{}
	err := w.Stored(w.Set.APIBindings.Informer).Get(logicalcluster.WithName(w.t.Context(), consumer), key.Name, b)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		w.t.Fatal(err)
	}
	return b
}

// conditionsOf returns conditions as "Type Status Reason", but for those that are True, of which it returns the type.
func conditionsOf(b *apisv1alpha2.APIBinding) (isTrue, others []string) {
	for _, c := range b.Status.Conditions {
		if c.Status == metav1.ConditionTrue {
			isTrue = append(isTrue, c.Type)
		} else {
			others = append(others, c.Type+" "+c.Reason)
		}
	}
	return isTrue, others
}

// remains are the stored objects of custom resources.
type remains struct {
	world *world
	// left is how many objects wait for their finalizers, storedIn is a version that is stored, identities those with objects.
	left       int
	deleted    bool // those that are left are being deleted
	storedIn   string
	identities []string
	err        error
}

func (r *remains) request(verb string, resource schema.GroupResource, identity string) {
	r.world.requests = append(r.world.requests, "stored: "+verb+" "+resource.String()+" "+identity)
}

// Delete implements Remains. One object is left for each that the caller lets wait.
func (r *remains) Delete(_ context.Context, resource schema.GroupResource, identity string,
	waits func(*unstructured.Unstructured) bool) (int, error) {
	r.request("delete", resource, identity)
	left := 0
	for range r.left {
		u := &unstructured.Unstructured{Object: map[string]any{}}
		u.SetName("one")
		if r.deleted {
			u.SetDeletionTimestamp(&metav1.Time{Time: now})
		}
		if waits(u) {
			left++
		}
	}
	return left, r.err
}

// Identities implements Remains.
func (r *remains) Identities(context.Context, schema.GroupResource) ([]string, error) {
	return r.identities, r.err
}

// StoredIn implements Remains.
func (r *remains) StoredIn(_ context.Context, _ schema.GroupResource, _ string, known sets.Set[string]) (string, error) {
	if known.Has(r.storedIn) {
		return "", r.err
	}
	return r.storedIn, r.err
}

// Relabel implements Remains.
func (r *remains) Relabel(_ context.Context, resource schema.GroupResource, identity string, _ func(map[string]string) map[string]string) error {
	r.request("relabel", resource, identity)
	return r.err
}
