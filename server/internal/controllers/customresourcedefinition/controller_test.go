package customresourcedefinition

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/logicalcluster"
)

type (
	definition = apiextensionsv1.CustomResourceDefinition
	change     = func(*definition)
)

var (
	key        = informers.Key{Cluster: "c", Name: "widgets.example.org"}
	errStorage = errors.New("etcd is away")
)

// widgets returns the definition of widgets in cluster c, as changes leave it.
func widgets(changes ...change) *definition {
	crd := objecttest.In("c", &definition{ObjectMeta: metav1.ObjectMeta{
		Name: key.Name, UID: "1", ResourceVersion: "5", Finalizers: []string{apiextensionsv1.CustomResourceCleanupFinalizer},
	}})
	crd.Spec.Group, crd.Spec.Scope = "example.org", apiextensionsv1.ClusterScoped
	crd.Spec.Names = names("widgets", "Widget")
	crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{
		Name: "v1", Served: true, Storage: true,
		Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
	}}
	for _, change := range changes {
		change(crd)
	}
	return crd
}

func names(plural, kind string) apiextensionsv1.CustomResourceDefinitionNames {
	return apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: kind, ListKind: kind + "List"}
}

// established is the change to a definition that has its names.
func established(crd *definition) {
	crd.Status.AcceptedNames = crd.Spec.Names
	for _, c := range []apiextensionsv1.CustomResourceDefinitionCondition{
		condition(apiextensionsv1.NamesAccepted, true, "NoConflicts", "no conflicts found"),
		condition(apiextensionsv1.Established, true, "InitialNamesAccepted", "the initial names have been accepted"),
	} {
		apiextensionshelpers.SetCRDCondition(crd, c)
	}
}

func deleted(crd *definition) { now := metav1.Now(); crd.DeletionTimestamp = &now }

func called(name, plural, kind string) change {
	return func(crd *definition) { crd.Name, crd.Spec.Names = name, names(plural, kind) }
}

func group(group string) change { return func(crd *definition) { crd.Spec.Group = group } }

func in(cluster string) change { return func(crd *definition) { objecttest.In(cluster, crd) } }

// served returns what a cluster serves of a definition, through a binding unless its name is empty.
func served(crd *definition, binding string, system bool) customresources.Installed {
	return customresources.Installed{Definition: customresources.Unserved(crd, customresources.Traits{System: system}), Binding: binding}
}

// locks returns the logical cluster in which a binding has the resource widgets.
func locks(binding string) *corev1alpha1.LogicalCluster {
	lc := objecttest.In("c", &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.LogicalClusterName}})
	lc.Annotations[apisv1alpha2.ResourceBindingsAnnotation] = `{"widgets.example.org":{"n":"` + binding + `"}}`
	return lc
}

// outcome is the status of a definition.
type outcome struct {
	Plural, Kind string
	Conditions   []string
}

