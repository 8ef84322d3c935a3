package etcdcluster

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/conditions"
)

// CheckStore returns an error if the store in a field lacks its volume, or the credentials of its bucket: a pod would wait for them
// forever. The reader must not have a cache, because the cache holds only volumes of the operator.
func CheckStore(ctx context.Context, live client.Reader, namespace, field string, store *v1alpha1.EtcdStoreSpec) error {
	if store.Volume != nil {
		return checkClaim(ctx, live, namespace, field+".volume.claimName", store.Volume.ClaimName)
	}
	return checkCredentials(ctx, live, namespace, field+".s3.credentialsSecretRef", store.S3)
}

func checkClaim(ctx context.Context, live client.Reader, namespace, field, name string) error {
	err := live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &corev1.PersistentVolumeClaim{})
	if apierrors.IsNotFound(err) {
		return conditions.Stall("ReferenceNotFound",
			"%s: PersistentVolumeClaim %s not found in this namespace: create it, or set another name", field, name)
	}
	return err
}

func checkCredentials(ctx context.Context, live client.Reader, namespace, field string, s3 *v1alpha1.EtcdS3Store) error {
	secret, err := ReferredSecret(ctx, live, namespace, field, s3.CredentialsSecretRef.Name)
	if err != nil {
		return err
	}
	for _, key := range StoreKeys {
		if len(secret.Data[key]) == 0 {
			return conditions.Stall("KeyMissing", "%s: Secret %s has no key %s", field, secret.Name, key)
		}
	}
	return nil
}

// ReferredSecret reads the Secret that a field names. If it does not exist, the error requires an action of the user.
func ReferredSecret(ctx context.Context, reader client.Reader, namespace, field, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return nil, conditions.Stall("ReferenceNotFound", "%s: Secret %s not found in this namespace", field, name)
	}
	return secret, err
}

// checkRestoration checks what a restoration needs, before its Job is created.
func (s *scope) checkRestoration(ctx context.Context, observed *clusterSnapshot) error {
	observed.restore = restoreNeeded
	err := CheckStore(ctx, s.Live, s.cluster.Namespace, "spec.restore.store", s.cluster.Spec.Restore.Store)
	if blocked := (*conditions.Blocked)(nil); errors.As(err, &blocked) {
		observed.restore, observed.restoreMessage = restoreUnready, blocked.Message
		observed.recheck = whileWaiting
		return nil
	}
	return err
}
