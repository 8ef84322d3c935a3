package apiexport

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/logicalcluster"
)

const cluster = "provider"

var key = informers.Key{Cluster: cluster, Name: "widgets"}

// export returns the APIExport widgets, as change leaves it.
func export(change func(*apisv1alpha2.APIExport)) *apisv1alpha2.APIExport {
	e := objecttest.In(cluster, &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: "widgets", UID: "1", Generation: 1}})
	e.Annotations[corev1alpha1.PathAnnotation] = "root:provider"
	if change != nil {
		change(e)
	}
	return e
}

// identified is the change to an APIExport that has the identity of a key.
func identified(key string) func(*apisv1alpha2.APIExport) {
	return func(e *apisv1alpha2.APIExport) {
		e.Spec.Identity = &apisv1alpha2.Identity{SecretRef: &corev1.SecretReference{Namespace: "kcp-system", Name: "widgets"}}
		e.Status.IdentityHash = hash(key)
		e.Status.Conditions = valid
	}
}

func hash(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

func secret(namespace, name, dataKey, key string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{dataKey: []byte(key)}}
}

var valid = []corev1alpha1.Condition{{Type: apisv1alpha2.APIExportIdentityValid, Status: metav1.ConditionTrue}}

func invalid(message string) []corev1alpha1.Condition {
	return []corev1alpha1.Condition{{
		Type: apisv1alpha2.APIExportIdentityValid, Status: metav1.ConditionFalse, Severity: "Error",
		Reason: apisv1alpha2.ReasonIdentityVerificationFailed, Message: message,
	}}
}

// outcome is what is stored after one reconciliation.
type outcome struct {
	Reference  corev1.SecretReference
	Generation int64
	Hash       string // "of the created secret" if it is
	Conditions []corev1alpha1.Condition
	Created    []string // namespaces and secrets
	Writes     int      // of the export
}

