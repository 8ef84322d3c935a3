package e2e

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kcplane/kcp/operator/internal/operatortest"
)

// Deleting a bundle removes the former CAs, even if the operator has just read it.
func TestABundleThatIsDeletedDuringAReconciliationIsNotRestored(t *testing.T) {
	i := install(t, shard("ended"))
	i.settle(t)
	for _, name := range []string{"ended-merged-ca-bundle", "ended-merged-client-ca", "ended-service-account-keys"} {
		before := operatortest.Read(t, i.Cluster, name, &corev1.Secret{}).UID
		late := interceptor.NewClient(cluster(t, asOperator()).Client.(client.WithWatch), interceptor.Funcs{
			Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
				err := w.Get(ctx, key, object, opts...)
				if _, secret := object.(*corev1.Secret); secret && key.Name == name && err == nil && object.GetUID() == before {
					return i.Delete(ctx, object)
				}
				return err
			},
		})
		i.reconciler.Client = late
		if _, err := i.reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: operatortest.Key("ended")}); !apierrors.IsConflict(err) {
			t.Errorf("%s, with what was read of the one that is deleted: %v", name, err)
		}
		if err := i.Get(t.Context(), operatortest.Key(name), &corev1.Secret{}); !apierrors.IsNotFound(err) {
			t.Errorf("%s is made again: %v", name, err)
		}
		i.reconcile(t)
	}
}
