package apibinding

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// outcome is the status of a binding: the conditions that are False with their reasons, and what is bound.
type outcome struct {
	Phase  apisv1alpha2.APIBindingPhase
	Export string // the cluster of the export
	False  []string
	Bound  []apisv1alpha2.BoundAPIResource
}

// all are the resources and schemas of a provider, and the consumer.
func all(b *apisv1alpha2.APIBinding, others ...objecttest.Object) []objecttest.Object {
	return append([]objecttest.Object{cluster(consumer, ""), cluster(provider, ""), export(), apiSchema(), b}, others...)
}

func TestStatusOfABinding(t *testing.T) {
	const phaseBound, phaseBinding = apisv1alpha2.APIBindingPhaseBound, apisv1alpha2.APIBindingPhaseBinding
	stored := bound(schemaUID, identity, "v1")
	namesInUse := []string{"InitialBindingCompleted NamingConflicts", "BindingUpToDate NamingConflicts", "Ready NamingConflicts"}
	notUpToDate := []string{"BindingUpToDate NamingConflicts"}
	invalid := func(reason string) []string {
		return []string{"APIExportValid " + reason, "InitialBindingCompleted WaitingForEstablished", "Ready WaitingForEstablished"}
	}
	clusters := []objecttest.Object{cluster(consumer, ""), cluster(provider, ""), binding()}
	locked := func(locks string, others ...objecttest.Object) []objecttest.Object {
		return append([]objecttest.Object{cluster(consumer, locks), cluster(provider, ""), export(), apiSchema(), binding()}, others...)
	}
	other := objecttest.In(consumer, &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: "other"}})
	shown := func(e *apisv1alpha2.APIExport) {
		e.Spec.Resources[0].Storage.Virtual = &apisv1alpha2.ResourceSchemaStorageVirtual{Reference: corev1.TypedLocalObjectReference{Name: "slice"}}
	}
	v2 := func(s *apisv1alpha1.APIResourceSchema) {
		s.UID, s.Spec.Versions = "uid-2", []apisv1alpha1.APIResourceVersion{{Name: "v2", Served: true, Storage: true}}
	}
	for _, tc := range []struct {
		name    string
		objects []objecttest.Object
		world   func(*world)
		want    outcome
	}{
		{"A binding gets the resources of its export", all(binding()), nil, outcome{phaseBound, provider, nil, []apisv1alpha2.BoundAPIResource{stored}}},
		{
			"A binding without a reference is not valid", all(binding(func(b *apisv1alpha2.APIBinding) { b.Spec.Reference.Export = nil })), nil,
			outcome{phaseBinding, "", []string{"APIExportValid APIExportInvalidReference"}, nil},
		},
		{"An export that does not exist is reported", clusters, nil, outcome{phaseBinding, "", invalid("APIExportNotFound"), nil}},
		{
			"A workspace of the export that does not exist is reported", []objecttest.Object{cluster(consumer, ""), binding()}, nil,
			outcome{phaseBinding, "", invalid("APIExportNotFound"), nil},
		},
		{
			"An export without an identity is reported", append(clusters, apiSchema(), export(func(e *apisv1alpha2.APIExport) { e.Status.IdentityHash = "" })), nil,
			outcome{phaseBinding, provider, invalid("MissingIdentityHash"), nil},
		},
		{"A missing schema is reported", append(clusters, export()), nil, outcome{phaseBinding, provider, invalid("InternalError"), nil}},
		{
			"A missing LogicalCluster is reported", []objecttest.Object{cluster(provider, ""), export(), apiSchema(), binding()}, nil,
			outcome{phaseBinding, provider, []string{
				"InitialBindingCompleted LogicalClusterNotFound", "BindingUpToDate LogicalClusterNotFound", "Ready LogicalClusterNotFound",
			}, nil},
		},
		{
			"What was bound stays bound without the export", []objecttest.Object{cluster(consumer, ""), cluster(provider, ""), binding(complete(stored))}, nil,
			outcome{phaseBound, provider, []string{"APIExportValid APIExportNotFound"}, []apisv1alpha2.BoundAPIResource{stored}},
		},
		{
			"An export of another workspace at the same path is not bound",
			all(binding(complete(stored), func(b *apisv1alpha2.APIBinding) { b.Status.APIExportClusterName = "former" })), nil,
			outcome{phaseBound, "former", []string{"APIExportValid APIExportInvalidReference"}, []apisv1alpha2.BoundAPIResource{stored}},
		},
		{"A resource that the workspace defines is not bound", all(binding(), crd("widgets", "Widget")), nil, outcome{phaseBinding, provider, namesInUse, nil}},
		{"A resource that another binding has is not bound", locked(`{"widgets.example.org":{"n":"other"}}`, other), nil, outcome{phaseBinding, provider, namesInUse, nil}},
		{
			"A resource that a deleted binding had is bound", locked(`{"widgets.example.org":{"n":"other"}}`), nil,
			outcome{phaseBound, provider, nil, []apisv1alpha2.BoundAPIResource{stored}},
		},
		{
			"A resource that a deleted definition had is bound", locked(`{"widgets.example.org":{"c":true}}`), nil,
			outcome{phaseBound, provider, nil, []apisv1alpha2.BoundAPIResource{stored}},
		},
		{
			"A resource whose hold for a definition has not expired is not bound", locked(`{"widgets.example.org":{"c":true,"e":"2099-01-01T00:00:00Z"}}`), nil,
			outcome{phaseBinding, provider, namesInUse, nil},
		},
		{
			"A kind that the workspace serves is a conflict", all(binding()),
			func(w *world) {
				w.serves = []customresources.Installed{served(crd("gadgets", "Widget"), "", customresources.Traits{})}
			}, outcome{phaseBinding, provider, namesInUse, nil},
		},
		{
			"The resource as the binding itself serves it is no conflict", all(binding()),
			func(w *world) {
				w.serves = []customresources.Installed{served(crd("widgets", "Widget"), "widgets", customresources.Traits{})}
			}, outcome{phaseBound, provider, nil, []apisv1alpha2.BoundAPIResource{stored}},
		},
		{
			"A built-in kind is a conflict", all(binding()),
			func(w *world) {
				w.builtIn = []apiextensionsv1.CustomResourceDefinitionNames{{Plural: "others", Kind: "Widget"}}
			},
			outcome{phaseBinding, provider, namesInUse, nil},
		},
		{
			"A schema that cannot be stored is reported", all(binding()), func(w *world) {
				w.Stored(w.Set.APIResourceSchemas.Informer).Fail(logicalcluster.SystemBoundCRDs, schemaUID, apierrors.NewInvalid(schema.GroupKind{}, "", nil))
			}, outcome{phaseBinding, provider, []string{
				"InitialBindingCompleted APIResourceSchemaInvalid", "BindingUpToDate APIResourceSchemaInvalid", "Ready APIResourceSchemaInvalid",
			}, nil},
		},
		{
			"Objects under another identity keep the binding as it is", all(binding(complete(bound(schemaUID, "former", "v1")))), nil,
			outcome{phaseBound, provider, notUpToDate, []apisv1alpha2.BoundAPIResource{bound(schemaUID, "former", "v1")}},
		},
		{
			"Objects of another scope keep the binding as it is",
			all(binding(complete(bound("uid-0", identity, "v1"))), keptAs("uid-0", apiSchema(func(s *apisv1alpha1.APIResourceSchema) { s.Spec.Scope = apiextensionsv1.NamespaceScoped }))),
			nil, outcome{phaseBound, provider, notUpToDate, []apisv1alpha2.BoundAPIResource{bound("uid-0", identity, "v1")}},
		},
		{
			"Objects in a version that the schema does not have keep the binding as it is",
			[]objecttest.Object{cluster(consumer, ""), cluster(provider, ""), export(), apiSchema(v2), binding(complete(stored)), keptAs(schemaUID, apiSchema())},
			func(w *world) { w.remains.storedIn = "v1" }, outcome{phaseBound, provider, notUpToDate, []apisv1alpha2.BoundAPIResource{stored}},
		},
		{
			"A binding follows its export to another schema, and keeps the versions of stored objects",
			[]objecttest.Object{cluster(consumer, ""), cluster(provider, ""), export(), apiSchema(v2), binding(complete(stored)), keptAs(schemaUID, apiSchema())},
			nil, outcome{phaseBound, provider, nil, []apisv1alpha2.BoundAPIResource{bound("uid-2", identity, "v1", "v2")}},
		},
		{
			"Virtual resources have no stored versions", []objecttest.Object{cluster(consumer, ""), cluster(provider, ""), export(shown), apiSchema(), binding()}, nil,
			outcome{phaseBound, provider, nil, []apisv1alpha2.BoundAPIResource{bound(schemaUID, identity)}},
		},
		{
			"A resource with stored objects does not become virtual",
			[]objecttest.Object{cluster(consumer, ""), cluster(provider, ""), export(shown), apiSchema(), binding(complete(stored))}, nil,
			outcome{phaseBound, provider, notUpToDate, []apisv1alpha2.BoundAPIResource{stored}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, tc.objects...)
			if tc.world != nil {
				tc.world(w)
			}
			if err := w.reconcile(); err != nil {
				t.Fatal(err)
			}
			got := w.stored()
			_, others := conditionsOf(got)
			if diff := cmp.Diff(tc.want, outcome{got.Status.Phase, got.Status.APIExportClusterName, others, got.Status.BoundResources}, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
			for _, c := range got.Status.Conditions {
				if c.Status != metav1.ConditionTrue && c.Message == "" {
					t.Errorf("%s has no message", c.Type)
				}
			}
			writes := w.Stored(w.Set.APIBindings.Informer).Writes
			if err := w.reconcile(); err != nil || w.Stored(w.Set.APIBindings.Informer).Writes != writes {
				t.Errorf("a second reconciliation writes again, or fails: %v", err)
			}
		})
	}
}

