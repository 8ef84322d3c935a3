package clustercachedresource

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/metadata"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	cachev1alpha1 "github.com/kcplane/kcp/api/cache/v1alpha1"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/internal/tenancy/cachedresources"
	"github.com/kcplane/kcp/server/internal/tenancy/exports"
	"github.com/kcplane/kcp/server/internal/tenancy/pathindex"
	"github.com/kcplane/kcp/server/logicalcluster"
)

const cluster = "provider"

var (
	key         = informers.Key{Cluster: cluster, Name: "shared"}
	errStorage  = errors.New("etcd is away")
	ignoreTimes = cmpopts.IgnoreFields(corev1alpha1.Condition{}, "LastTransitionTime")
)

// cached returns the ClusterCachedResource of widgets, as changes leave it.
func cached(changes ...func(*cachev1alpha1.ClusterCachedResource)) *cachev1alpha1.ClusterCachedResource {
	c := objecttest.In(cluster, &cachev1alpha1.ClusterCachedResource{
		ObjectMeta: metav1.ObjectMeta{Name: "shared", UID: "1"},
		Spec:       cachev1alpha1.ClusterCachedResourceSpec{Group: "example.org", Resource: "widgets", Version: "v1"},
	})
	for _, change := range changes {
		change(c)
	}
	return c
}

func deleted(c *cachev1alpha1.ClusterCachedResource) {
	now := metav1.Now()
	c.DeletionTimestamp = &now
	c.Finalizers = []string{cachev1alpha1.ClusterCachedResourceFinalizer}
}

func version(v string) func(*cachev1alpha1.ClusterCachedResource) {
	return func(c *cachev1alpha1.ClusterCachedResource) { c.Spec.Version = v }
}

func selecting(c *cachev1alpha1.ClusterCachedResource) {
	c.Spec.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"color": "red"}}
}

func withHash(hash string) func(*cachev1alpha1.ClusterCachedResource) {
	return func(c *cachev1alpha1.ClusterCachedResource) { c.Status.IdentityHash = hash }
}

// widgets returns what a cluster serves: widgets in the versions v1, which is stored, and v2.
func widgets(scope apiextensionsv1.ResourceScope, traits customresources.Traits) []customresources.Installed {
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.org"}}
	crd.Spec.Scope = scope
	crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{
		{Name: "v2", Served: true}, {Name: "v1", Served: true, Storage: true}, {Name: "v0"},
	}
	return []customresources.Installed{{Definition: customresources.Unserved(crd, traits)}}
}

func secretKey(value string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp-system", Name: "shared"}, Data: map[string][]byte{"key": []byte(value)}}
}

func hash(value string) string {
	sum := sha256.Sum256([]byte(value))
	return hex.EncodeToString(sum[:])
}

func list(all ...corev1alpha1.Condition) []corev1alpha1.Condition { return all }

var (
	identified = corev1alpha1.Condition{Type: cachev1alpha1.IdentityValid, Status: metav1.ConditionTrue}
	valid      = corev1alpha1.Condition{Type: cachev1alpha1.ResourceValid, Status: metav1.ConditionTrue}
	started    = corev1alpha1.Condition{Type: cachev1alpha1.ReplicationStarted, Status: metav1.ConditionTrue, Reason: cachev1alpha1.ReasonStarted}
	notStarted = corev1alpha1.Condition{
		Type: cachev1alpha1.ReplicationStarted, Status: metav1.ConditionFalse, Severity: "Info", Reason: cachev1alpha1.ReasonNoResources,
	}
	deleting = corev1alpha1.Condition{
		Type: cachev1alpha1.ResourceValid, Status: metav1.ConditionFalse, Severity: "Info", Reason: cachev1alpha1.ReasonDeleting,
		Message: "it is being deleted",
	}
)

func invalid(reason, message string) corev1alpha1.Condition {
	return corev1alpha1.Condition{
		Type: cachev1alpha1.ResourceValid, Status: metav1.ConditionFalse, Severity: "Error", Reason: reason, Message: message,
	}
}