func TestNamesAndConditionsOfADefinition(t *testing.T) {
	const accepted, initial = "NamesAccepted True NoConflicts", "Established True InitialNamesAccepted"
	const conflict, refused = "NamesAccepted False NameConflict", "Established False NotAccepted"
	gets := func(conditions ...string) outcome {
		return outcome{"widgets", "Widget", append([]string{accepted, initial}, conditions...)}
	}
	binding := objecttest.In("c", &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"}})
	gadgets := called("gadgets.example.org", "gadgets", "Widget")
	for _, tc := range []struct {
		name    string
		crd     *definition
		objects []objecttest.Object
		serves  []customresources.Installed
		want    outcome
	}{
		{"A new definition is established", widgets(), nil, nil, gets()},
		{"A definition without a conflict any more is established", widgets(func(crd *definition) {
			crd.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{condition(apiextensionsv1.NamesAccepted, false, "NameConflict", "")}
		}), nil, nil, gets()},
		{
			"A kind of another definition is not accepted", widgets(), []objecttest.Object{widgets(gadgets, established)}, nil,
			outcome{"widgets", "", []string{conflict, refused}},
		},
		{"A kind that another definition did not get is free", widgets(), []objecttest.Object{widgets(gadgets)}, nil, gets()},
		{"A kind in another group is free", widgets(), []objecttest.Object{widgets(gadgets, established, group("example.com"))}, nil, gets()},
		{"A kind in another cluster is free", widgets(), []objecttest.Object{widgets(gadgets, established, in("other"))}, nil, gets()},
		{
			"A built-in name is not accepted", widgets(group("built.in"), called(key.Name, "widgets", "BuiltIn")), nil, nil,
			outcome{"widgets", "", []string{conflict, refused}},
		},
		{
			"A name of the server is not accepted", widgets(), nil, []customresources.Installed{served(widgets(established), "", true)},
			outcome{"", "", []string{conflict, refused}},
		},
		{
			"A name of a bound resource is not accepted", widgets(), nil, []customresources.Installed{served(widgets(established), "b", false)},
			outcome{"", "", []string{conflict, refused}},
		},
		{
			"A bound resource of another group does not count", widgets(), nil,
			[]customresources.Installed{served(widgets(established, group("example.com")), "b", false)}, gets(),
		},
		{
			"A definition does not conflict with itself", widgets(), nil, []customresources.Installed{served(widgets(established), "", false)}, gets(),
		},
		{
			"A resource that a binding has taken is not accepted before it is served", widgets(), []objecttest.Object{locks("b"), binding}, nil,
			outcome{"", "Widget", []string{conflict, refused}},
		},
		{"A resource that a deleted binding had is free", widgets(), []objecttest.Object{locks("b")}, nil, gets()},
		{
			"An established definition stays established with a name that is in use",
			widgets(established, func(crd *definition) { crd.Spec.Names.Kind = "Gadget" }),
			[]objecttest.Object{widgets(called("gadgets.example.org", "gadgets", "Gadget"), established)}, nil,
			outcome{"widgets", "Widget", []string{conflict, initial}},
		},
		{
			"An established definition gets another name that is free", widgets(established, func(crd *definition) { crd.Spec.Names.Kind = "Gadget" }), nil, nil,
			outcome{"widgets", "Gadget", []string{accepted, initial}},
		},
		{
			"A version without a schema is reported", widgets(func(crd *definition) { crd.Spec.Versions[0].Schema = nil }), nil, nil,
			gets("NonStructuralSchema True Violations"),
		},
		{
			"A schema that was corrected is not reported any more", widgets(established, func(crd *definition) {
				apiextensionshelpers.SetCRDCondition(crd, condition(apiextensionsv1.NonStructuralSchema, true, "Violations", ""))
			}), nil, nil, gets(),
		},
		{
			"A protected group without an approval is reported", widgets(group("widgets.k8s.io")), nil, nil,
			gets("KubernetesAPIApprovalPolicyConformant False MissingAnnotation"),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, tc.serves, append(tc.objects, tc.crd)...)
			c := New(w.inputs())
			if err := c.Reconcile(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, statusOf(w.definitions.stored[key.Name])); diff != "" {
				t.Error(diff)
			}
			if err := c.Reconcile(t.Context(), key); err != nil || w.definitions.writes != 1 {
				t.Errorf("a second reconciliation: %v, %d writes", err, w.definitions.writes)
			}
		})
	}
}

func statusOf(crd *definition) outcome {
	out := outcome{Plural: crd.Status.AcceptedNames.Plural, Kind: crd.Status.AcceptedNames.Kind}
	for _, c := range crd.Status.Conditions {
		out.Conditions = append(out.Conditions, string(c.Type)+" "+string(c.Status)+" "+c.Reason)
	}
	return out
}

func TestNamesAreNotWritten(t *testing.T) {
	for _, tc := range []struct {
		name string
		crd  *definition
	}{
		{"An established definition stays as it is", widgets(established)},
		{"A definition that is being deleted stays as it is", widgets(deleted)},
		{"A definition that is gone is no failure", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, nil)
			if tc.crd != nil {
				w = newWorld(t, nil, tc.crd)
			}
			if err := New(w.inputs()).Reconcile(t.Context(), key); err != nil || w.definitions.writes > 0 {
				t.Errorf("got error %v, %d writes", err, w.definitions.writes)
			}
		})
	}
}