func TestBindingsToExportsOfTheServer(t *testing.T) {
	const name = "tenancy.kcp.io"
	e := objecttest.In("root", &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: name}})
	e.Spec.Resources = []apisv1alpha2.ResourceSchema{{Group: name, Name: "workspaces", Schema: "v1.workspaces"}}
	e.Status.IdentityHash = identity
	s := objecttest.In("root", &apisv1alpha1.APIResourceSchema{ObjectMeta: metav1.ObjectMeta{Name: "v1.workspaces", UID: schemaUID}})
	s.Spec.Group = name
	b := binding(func(b *apisv1alpha2.APIBinding) {
		b.Spec.Reference.Export = &apisv1alpha2.ExportBindingReference{Path: "root", Name: name}
	})
	workspaces := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "workspaces.tenancy.kcp.io"}}
	for _, tc := range []struct {
		name   string
		serves []customresources.Installed
		want   []string
	}{
		{"A resource that the server serves is bound", []customresources.Installed{served(workspaces, "", customresources.Traits{System: true})}, nil},
		{"A resource that the server does not serve is reported", nil, []string{
			"InitialBindingCompleted InternalError", "BindingUpToDate InternalError", "Ready InternalError",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, cluster("root", ""), cluster(consumer, ""), e, s, b)
			w.serves = tc.serves
			if err := w.reconcile(); err != nil {
				t.Fatal(err)
			}
			if _, got := conditionsOf(w.stored()); !cmp.Equal(tc.want, got) {
				t.Error(cmp.Diff(tc.want, got))
			}
			if schemas, clusters := w.Stored(w.Set.APIResourceSchemas.Informer), w.Stored(w.Set.LogicalClusters.Informer); schemas.Writes+clusters.Writes > 0 {
				t.Error("the schema is kept, or the resource is locked")
			}
		})
	}
}