func counts(n int) *cachev1alpha1.ResourceCounts {
	return &cachev1alpha1.ResourceCounts{Cache: n, Local: n}
}

// page is an answer to a list of objects.
type page struct {
	items     int
	remaining *int64
	next      string
}

func TestStatusOfAClusterCachedResource(t *testing.T) {
	const here = apiextensionsv1.ClusterScoped
	none := customresources.Traits{}
	notIdentified := corev1alpha1.Condition{
		Type: cachev1alpha1.IdentityValid, Status: metav1.ConditionFalse, Severity: "Error", Reason: "IdentityVerificationFailed",
		Message: "Secret kcp-system/shared has the key of another identity: the hash of the key is " + hash("a"),
	}
	refused := func(p corev1alpha1.Condition) cachev1alpha1.ClusterCachedResourceStatus {
		return cachev1alpha1.ClusterCachedResourceStatus{
			IdentityHash: hash("a"), ResourceCounts: counts(0), Phase: cachev1alpha1.PhaseInitializing, Conditions: list(identified, p, notStarted),
		}
	}
	ready := func(n int) cachev1alpha1.ClusterCachedResourceStatus {
		return cachev1alpha1.ClusterCachedResourceStatus{
			IdentityHash: hash("a"), ResourceCounts: counts(n), Phase: cachev1alpha1.PhaseReady, Conditions: list(identified, valid, started),
		}
	}
	for _, tc := range []struct {
		name   string
		cached *cachev1alpha1.ClusterCachedResource
		serves []customresources.Installed
		pages  []page
		want   cachev1alpha1.ClusterCachedResourceStatus
		lists  []string
	}{
		{
			"A resource that the workspace does not serve is refused", cached(), nil, nil,
			refused(invalid(cachev1alpha1.ReasonInvalidReference, "the workspace neither defines nor binds a resource widgets.example.org")), nil,
		},
		{
			"A resource of the server is refused", cached(), widgets(here, customresources.Traits{System: true}), nil,
			refused(invalid(cachev1alpha1.ReasonInvalidReference,
				"widgets.example.org is the server's own: only what the workspace defines or binds can be shown to others")), nil,
		},
		{
			"A resource that shows the objects of another provider is refused", cached(),
			widgets(here, customresources.Traits{ShownBy: informers.Key{Cluster: "other", Name: "widgets"}}), nil,
			refused(invalid(cachev1alpha1.ReasonInvalidReference, "the objects of widgets.example.org are another provider's")), nil,
		},
		{
			"A namespaced resource is refused", cached(), widgets(apiextensionsv1.NamespaceScoped, none), nil,
			refused(invalid(cachev1alpha1.ReasonResourceNotClusterScoped, "widgets.example.org is namespaced")), nil,
		},
		{
			"A version that is not served is refused", cached(version("v0")), widgets(here, none), nil,
			refused(invalid(cachev1alpha1.ReasonInvalidReference, `version "v0" of widgets.example.org is not served`)), nil,
		},
		{
			"All objects are counted with one short list", cached(), widgets(here, none), []page{{items: 1, remaining: ptr.To[int64](41)}},
			ready(42), []string{"v1 1"},
		},
		{
			"Objects are counted in the requested version", cached(version("v2")), widgets(here, none), []page{{}},
			ready(0), []string{"v2 1"},
		},
		{
			"Objects are counted in the stored version if none is requested", cached(version("")), widgets(here, none), []page{{items: 1}},
			ready(1), []string{"v1 1"},
		},
		{
			"A bound resource is counted", cached(), widgets(here, customresources.Traits{Identity: "x"}), []page{{items: 1}}, ready(1), []string{"v1 1"},
		},
		{
			"Selected objects are counted page by page", cached(selecting), widgets(here, none), []page{{items: 3, next: "x"}, {items: 2}},
			ready(5), []string{"v1 500 color=red", "v1 500 color=red x"},
		},
		{
			"Replication does not start with an identity that is not valid", cached(withHash("before")), widgets(here, none), []page{{items: 1}},
			cachev1alpha1.ClusterCachedResourceStatus{
				IdentityHash: "before", ResourceCounts: counts(1), Phase: cachev1alpha1.PhaseInitializing,
				Conditions: list(notIdentified, valid, notStarted),
			}, []string{"v1 1"},
		},
		{
			"A resource that is served again becomes ready",
			cached(func(c *cachev1alpha1.ClusterCachedResource) {
				c.Status = refused(invalid(cachev1alpha1.ReasonInvalidReference, "the workspace neither defines nor binds it"))
			}),
			widgets(here, none), []page{{items: 1}}, ready(1), []string{"v1 1"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, tc.cached)
			w.serves, w.pages = tc.serves, tc.pages
			if err := w.reconcile(); err != nil {
				t.Fatal(err)
			}
			got := w.stored()
			if diff := cmp.Diff(tc.want, got.Status, ignoreTimes); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]string{cachev1alpha1.ClusterCachedResourceFinalizer}, got.Finalizers); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tc.lists, w.lists); diff != "" {
				t.Error(diff)
			}
			w.pages = tc.pages
			if err := w.reconcile(); err != nil || w.writes() != 1 {
				t.Errorf("a second reconciliation: %v, %d writes", err, w.writes())
			}
		})
	}
}

