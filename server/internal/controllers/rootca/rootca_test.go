package rootca

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/logicalcluster"
)

const ca = "certificates in PEM"

var errStorage = errors.New("etcd is away")

func namespace(cluster string, phase corev1.NamespacePhase) *corev1.Namespace {
	return objecttest.In(cluster, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}, Status: corev1.NamespaceStatus{Phase: phase}})
}

// published returns the ConfigMap of the namespace, as change leaves it.
func published(change func(*corev1.ConfigMap)) *corev1.ConfigMap {
	cm := objecttest.In("c", ConfigMap("team", []byte(ca)))
	if change != nil {
		change(cm)
	}
	return cm
}

func TestConfigMapOfANamespace(t *testing.T) {
	active, terminating := namespace("c", corev1.NamespaceActive), namespace("c", corev1.NamespaceTerminating)
	for _, tc := range []struct {
		name    string
		objects []objecttest.Object
		want    map[string]*corev1.ConfigMap // by the verb of the request
	}{
		{"A namespace without the ConfigMap gets one", []objecttest.Object{active}, map[string]*corev1.ConfigMap{"create": ConfigMap("team", []byte(ca))}},
		{"A correct ConfigMap stays as it is", []objecttest.Object{active, published(nil)}, nil},
		{
			"Other certificates are replaced",
			[]objecttest.Object{active, published(func(cm *corev1.ConfigMap) { cm.Data["ca.crt"] = "other" })},
			map[string]*corev1.ConfigMap{"update": published(nil)},
		},
		{
			"Other data is removed",
			[]objecttest.Object{active, published(func(cm *corev1.ConfigMap) { cm.Data["more"] = "data" })},
			map[string]*corev1.ConfigMap{"update": published(nil)},
		},
		{
			"A missing description is added, other annotations and labels stay",
			[]objecttest.Object{active, published(func(cm *corev1.ConfigMap) {
				delete(cm.Annotations, descriptionAnnotation)
				cm.Annotations["mine"], cm.Labels = "x", map[string]string{"mine": "y"}
			})},
			map[string]*corev1.ConfigMap{"update": published(func(cm *corev1.ConfigMap) {
				cm.Annotations["mine"], cm.Labels = "x", map[string]string{"mine": "y"}
			})},
		},
		{
			"A description that was changed stays",
			[]objecttest.Object{active, published(func(cm *corev1.ConfigMap) { cm.Annotations[descriptionAnnotation] = "mine" })},
			nil,
		},
		{"A terminating namespace gets none", []objecttest.Object{terminating}, nil},
		{"A namespace that is gone gets none", nil, nil},
		{
			"A namespace of the same name in another cluster does not count",
			[]objecttest.Object{namespace("other", corev1.NamespaceActive)}, nil,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := map[string]*corev1.ConfigMap{}
			if err := reconcile(t, nil, got, tc.objects...); err != nil {
				t.Fatal(err)
			}
			if tc.want == nil {
				tc.want = map[string]*corev1.ConfigMap{}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFailedRequests(t *testing.T) {
	resource := schema.GroupResource{Resource: "configmaps"}
	terminating := apierrors.NewForbidden(resource, Name, errors.New("the namespace is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	deletedCluster := apierrors.NewForbidden(resource, Name, errors.New("the logical cluster is being deleted"))
	deletedCluster.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: logicalcluster.TerminatingCause}}
	conflict := apierrors.NewConflict(resource, Name, errors.New("changed"))
	changed := published(func(cm *corev1.ConfigMap) { cm.Data["ca.crt"] = "other" })
	for _, tc := range []struct {
		name          string
		stored        []objecttest.Object
		answer, retry error
	}{
		{"A ConfigMap that the informer does not have yet is no failure", nil, apierrors.NewAlreadyExists(resource, Name), nil},
		{"A namespace that is gone is no failure", nil, apierrors.NewNotFound(resource, Name), nil},
		{"A namespace that is being terminated is no failure", nil, terminating, nil},
		{"A logical cluster that is being deleted is no failure", nil, deletedCluster, nil},
		{"A failed creation is retried", nil, errStorage, errStorage},
		{"A ConfigMap that was deleted before its update is no failure", []objecttest.Object{changed}, apierrors.NewNotFound(resource, Name), nil},
		{"A conflict is retried", []objecttest.Object{changed}, conflict, conflict},
	} {
		t.Run(tc.name, func(t *testing.T) {
			objects := append([]objecttest.Object{namespace("c", corev1.NamespaceActive)}, tc.stored...)
			if err := reconcile(t, tc.answer, map[string]*corev1.ConfigMap{}, objects...); !errors.Is(err, tc.retry) {
				t.Errorf("got error %v, want %v", err, tc.retry)
			}
		})
	}
}

// cluster returns the logical cluster of the namespace.
func cluster() *corev1alpha1.LogicalCluster {
	return objecttest.In("c", &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.LogicalClusterName}})
}

// reconcile reconciles the namespace once, and puts what is sent to the server into sent, by its verb. The server answers with an error.
func reconcile(t *testing.T, answer error, sent map[string]*corev1.ConfigMap, objects ...objecttest.Object) error {
	t.Helper()
	o, kube := objecttest.New(t, append(objects, cluster())...), &fake.Clientset{}
	kube.AddReactor("*", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
		cm := action.(interface{ GetObject() runtime.Object }).GetObject().(*corev1.ConfigMap)
		sent[action.GetVerb()] = cm
		return true, cm, answer
	})
	return New(Inputs{Set: o.Set, Kube: kube, CA: []byte(ca)}).Reconcile(t.Context(), informers.Key{Cluster: "c", Name: "team"})
}

// The ConfigMap of a default namespace is stored with the namespace. Its event may arrive later.
func TestAConfigMapWhoseEventIsLateIsNotCreated(t *testing.T) {
	o, kube := objecttest.New(t, namespace("c", corev1.NamespaceActive), cluster()), &fake.Clientset{}
	o.Set.ConfigMaps.Acknowledge(objecttest.Late(func() { o.Show(published(nil)) }))
	c := New(Inputs{Set: o.Set, Kube: kube, CA: []byte(ca)})
	if err := c.Reconcile(t.Context(), informers.Key{Cluster: "c", Name: "team"}); err != nil {
		t.Fatal(err)
	}
	if sent := kube.Actions(); len(sent) != 0 {
		t.Errorf("requests: %v", sent)
	}
}

func TestALogicalClusterThatIsDeletedGetsNoConfigMap(t *testing.T) {
	deleted := cluster()
	deleted.DeletionTimestamp = &metav1.Time{}
	for name, cluster := range map[string]*corev1alpha1.LogicalCluster{"it is being deleted": deleted, "it is not known": nil} {
		t.Run(name, func(t *testing.T) {
			o, kube := objecttest.New(t, namespace("c", corev1.NamespaceActive)), &fake.Clientset{}
			if cluster != nil {
				o.Show(cluster)
			}
			c := New(Inputs{Set: o.Set, Kube: kube, CA: []byte(ca)})
			if err := c.Reconcile(t.Context(), informers.Key{Cluster: "c", Name: "team"}); err != nil {
				t.Fatal(err)
			}
			if sent := kube.Actions(); len(sent) != 0 {
				t.Errorf("requests: %v", sent)
			}
		})
	}
}