func TestSchemasAndConversionsAreKept(t *testing.T) {
	conversion := func(in, name, from string) *apisv1alpha1.APIConversion {
		c := objecttest.In(in, &apisv1alpha1.APIConversion{ObjectMeta: metav1.ObjectMeta{Name: name}})
		c.Spec.Conversions = []apisv1alpha1.APIVersionConversion{{From: from}}
		return c
	}
	system := string(logicalcluster.SystemBoundCRDs)
	unused := keptAs(schemaUID, apiSchema())
	unused.Annotations[apisv1alpha2.UnusedSinceAnnotation] = "a time"
	mine := map[string]string{
		logicalcluster.AnnotationKey: system, apisv1alpha2.BoundCRDAnnotation: "", apisv1alpha2.SchemaClusterAnnotation: provider,
		apisv1alpha2.SchemaNameAnnotation: "v1.widgets.example.org",
	}
	for _, tc := range []struct {
		name        string
		objects     []objecttest.Object
		annotations map[string]string // of the schema that is kept
		from        string            // of the conversion that is kept
	}{
		{"A schema is copied under its UID", nil, mine, ""},
		{"A schema that is kept already stays as it is", []objecttest.Object{keptAs(schemaUID, apiSchema())}, map[string]string{logicalcluster.AnnotationKey: system}, ""},
		{"A schema that is used again loses its mark", []objecttest.Object{unused}, map[string]string{logicalcluster.AnnotationKey: system}, ""},
		{"A conversion is copied with its schema", []objecttest.Object{conversion(provider, "v1.widgets.example.org", "v1")}, mine, "v1"},
		{
			"A conversion that has changed is copied again",
			[]objecttest.Object{conversion(provider, "v1.widgets.example.org", "v2"), conversion(system, schemaUID, "v1")}, mine, "v2",
		},
		{"A conversion whose provider is gone stays", []objecttest.Object{conversion(system, schemaUID, "v1")}, mine, "v1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, all(binding(), tc.objects...)...)
			if err := w.reconcile(); err != nil {
				t.Fatal(err)
			}
			ctx := logicalcluster.WithName(t.Context(), logicalcluster.SystemBoundCRDs)
			kept := &apisv1alpha1.APIResourceSchema{}
			if err := w.Stored(w.Set.APIResourceSchemas.Informer).Get(ctx, schemaUID, kept); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.annotations, kept.Annotations); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(apiSchema().Spec, kept.Spec); diff != "" {
				t.Error(diff)
			}
			rules := &apisv1alpha1.APIConversion{}
			if err := w.Stored(w.Set.APIConversions.Informer).Get(ctx, schemaUID, rules); err != nil && (tc.from != "" || !apierrors.IsNotFound(err)) {
				t.Fatal(err)
			}
			if tc.from != "" && rules.Spec.Conversions[0].From != tc.from {
				t.Errorf("got conversion from %s, want %s", rules.Spec.Conversions[0].From, tc.from)
			}
		})
	}
}