func TestDeletionOfAClusterCachedResource(t *testing.T) {
	for _, tc := range []struct {
		name         string
		seen, stored *cachev1alpha1.ClusterCachedResource
		want         *cachev1alpha1.ClusterCachedResource // nil if it is gone
	}{
		{"It is gone without other finalizers", cached(deleted), cached(deleted), nil},
		{
			"It waits for the finalizers of others",
			cached(deleted), cached(deleted, func(c *cachev1alpha1.ClusterCachedResource) { c.Finalizers = append(c.Finalizers, "example.org/mine") }),
			cached(deleted, func(c *cachev1alpha1.ClusterCachedResource) {
				c.Finalizers = []string{"example.org/mine"}
				c.Status = cachev1alpha1.ClusterCachedResourceStatus{Phase: cachev1alpha1.PhaseDeleting, Conditions: list(deleting)}
			}),
		},
		{
			"Another one with the name stays as it is",
			cached(deleted), cached(func(c *cachev1alpha1.ClusterCachedResource) { c.UID = "2" }),
			cached(func(c *cachev1alpha1.ClusterCachedResource) { c.UID = "2" }),
		},
		{
			"Another one with the name gets no status of the former one",
			cached(), cached(func(c *cachev1alpha1.ClusterCachedResource) { c.UID = "2" }),
			cached(func(c *cachev1alpha1.ClusterCachedResource) { c.UID = "2" }),
		},
		{"One that is gone is no failure", cached(deleted), nil, nil},
		{
			"One that was deleted after it was read gets no status and no finalizer",
			cached(), cached(deleted, func(c *cachev1alpha1.ClusterCachedResource) { c.Finalizers = []string{"example.org/mine"} }),
			cached(deleted, func(c *cachev1alpha1.ClusterCachedResource) { c.Finalizers = []string{"example.org/mine"} }),
		},
		{"One that nothing shows is no failure", nil, nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			if tc.seen != nil {
				w.Show(tc.seen)
			}
			if tc.stored != nil {
				w.Store(tc.stored)
			}
			if err := w.reconcile(); err != nil {
				t.Fatal(err)
			}
			ignore := cmpopts.IgnoreFields(metav1.ObjectMeta{}, "ResourceVersion", "DeletionTimestamp")
			if diff := cmp.Diff(tc.want, w.stored(), ignore, ignoreTimes); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFailuresAreRetried(t *testing.T) {
	for _, tc := range []struct {
		name string
		fail func(*world)
	}{
		{"The secret cannot be read", func(w *world) {
			w.kube.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errStorage })
		}},
		{"Objects cannot be counted", func(w *world) {
			w.unreadable = errStorage
		}},
		{"The status cannot be written", func(w *world) {
			w.Stored(w.Set.ClusterCachedResources.Informer).Fail(cluster, "shared", errStorage)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, cached())
			w.serves, w.pages = widgets(apiextensionsv1.ClusterScoped, customresources.Traits{}), []page{{}}
			tc.fail(w)
			if err := w.reconcile(); !errors.Is(err, errStorage) || w.writes() > 0 {
				t.Errorf("got error %v, %d writes", err, w.writes())
			}
		})
	}
}