// The informer is behind: the second definition must not get the names that the first one was given a moment ago.
func TestTwoDefinitionsDoNotGetTheSameName(t *testing.T) {
	w := newWorld(t, nil, widgets(), widgets(called("gadgets.example.org", "gadgets", "Widget")))
	c := New(w.inputs())
	for _, name := range []string{key.Name, "gadgets.example.org"} {
		if err := c.Reconcile(t.Context(), informers.Key{Cluster: "c", Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	first, second := w.definitions.stored[key.Name], w.definitions.stored["gadgets.example.org"]
	if first.Status.AcceptedNames.Kind != "Widget" || second.Status.AcceptedNames.Kind != "" {
		t.Errorf("got the kinds %q and %q", first.Status.AcceptedNames.Kind, second.Status.AcceptedNames.Kind)
	}
	w.o.Hide(first)
	if err := c.Reconcile(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if err := c.Reconcile(t.Context(), informers.Key{Cluster: "c", Name: "gadgets.example.org"}); err != nil {
		t.Fatal(err)
	}
	if got := w.definitions.stored["gadgets.example.org"].Status.AcceptedNames.Kind; got != "Widget" {
		t.Errorf("the kind is not free after the deletion of its definition: got %q", got)
	}
}

func TestFailedWritesOfNames(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fail  func(*definitions)
		fails bool
	}{
		{"A definition that has changed is a conflict", func(d *definitions) { d.stored[key.Name].ResourceVersion = "6" }, true},
		{"A definition that was deleted is no failure", func(d *definitions) { delete(d.stored, key.Name) }, false},
		{"A failure is retried", func(d *definitions) { d.err = errStorage }, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, nil, widgets())
			tc.fail(w.definitions)
			if err := New(w.inputs()).Reconcile(t.Context(), key); (err != nil) != tc.fails || w.definitions.writes > 0 {
				t.Errorf("got error %v, %d writes", err, w.definitions.writes)
			}
		})
	}
}

func TestDeletionOfADefinition(t *testing.T) {
	notServed := func(crd *definition) { crd.Spec.Versions[0].Served = false }
	const terminating = "Terminating True InstanceDeletionInProgress"
	for _, tc := range []struct {
		name       string
		crd        *definition
		serves     []customresources.Installed
		instances  int // in the cluster
		stuck      bool
		requests   []string
		conditions []string // beside those of an established definition
		finalizers []string
	}{
		{
			"A definition that is not being deleted stays as it is", widgets(established), nil, 1, false,
			nil, nil, []string{apiextensionsv1.CustomResourceCleanupFinalizer},
		},
		{
			"A definition without the finalizer stays as it is",
			widgets(established, deleted, func(crd *definition) { crd.Finalizers = []string{"example.org/mine"} }), nil, 1, false,
			nil, nil, []string{"example.org/mine"},
		},
		{
			"All instances are deleted, then the finalizer is removed", widgets(established, deleted), nil, 2, false,
			[]string{"list v1", "delete v1", "delete v1", "list v1"}, []string{terminating}, []string{},
		},
		{
			"Other finalizers stay", widgets(established, deleted, func(crd *definition) { crd.Finalizers = append(crd.Finalizers, "example.org/mine") }),
			nil, 0, false, []string{"list v1"}, []string{terminating}, []string{"example.org/mine"},
		},
		{
			"Instances with finalizers keep the definition", widgets(established, deleted), nil, 1, true,
			[]string{"list v1", "delete v1", "list v1"}, []string{terminating}, []string{apiextensionsv1.CustomResourceCleanupFinalizer},
		},
		{"A definition that was never established has no instances", widgets(deleted), nil, 1, false, nil, []string{terminating}, []string{}},
		{
			"The instances of a bound resource stay", widgets(established, deleted), []customresources.Installed{served(widgets(), "b", false)}, 1, false,
			nil, []string{terminating}, []string{},
		},
		{
			"The instances of a resource of the server stay", widgets(established, deleted), []customresources.Installed{served(widgets(), "", true)}, 1, false,
			nil, []string{terminating}, []string{},
		},
		{
			"The instances of a built-in resource stay", widgets(group("built.in"), called(key.Name, "builtins", "Mine"), established, deleted), nil, 1, false,
			nil, []string{terminating}, []string{},
		},
		{
			"Instances that no version serves are deleted from storage", widgets(notServed, established, deleted), nil, 1, false,
			[]string{"storage widgets.example.org"}, []string{terminating}, []string{},
		},
		{
			"Instances of a bound resource that no version serves stay in storage", widgets(notServed, established, deleted),
			[]customresources.Installed{served(widgets(), "b", false)}, 1, false, nil, []string{terminating}, []string{},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, tc.serves, tc.crd)
			w.instances, w.stuck = tc.instances, tc.stuck
			if err := NewDeleter(w.inputs()).Reconcile(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.requests, w.requests); diff != "" {
				t.Error(diff)
			}
			stored := w.definitions.stored[key.Name]
			if diff := cmp.Diff(tc.conditions, statusOf(stored).Conditions[len(tc.crd.Status.Conditions):], cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tc.finalizers, stored.Finalizers, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFailedDeletionsOfADefinition(t *testing.T) {
	notFound := apierrors.NewNotFound(schema.GroupResource{Resource: "widgets"}, "")
	for _, tc := range []struct {
		name     string
		crd      *definition
		fail     func(*world)
		released bool
		fails    bool
	}{
		{"Instances that cannot be listed keep the definition", widgets(established, deleted), func(w *world) { w.err = errStorage }, false, true},
		{"A resource that is not served any more has no instances", widgets(established, deleted), func(w *world) { w.err = notFound }, true, false},
		{
			"Instances that cannot be deleted from storage keep the definition",
			widgets(established, deleted, func(crd *definition) { crd.Spec.Versions[0].Served = false }), func(w *world) { w.err = errStorage }, false, true,
		},
		{
			"A definition that has changed since the informer showed it is released", widgets(established, deleted),
			func(w *world) { w.definitions.stored[key.Name].ResourceVersion = "6" }, true, false,
		},
		{
			"A definition that changes now is a conflict", widgets(established, deleted),
			func(w *world) {
				w.definitions.err = apierrors.NewConflict(schema.GroupResource{}, key.Name, errStorage)
			}, false, true,
		},
		{"A definition that is gone is no failure", widgets(established, deleted), func(w *world) { delete(w.definitions.stored, key.Name) }, true, false},
		{"A definition that nothing shows is no failure", widgets(established, deleted), func(w *world) { w.o.Hide(widgets()) }, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, nil, tc.crd)
			tc.fail(w)
			if err := NewDeleter(w.inputs()).Reconcile(t.Context(), key); (err != nil) != tc.fails {
				t.Errorf("got error %v", err)
			}
			crd := w.definitions.stored[key.Name]
			if released := crd == nil || len(crd.Finalizers) == 0; released != tc.released {
				t.Errorf("got %v", crd)
			}
		})
	}
}

// The informer can show a deleted definition for longer than the next one of its name takes to get objects.
func TestTheObjectsOfTheNextDefinitionOfTheNameAreKept(t *testing.T) {
	w := newWorld(t, nil, widgets(established, deleted))
	w.instances = 1
	w.definitions.stored[key.Name] = widgets(established, func(crd *definition) { crd.UID, crd.ResourceVersion = "2", "9" })
	if err := NewDeleter(w.inputs()).Reconcile(t.Context(), key); err != nil || len(w.requests) > 0 || w.definitions.writes > 0 {
		t.Errorf("got error %v, requests %v, %d writes", err, w.requests, w.definitions.writes)
	}
}

// definitions stores definitions, and patches their status as the API server does. Informers do not show the changes.
type definitions struct {
	apiextensionsclient.CustomResourceDefinitionInterface
	stored map[string]*definition
	writes int
	err    error
}

func (d *definitions) Get(_ context.Context, name string, _ metav1.GetOptions) (*definition, error) {
	if crd := d.stored[name]; crd != nil {
		return crd.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(apiextensionsv1.Resource("customresourcedefinitions"), name)
}

func (d *definitions) Patch(ctx context.Context, name string, kind types.PatchType, data []byte, _ metav1.PatchOptions, sub ...string) (
	*definition, error,
) {
	resource := apiextensionsv1.Resource("customresourcedefinitions")
	crd := d.stored[name]
	var patch []struct {
		Path  string
		Value json.RawMessage
	}
	switch cluster, err := logicalcluster.NameFrom(ctx); {
	case d.err != nil:
		return nil, d.err
	case err != nil || cluster != "c" || kind != types.JSONPatchType || !slices.Equal(sub, []string{"status"}):
		return nil, apierrors.NewBadRequest("another patch was expected")
	case crd == nil:
		return nil, apierrors.NewNotFound(resource, name)
	case json.Unmarshal(data, &patch) != nil:
		return nil, apierrors.NewBadRequest("patch is not valid")
	}
	changed, version := crd.DeepCopy(), ""
	changed.Status, changed.Finalizers = apiextensionsv1.CustomResourceDefinitionStatus{}, nil
	for _, one := range patch {
		into, ok := map[string]any{
			"/metadata/resourceVersion": &version, "/metadata/finalizers": &changed.Finalizers, "/status": &changed.Status,
		}[one.Path]
		if !ok {
			return nil, apierrors.NewBadRequest("patch of " + one.Path)
		}
		if err := json.Unmarshal(one.Value, into); err != nil {
			return nil, err
		}
	}
	if version != crd.ResourceVersion {
		return nil, apierrors.NewConflict(resource, name, errors.New("changed"))
	}
	d.writes++
	changed.ResourceVersion += "0"
	d.stored[name] = changed
	return changed, nil
}

// world is what informers show and a cluster serves, and the requests of the controller.
type world struct {
	o           *objecttest.Objects
	definitions *definitions
	serves      []customresources.Installed
	instances   int
	stuck       bool
	err         error
	requests    []string
}

func newWorld(t *testing.T, serves []customresources.Installed, objects ...objecttest.Object) *world {
	t.Helper()
	w := &world{o: objecttest.New(t), definitions: &definitions{stored: map[string]*definition{}}, serves: serves}
	for _, obj := range objects {
		w.o.Show(obj)
		if crd, ok := obj.(*definition); ok && logicalcluster.Of(crd) == "c" {
			w.definitions.stored[crd.Name] = crd.DeepCopy()
		}
	}
	return w
}

func (w *world) inputs() Inputs {
	client := metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme())
	client.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		w.requests = append(w.requests, action.GetVerb()+" "+action.GetResource().Version)
		if w.err != nil {
			return true, nil, w.err
		}
		if action.GetVerb() == "delete" {
			if !w.stuck {
				w.instances--
			}
			return true, nil, nil
		}
		list := &metav1.List{}
		for range w.instances {
			list.Items = append(list.Items, runtime.RawExtension{Object: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "one"}}})
		}
		return true, list, nil
	})
	return Inputs{
		Set: w.o.Set, Definitions: w.definitions, Metadata: client, Remains: w,
		Serves: func(cluster logicalcluster.Name) []customresources.Installed { return w.serves },
		BuiltIn: func(group string) []apiextensionsv1.CustomResourceDefinitionNames {
			if group == "built.in" {
				return []apiextensionsv1.CustomResourceDefinitionNames{names("builtins", "BuiltIn")}
			}
			return nil
		},
	}
}

// Delete implements Remains.
func (w *world) Delete(_ context.Context, resource schema.GroupResource, identity string, waits func(*unstructured.Unstructured) bool) (int, error) {
	w.requests = append(w.requests, "storage "+resource.String()+identity)
	if waits(&unstructured.Unstructured{}) {
		return 1, errors.New("objects wait for their finalizers")
	}
	return 0, w.err
}