func TestAnnotationsOfTheExportAreStored(t *testing.T) {
	const key = apisv1alpha2.ExtraAnnotationPrefix + "a"
	b := binding(complete(bound(schemaUID, identity, "v1")))
	w := newWorld(t, cluster(consumer, ""), cluster(provider, ""), apiSchema(), b, export(func(e *apisv1alpha2.APIExport) { e.Annotations[key] = "1" }))
	if err := w.reconcile(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{logicalcluster.AnnotationKey: consumer, key: "1"}, w.stored().Annotations); diff != "" {
		t.Error(diff)
	}
}

func TestFailuresOfABindingAreRetried(t *testing.T) {
	for _, tc := range []struct {
		name    string
		binding *apisv1alpha2.APIBinding
		fail    func(*world)
	}{
		{"The resource cannot be locked", binding(), func(w *world) {
			w.Stored(w.Set.LogicalClusters.Informer).Fail(consumer, corev1alpha1.LogicalClusterName, errStorage)
		}},
		{"The schema cannot be kept", binding(), func(w *world) {
			w.Stored(w.Set.APIResourceSchemas.Informer).Fail(logicalcluster.SystemBoundCRDs, schemaUID, errStorage)
		}},
		{"The former schema cannot be read", binding(complete(bound("uid-0", identity, "v1"))), func(w *world) {
			w.Stored(w.Set.APIResourceSchemas.Informer).Fail(logicalcluster.SystemBoundCRDs, "uid-0", errStorage)
		}},
		{"The status cannot be written", binding(), func(w *world) { w.Stored(w.Set.APIBindings.Informer).Fail(consumer, key.Name, errStorage) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, all(tc.binding)...)
			tc.fail(w)
			if err := w.reconcile(); !errors.Is(err, errStorage) || w.Stored(w.Set.APIBindings.Informer).Writes > 0 {
				t.Errorf("got error %v", err)
			}
		})
	}
}