func TestAnObjectConcernsTheCachedResourcesOfItsCluster(t *testing.T) {
	w := &world{t: t, Objects: objecttest.New(t, cached(), objecttest.In("other", &cachev1alpha1.ClusterCachedResource{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}}))}
	keys := (&reconciler{Inputs: w.inputs()}).mapped(func(_ *cachev1alpha1.ClusterCachedResource, changed informers.Key) bool {
		return changed.Name != "unrelated"
	})
	for name, want := range map[string][]informers.Key{"related": {key}, "unrelated": nil} {
		got := keys(objecttest.In(cluster, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// world is what is stored and served, and the clients of the controller.
type world struct {
	*objecttest.Objects
	kube       *kubefake.Clientset
	controller *runner.Controller
	serves     []customresources.Installed
	pages      []page
	unreadable error
	lists      []string
	t          *testing.T
}

func newWorld(t *testing.T, objects ...objecttest.Object) *world {
	t.Helper()
	w := &world{Objects: objecttest.New(t, objects...), kube: kubefake.NewClientset(secretKey("a")), t: t}
	w.controller = New(w.inputs())
	return w
}

func (w *world) inputs() Inputs {
	w.t.Helper()
	all, err := exports.New(w.Set, pathindex.New(w.Set), exports.System{}, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	resources, err := cachedresources.New(w.Set, all)
	if err != nil {
		w.t.Fatal(err)
	}
	return Inputs{
		Set: w.Set, Cached: resources, Kube: w.kube, Metadata: client{world: w}, Stored: w.Stored(w.Set.ClusterCachedResources.Informer),
		Serves: func(name logicalcluster.Name) []customresources.Installed {
			if name != cluster {
				w.t.Errorf("requested what %s serves", name)
			}
			return w.serves
		},
		Objects: &runner.ObjectEvents{},
	}
}

// client lists the pages of a world.
type client struct {
	metadata.Getter
	world   *world
	version string
}

// Resource implements metadata.Interface.
func (c client) Resource(resource schema.GroupVersionResource) metadata.Getter {
	if resource.Group != "example.org" || resource.Resource != "widgets" {
		c.world.t.Errorf("got a request for %s", resource)
	}
	c.version = resource.Version
	return c
}

// List implements metadata.ResourceInterface.
func (c client) List(_ context.Context, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	w := c.world
	w.lists = append(w.lists, strings.TrimSpace(fmt.Sprintf("%s %d %s %s", c.version, options.Limit, options.LabelSelector, options.Continue)))
	if w.unreadable != nil || len(w.pages) == 0 {
		return nil, errors.Join(w.unreadable, errors.New("there is no page"))
	}
	p := w.pages[0]
	w.pages = w.pages[1:]
	return &metav1.PartialObjectMetadataList{
		ListMeta: metav1.ListMeta{RemainingItemCount: p.remaining, Continue: p.next}, Items: make([]metav1.PartialObjectMetadata, p.items),
	}, nil
}

func (w *world) reconcile() error {
	w.t.Helper()
	return w.controller.Reconcile(w.t.Context(), key)
}

func (w *world) writes() int { return w.Stored(w.Set.ClusterCachedResources.Informer).Writes }

// stored returns what is stored, nil if there is none.
func (w *world) stored() *cachev1alpha1.ClusterCachedResource {
	w.t.Helper()
	c := &cachev1alpha1.ClusterCachedResource{}
	err := w.Stored(w.Set.ClusterCachedResources.Informer).Get(logicalcluster.WithName(w.t.Context(), cluster), "shared", c)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		w.t.Fatal(err)
	}
	return c
}
