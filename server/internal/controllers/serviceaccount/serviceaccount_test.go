package serviceaccount

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/objecttest"
)

func namespace(phase corev1.NamespacePhase) *corev1.Namespace {
	return objecttest.In("c", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}, Status: corev1.NamespaceStatus{Phase: phase}})
}

// cluster returns the logical cluster of the namespace.
func cluster() *corev1alpha1.LogicalCluster {
	return objecttest.In("c", &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.LogicalClusterName}})
}

func account(cluster, name string) *corev1.ServiceAccount {
	return objecttest.In(cluster, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}})
}

func TestDefaultServiceAccountOfANamespace(t *testing.T) {
	created := []*corev1.ServiceAccount{{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "default"}}}
	resource := schema.GroupResource{Resource: "serviceaccounts"}
	errStorage := errors.New("etcd is away")
	active := namespace(corev1.NamespaceActive)
	for _, tc := range []struct {
		name          string
		objects       []objecttest.Object
		answer, retry error
		want          []*corev1.ServiceAccount
	}{
		{"A namespace without the account gets one", []objecttest.Object{active}, nil, nil, created},
		{"A namespace with other accounts gets one", []objecttest.Object{active, account("c", "other")}, nil, nil, created},
		{"An account of another cluster does not count", []objecttest.Object{active, account("other", "default")}, nil, nil, created},
		{"A namespace with the account gets no other", []objecttest.Object{active, account("c", "default")}, nil, nil, nil},
		{"A terminating namespace gets none", []objecttest.Object{namespace(corev1.NamespaceTerminating)}, nil, nil, nil},
		{"A namespace that is gone gets none", nil, nil, nil, nil},
		{
			"An account that the informer does not have yet is no failure", []objecttest.Object{active},
			apierrors.NewAlreadyExists(resource, "default"), nil, created,
		},
		{"A namespace that was deleted is no failure", []objecttest.Object{active}, apierrors.NewNotFound(resource, "team"), nil, created},
		{"Other failures are retried", []objecttest.Object{active}, errStorage, errStorage, created},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o, kube := objecttest.New(t, append(tc.objects, cluster())...), &fake.Clientset{}
			var got []*corev1.ServiceAccount
			kube.AddReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
				sent := action.(clienttesting.CreateAction).GetObject().(*corev1.ServiceAccount)
				got = append(got, sent)
				return true, sent, tc.answer
			})
			err := New(Inputs{Set: o.Set, Kube: kube}).Reconcile(t.Context(), informers.Key{Cluster: "c", Name: "team"})
			if !errors.Is(err, tc.retry) {
				t.Errorf("got error %v, want %v", err, tc.retry)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The account of a default namespace is stored with the namespace. Its event may arrive later.
func TestAnAccountWhoseEventIsLateIsNotCreated(t *testing.T) {
	o, kube := objecttest.New(t, namespace(corev1.NamespaceActive), cluster()), &fake.Clientset{}
	o.Set.ServiceAccounts.Acknowledge(objecttest.Late(func() { o.Show(account("c", "default")) }))
	if err := New(Inputs{Set: o.Set, Kube: kube}).Reconcile(t.Context(), informers.Key{Cluster: "c", Name: "team"}); err != nil {
		t.Fatal(err)
	}
	if sent := kube.Actions(); len(sent) != 0 {
		t.Errorf("requests: %v", sent)
	}
}

// The deletion of a logical cluster deletes the accounts. The events of a cluster that was just created may be late.
func TestALogicalClusterThatIsDeletedGetsNoAccount(t *testing.T) {
	deleted := cluster()
	deleted.DeletionTimestamp = &metav1.Time{}
	for name, tc := range map[string]struct {
		cluster *corev1alpha1.LogicalCluster
		shown   *corev1alpha1.LogicalCluster // later
		want    int
	}{
		"it is being deleted": {deleted, nil, 0}, "it is deleted": {nil, nil, 0}, "its event is late": {nil, cluster(), 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, kube := objecttest.New(t, namespace(corev1.NamespaceActive)), &fake.Clientset{}
				if tc.cluster != nil {
					o.Show(tc.cluster)
				}
				c := New(Inputs{Set: o.Set, Kube: kube})
				ctx, cancel := context.WithCancel(t.Context())
				defer synctest.Wait()
				defer cancel()
				go c.Run(ctx)
				c.Enqueue(informers.Key{Cluster: "c", Name: "team"})
				synctest.Wait()
				if sent := kube.Actions(); len(sent) != 0 {
					t.Errorf("requests: %v", sent)
				}
				if tc.shown != nil {
					o.Show(tc.shown)
				}
				time.Sleep(runner.UnknownInterval)
				synctest.Wait()
				if sent := kube.Actions(); len(sent) != tc.want {
					t.Errorf("requests: %v, want %d", sent, tc.want)
				}
			})
		})
	}
}