func TestTheStatusOfAnotherBindingIsNotOverwritten(t *testing.T) {
	w := newWorld(t, all(binding())...)
	w.Store(binding(func(b *apisv1alpha2.APIBinding) { b.UID = "2" }))
	if err := w.reconcile(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(apisv1alpha2.APIBindingStatus{}, w.stored().Status); diff != "" {
		t.Error(diff)
	}
}

func TestBindingsThatWorkspaceTypesMaintain(t *testing.T) {
	claimed := apisv1alpha2.PermissionClaim{GroupResource: apisv1alpha2.GroupResource{Resource: "configmaps"}, Verbs: []string{"get"}}
	claiming := export(func(e *apisv1alpha2.APIExport) { e.Spec.PermissionClaims = []apisv1alpha2.PermissionClaim{claimed} })
	accepted := []apisv1alpha2.AcceptablePermissionClaim{{
		ScopedPermissionClaim: apisv1alpha2.ScopedPermissionClaim{PermissionClaim: claimed, Selector: apisv1alpha2.PermissionClaimSelector{MatchAll: true}},
		State:                 apisv1alpha2.ClaimAccepted,
	}}
	mode := func(mode tenancyv1alpha1.APIBindingLifecycleMode) func(*apisv1alpha2.APIBinding) {
		return func(b *apisv1alpha2.APIBinding) {
			b.Annotations[apisv1alpha2.DefaultAPIBindingLifecycleAnnotation] = string(mode)
		}
	}
	maintained, initial := mode(tenancyv1alpha1.APIBindingLifecycleModeMaintain), mode(tenancyv1alpha1.APIBindingLifecycleModeInitializeOnly)
	everywhere := func(b *apisv1alpha2.APIBinding) {
		b.Spec.Reference.Export = &apisv1alpha2.ExportBindingReference{Path: "root", Name: "tenancy.kcp.io"}
	}
	deletedCluster := cluster(consumer, "")
	at := metav1.Now()
	deletedCluster.DeletionTimestamp = &at
	for _, tc := range []struct {
		name     string
		objects  []objecttest.Object
		defaults []*apisv1alpha2.APIBinding
		claims   []apisv1alpha2.AcceptablePermissionClaim
		exists   bool
	}{
		{"A maintained binding accepts all claims of its export", []objecttest.Object{cluster(consumer, ""), claiming, binding(maintained)}, nil, accepted, true},
		{"Another binding accepts no claims", []objecttest.Object{cluster(consumer, ""), claiming, binding(initial)}, nil, nil, true},
		{"A maintained binding that was deleted is created again", []objecttest.Object{cluster(consumer, "")}, []*apisv1alpha2.APIBinding{binding(maintained)}, nil, true},
		{"A binding that is not maintained is not created again", []objecttest.Object{cluster(consumer, "")}, []*apisv1alpha2.APIBinding{binding(initial)}, nil, false},
		{
			"A binding that every workspace has is created again", []objecttest.Object{cluster(consumer, ""), cluster("root", "")},
			[]*apisv1alpha2.APIBinding{binding(initial, everywhere)}, nil, true,
		},
		{"A workspace that is being deleted gets no binding", []objecttest.Object{deletedCluster}, []*apisv1alpha2.APIBinding{binding(maintained)}, nil, false},
		{"A workspace that is gone gets no binding", nil, []*apisv1alpha2.APIBinding{binding(maintained)}, nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, append(tc.objects, cluster(provider, ""), apiSchema())...)
			w.defaults = tc.defaults
			if err := w.reconcile(); err != nil {
				t.Fatal(err)
			}
			got := w.stored()
			if (got != nil) != tc.exists {
				t.Fatalf("got %v", got)
			}
			if got != nil {
				if diff := cmp.Diff(tc.claims, got.Spec.PermissionClaims, cmpopts.EquateEmpty()); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}
