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

// CheckStore says what is missing of a store that a field names: a volume, or the credentials of a bucket. A pod would wait for it without
// an end. The reader is one without a cache, which would know the operator's own volumes only.
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
			"%s: there is no PersistentVolumeClaim %s in this namespace: create it, or name another", field, name)
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

// ReferredSecret reads the Secret that a field names. If there is none, somebody has to change something.
func ReferredSecret(ctx context.Context, reader client.Reader, namespace, field, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return nil, conditions.Stall("ReferenceNotFound", "%s: there is no Secret %s in this namespace", field, name)
	}
	return secret, err
}

// checkRestoration looks for what a restoration needs before its Job is made.
func (s *scope) checkRestoration(ctx context.Context, seen *clusterSnapshot) error {
	seen.restore = restoreNeeded
	err := CheckStore(ctx, s.Live, s.cluster.Namespace, "spec.restore.store", s.cluster.Spec.Restore.Store)
	if blocked := (*conditions.Blocked)(nil); errors.As(err, &blocked) {
		seen.restore, seen.restoreMessage = restoreUnready, blocked.Message
		seen.recheck = whileWaiting
		return nil
	}
	return err
}