func TestIdentityOfAnExport(t *testing.T) {
	own := corev1.SecretReference{Namespace: "kcp-system", Name: "widgets"}
	given := corev1.SecretReference{Namespace: "default", Name: "mine"}
	withReference := func(e *apisv1alpha2.APIExport) { e.Spec.Identity = &apisv1alpha2.Identity{SecretRef: given.DeepCopy()} }
	for _, tc := range []struct {
		name    string
		export  *apisv1alpha2.APIExport
		secrets []runtime.Object
		want    outcome
	}{
		{
			"A new export gets a secret and its hash", export(nil), nil,
			outcome{own, 2, "of the created secret", valid, []string{"namespaces kcp-system", "secrets kcp-system/widgets"}, 1},
		},
		{
			"A new export gets a secret in the namespace that exists", export(nil),
			[]runtime.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kcp-system"}}},
			outcome{own, 2, "of the created secret", valid, []string{"namespaces kcp-system", "secrets kcp-system/widgets"}, 1},
		},
		{
			"A new export takes the identity of the default secret that exists", export(nil),
			[]runtime.Object{secret("kcp-system", "widgets", "key", "a")},
			outcome{own, 2, hash("a"), valid, nil, 1},
		},
		{
			"A new export takes the identity of the secret that it refers to", export(withReference),
			[]runtime.Object{secret("default", "mine", "key", "b"), secret("kcp-system", "widgets", "key", "a")},
			outcome{given, 1, hash("b"), valid, nil, 1},
		},
		{
			"A secret that an export refers to is never created", export(withReference), nil,
			outcome{given, 1, "", invalid("Secret default/mine with the identity key does not exist"), nil, 1},
		},
		{
			"A secret that was deleted is not created again", export(identified("a")), nil,
			outcome{own, 1, hash("a"), invalid("Secret kcp-system/widgets with the identity key does not exist"), nil, 1},
		},
		{
			"A secret without a key is reported", export(nil), []runtime.Object{secret("kcp-system", "widgets", "other", "a")},
			outcome{own, 2, "", invalid(`Secret kcp-system/widgets has no key "key"`), nil, 1},
		},
		{
			"A secret with another key does not change the identity", export(identified("a")),
			[]runtime.Object{secret("kcp-system", "widgets", "key", "b")},
			outcome{own, 1, hash("a"), invalid("Secret kcp-system/widgets has the key of another identity: the hash of the key is " + hash("b")), nil, 1},
		},
		{
			"An export with a valid identity stays as it is", export(identified("a")), []runtime.Object{secret("kcp-system", "widgets", "key", "a")},
			outcome{own, 1, hash("a"), valid, nil, 0},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, tc.secrets, tc.export)
			if err := w.reconcile(); err != nil {
				t.Fatal(err)
			}
			e := w.stored()
			got := outcome{reference(e), e.Generation, e.Status.IdentityHash, e.Status.Conditions, nil, w.Stored(w.Set.APIExports.Informer).Writes}
			for _, action := range w.kube.Actions() {
				if create, ok := action.(clienttesting.CreateAction); ok {
					got.Created = append(got.Created, describe(create))
				}
			}
			if made, err := w.kube.CoreV1().Secrets("kcp-system").Get(t.Context(), "widgets", metav1.GetOptions{}); err == nil &&
				len(got.Created) > 0 && got.Hash == hash(string(made.Data["key"])) && len(made.Data["key"]) >= 32 {
				got.Hash = "of the created secret"
			}
			if diff := cmp.Diff(tc.want, got, ignoreTimes); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestEndpointSliceOfAnExport(t *testing.T) {
	wanted := &apisv1alpha1.APIExportEndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "apis.kcp.io/v1alpha1", Kind: "APIExportEndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{Name: "widgets", OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(export(nil), apisv1alpha2.SchemeGroupVersion.WithKind("APIExport")),
		}},
		Spec: apisv1alpha1.APIExportEndpointSliceSpec{Export: apisv1alpha2.ExportBindingReference{Name: "widgets", Path: "root:provider"}},
	}
	for _, tc := range []struct {
		name    string
		objects []objecttest.Object
		refused error
		want    *apisv1alpha1.APIExportEndpointSlice
		problem error
	}{
		{"An export without a slice gets one", []objecttest.Object{export(nil)}, nil, wanted, nil},
		{
			"An export with a slice gets no other",
			[]objecttest.Object{export(nil), objecttest.In(cluster, &apisv1alpha1.APIExportEndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "widgets"}})},
			nil, nil, nil,
		},
		{
			"A slice of another cluster does not count",
			[]objecttest.Object{export(nil), objecttest.In("other", &apisv1alpha1.APIExportEndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "widgets"}})},
			nil, wanted, nil,
		},
		{
			"An export with the annotation gets no slice",
			[]objecttest.Object{export(func(e *apisv1alpha2.APIExport) { e.Annotations[apisv1alpha2.SkipEndpointSliceAnnotation] = "" })},
			nil, nil, nil,
		},
		{
			"A slice that the informer does not have yet is no failure", []objecttest.Object{export(nil)},
			apierrors.NewAlreadyExists(slices.GroupResource(), "widgets"), wanted, nil,
		},
		{"Other failures are retried", []objecttest.Object{export(nil)}, errStorage, wanted, errStorage},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, nil, tc.objects...)
			if tc.refused != nil {
				w.dynamic.PrependReactor("create", slices.Resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, tc.refused })
			}
			if err := w.reconcile(); !errors.Is(err, tc.problem) {
				t.Fatalf("got error %v, want %v", err, tc.problem)
			}
			var got *apisv1alpha1.APIExportEndpointSlice
			for _, action := range w.dynamic.Actions() {
				got = &apisv1alpha1.APIExportEndpointSlice{}
				content := action.(clienttesting.CreateAction).GetObject().(*unstructured.Unstructured).Object
				if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, got); err != nil {
					t.Fatal(err)
				}
				if _, ok := content["status"]; ok {
					t.Error("the status of the slice is written with it")
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestNothingIsWrittenForAnExportThatIsGone(t *testing.T) {
	deleted := func(e *apisv1alpha2.APIExport) { now := metav1.Now(); e.DeletionTimestamp = &now }
	for _, tc := range []struct {
		name   string
		stored *apisv1alpha2.APIExport
	}{
		{"An export that is being deleted", export(deleted)},
		{"An export that does not exist", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, nil)
			if tc.stored != nil {
				w = newWorld(t, nil, tc.stored)
			}
			if err := w.reconcile(); err != nil {
				t.Fatal(err)
			}
			if len(w.kube.Actions())+len(w.dynamic.Actions())+w.Stored(w.Set.APIExports.Informer).Writes > 0 {
				t.Errorf("got %v, %v", w.kube.Actions(), w.dynamic.Actions())
			}
		})
	}
	t.Run("An export that was deleted after it was read", func(t *testing.T) {
		w := newWorld(t, []runtime.Object{secret("kcp-system", "widgets", "key", "a")})
		w.Show(export(nil))
		if err := w.reconcile(); err != nil || len(w.dynamic.Actions()) > 0 {
			t.Errorf("got %v, %v", err, w.dynamic.Actions())
		}
	})
}

