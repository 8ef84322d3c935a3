package e2e

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/kubernetes/pkg/controller/namespace/deletion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// Nothing can be created in a namespace that is being deleted, and its deletion waits for all of its objects.
func TestANamespaceIsDeletedDespiteALastSnapshot(t *testing.T) {
	start(t, asOperator())
	admin := cluster(t, host)
	t.Run("at once", func(t *testing.T) {
		leaving(t, admin, "at-once")
		end(t, admin, "at-once")
	})
	t.Run("while the snapshot is waited for", func(t *testing.T) {
		if err := admin.Delete(t.Context(), leaving(t, admin, "waited-for")); err != nil {
			t.Fatal(err)
		}
		kcptest.Eventually(t, "a snapshot is due", func(ctx context.Context) error {
			backups := &v1alpha1.EtcdBackupList{}
			if err := admin.List(ctx, backups, client.InNamespace("waited-for")); err != nil || len(backups.Items) == 1 {
				return err
			}
			return errors.New("there is no EtcdBackup")
		})
		end(t, admin, "waited-for")
	})
}

// leaving creates a namespace with an EtcdCluster that has data, and a finalizer until a last snapshot is taken.
func leaving(t *testing.T, admin *operatortest.Cluster, namespace string) *v1alpha1.EtcdCluster {
	t.Helper()
	etcd := etcdNamed("events")
	etcd.Namespace, etcd.Spec.DeletionPolicy = namespace, v1alpha1.EtcdSnapshot
	etcd.Spec.LastSnapshot = &v1alpha1.EtcdStoreSpec{Volume: &v1alpha1.EtcdVolumeStore{ClaimName: "snapshots"}}
	admin.MustCreate(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, etcd)
	kcptest.Eventually(t, "the operator holds it", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(etcd), etcd); err != nil || len(etcd.Finalizers) == 1 {
			return err
		}
		return errors.New("it does not")
	})
	before := etcd.DeepCopy()
	etcd.Status.ClusterID = "913b3f94f6e59467"
	if err := admin.Status().Patch(t.Context(), etcd, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	return etcd
}

// end deletes a namespace, as the controller of Kubernetes does, and checks that an event reports the loss.
func end(t *testing.T, admin *operatortest.Cluster, name string) {
	t.Helper()
	kube, err := kubernetes.NewForConfig(host)
	if err != nil {
		t.Fatal(err)
	}
	meta, err := metadata.NewForConfig(host)
	if err != nil {
		t.Fatal(err)
	}
	deleter := deletion.NewNamespacedResourcesDeleter(t.Context(), kube.CoreV1().Namespaces(), meta, kube.CoreV1(),
		kube.Discovery().ServerPreferredNamespacedResources, corev1.FinalizerKubernetes)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := admin.Delete(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "the namespace is gone", func(ctx context.Context) error {
		if err := deleter.Delete(ctx, name); err != nil {
			return err
		}
		return kcptest.Gone(admin.Get(ctx, client.ObjectKeyFromObject(namespace), namespace))
	})
	kcptest.Eventually(t, "an event says that there is no snapshot", func(ctx context.Context) error {
		list := &eventsv1.EventList{}
		if err := admin.List(ctx, list, client.InNamespace(metav1.NamespaceDefault)); err != nil {
			return err
		}
		for _, event := range list.Items {
			if event.Reason == "NoLastSnapshot" && event.Regarding.Kind == "Namespace" && event.Regarding.Name == name {
				return nil
			}
		}
		return errors.New("none does")
	})
}
