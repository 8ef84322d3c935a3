package etcdcluster

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/conditions"
)

// CheckStore says what is missing of the credentials of a store, if it is a bucket, that a field names. A pod would wait for them without an end.
func CheckStore(ctx context.Context, c client.Reader, namespace, field string, s3 *v1alpha1.EtcdS3Store) error {
	if s3 == nil {
		return nil
	}
	field += ".s3.credentialsSecretRef"
	secret := &corev1.Secret{}
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: s3.CredentialsSecretRef.Name}, secret)
	if apierrors.IsNotFound(err) {
		return conditions.Stall("ReferenceNotFound", "%s: there is no Secret %s in this namespace", field, s3.CredentialsSecretRef.Name)
	} else if err != nil {
		return err
	}
	for _, key := range StoreKeys {
		if len(secret.Data[key]) == 0 {
			return conditions.Stall("KeyMissing", "%s: Secret %s has no key %s", field, secret.Name, key)
		}
	}
	return nil
}

// restoreUnready: its store cannot be read.
const restoreUnready restoration = "Unready"

// checkRestoration looks for what a restoration needs before its Job is made.
func (s *scope) checkRestoration(ctx context.Context, seen *sight) error {
	if seen.restore != restoreNeeded {
		return nil
	}
	err := CheckStore(ctx, s.Client, s.cluster.Namespace, "spec.restore.store", s.cluster.Spec.Restore.Store.S3)
	if blocked := (*conditions.Blocked)(nil); errors.As(err, &blocked) {
		seen.restore, seen.restoreMessage = restoreUnready, blocked.Message
		return nil
	}
	return err
}