// The next export of a name gets neither the secret nor the endpoint slice of the former one.
func TestNothingIsWrittenForTheNextExportOfTheName(t *testing.T) {
	w := newWorld(t, []runtime.Object{secret("default", "mine", "key", "a")}, export(func(e *apisv1alpha2.APIExport) {
		e.UID, e.Spec.Identity = "1", &apisv1alpha2.Identity{SecretRef: &corev1.SecretReference{Namespace: "default", Name: "mine"}}
	}))
	w.Store(export(func(e *apisv1alpha2.APIExport) { e.UID = "2" }))
	if err := w.reconcile(); err != nil || w.stored().Spec.Identity != nil || len(w.dynamic.Actions()) > 0 {
		t.Errorf("got %v, %v, %v", err, w.stored().Spec, w.dynamic.Actions())
	}
}

// The identity that was verified is that of the secret that was read, and not of the one that the export refers to now.
func TestTheHashOfAnotherReferenceIsNotStored(t *testing.T) {
	w := newWorld(t, []runtime.Object{secret("kcp-system", "widgets", "key", "a")}, export(nil))
	w.Store(export(func(e *apisv1alpha2.APIExport) {
		e.Spec.Identity = &apisv1alpha2.Identity{SecretRef: &corev1.SecretReference{Namespace: "default", Name: "mine"}}
	}))
	if err := w.reconcile(); err != nil {
		t.Fatal(err)
	}
	if got := w.stored().Status; got.IdentityHash != "" || len(got.Conditions) > 0 {
		t.Errorf("got %+v", got)
	}
}

func TestFailuresAreRetried(t *testing.T) {
	for _, tc := range []struct{ name, verb, resource string }{
		{"The secret cannot be read", "get", "secrets"},
		{"The namespace cannot be created", "create", "namespaces"},
		{"The secret cannot be created", "create", "secrets"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, nil, export(nil))
			w.kube.PrependReactor(tc.verb, tc.resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errStorage })
			if err := w.reconcile(); !errors.Is(err, errStorage) {
				t.Errorf("got error %v", err)
			}
			if got := w.stored(); got.Status.IdentityHash != "" || got.Spec.Identity != nil {
				t.Errorf("got %+v", got)
			}
		})
	}
	t.Run("The export cannot be written", func(t *testing.T) {
		w := newWorld(t, nil, export(nil))
		w.Stored(w.Set.APIExports.Informer).Fail(cluster, "widgets", errStorage)
		if err := w.reconcile(); !errors.Is(err, errStorage) || len(w.dynamic.Actions()) > 0 {
			t.Errorf("got error %v, %v", err, w.dynamic.Actions())
		}
	})
}

var (
	errStorage  = errors.New("etcd is away")
	ignoreTimes = cmpopts.IgnoreFields(corev1alpha1.Condition{}, "LastTransitionTime")
)

// world is what is stored, and the clients of the controller.
type world struct {
	*objecttest.Objects
	kube    *kubefake.Clientset
	dynamic *dynamicfake.FakeDynamicClient
	t       *testing.T
}

func newWorld(t *testing.T, secrets []runtime.Object, objects ...objecttest.Object) *world {
	t.Helper()
	w := &world{Objects: objecttest.New(t, objects...), kube: kubefake.NewClientset(secrets...), t: t}
	w.dynamic = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{slices: "APIExportEndpointSliceList"})
	// As the API server does it.
	w.kube.PrependReactor("create", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		s := action.(clienttesting.CreateAction).GetObject().(*corev1.Secret)
		s.Namespace, s.Data = action.GetNamespace(), map[string][]byte{}
		for name, value := range s.StringData {
			s.Data[name] = []byte(value)
		}
		return false, nil, nil
	})
	return w
}

func (w *world) reconcile() error {
	w.t.Helper()
	c := New(Inputs{Set: w.Set, Kube: w.kube, Dynamic: w.dynamic, Exports: w.Stored(w.Set.APIExports.Informer)})
	return c.Reconcile(w.t.Context(), key)
}

func (w *world) stored() *apisv1alpha2.APIExport {
	w.t.Helper()
	e := &apisv1alpha2.APIExport{}
	if err := w.Stored(w.Set.APIExports.Informer).Get(logicalcluster.WithName(w.t.Context(), cluster), "widgets", e); err != nil {
		w.t.Fatal(err)
	}
	return e
}

func describe(create clienttesting.CreateAction) string {
	name := create.GetObject().(metav1.Object).GetName()
	if namespace := create.GetNamespace(); namespace != "" {
		name = namespace + "/" + name
	}
	return create.GetResource().Resource + " " + name
}
