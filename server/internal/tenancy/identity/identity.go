// Package identity distinguishes objects with the same name by the hash of a key that only their owner has: only an owner of
// the key can create another object with the same identity.
package identity

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Reference returns the location of the key of the object with a name.
func Reference(given *apisv1alpha2.Identity, name string) corev1.SecretReference {
	if given != nil && given.SecretRef != nil {
		return *given.SecretRef
	}
	return corev1.SecretReference{Namespace: apisv1alpha2.IdentitySecretNamespace, Name: name}
}

// Secret returns the Secret with the key of the object with a name, in the cluster of ctx. It creates the Secret if the object
// refers to no other Secret and has no identity yet, because another key would change the identity. It returns nil if the
// Secret does not exist. namespaces are those that are known to exist.
func Secret(ctx context.Context, kube kubernetes.Interface, namespaces Namespaces, ref corev1.SecretReference,
	name, hash string) (*corev1.Secret, error) {
	secrets := kube.CoreV1().Secrets(ref.Namespace)
	secret, err := secrets.Get(ctx, ref.Name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return secret, err
	}
	if hash != "" || ref != Reference(nil, name) {
		return nil, nil
	}
	if err := ensureNamespace(ctx, kube, namespaces); err != nil {
		return nil, err
	}
	var key [32]byte
	if _, err := rand.Read(key[:]); err != nil {
		return nil, err
	}
	return secrets.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: ref.Name},
		StringData: map[string]string{apisv1alpha2.IdentitySecretKey: base64.RawURLEncoding.EncodeToString(key[:])},
	}, metav1.CreateOptions{})
}

// Namespaces are the namespaces that a server knows.
type Namespaces interface {
	Get(cluster logicalcluster.Name, namespace, name string) (*corev1.Namespace, error)
}

// ensureNamespace creates the namespace of keys in the cluster of ctx, unless it is known to exist.
func ensureNamespace(ctx context.Context, kube kubernetes.Interface, namespaces Namespaces) error {
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return err
	}
	if known, err := namespaces.Get(cluster, "", apisv1alpha2.IdentitySecretNamespace); err == nil && known.DeletionTimestamp == nil {
		return nil
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: apisv1alpha2.IdentitySecretNamespace}}
	_, err = kube.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// Verify returns the hash of an identity, which is set once, and the condition that reports whether the Secret
// matches it.
func Verify(hash string, ref corev1.SecretReference, secret *corev1.Secret) (string, corev1alpha1.Condition) {
	condition := corev1alpha1.Condition{Type: apisv1alpha2.APIExportIdentityValid, Status: metav1.ConditionFalse, Severity: "Error",
		Reason: apisv1alpha2.ReasonIdentityVerificationFailed}
	switch found := hashOf(secret); {
	case secret == nil:
		condition.Message = fmt.Sprintf("Secret %s/%s with the identity key does not exist", ref.Namespace, ref.Name)
	case found == "":
		condition.Message = fmt.Sprintf("Secret %s/%s has no key %q", ref.Namespace, ref.Name, apisv1alpha2.IdentitySecretKey)
	case hash != "" && hash != found:
		condition.Message = fmt.Sprintf("Secret %s/%s has the key of another identity: the hash of the key is %s",
			ref.Namespace, ref.Name, found)
	default:
		return found, corev1alpha1.Condition{Type: apisv1alpha2.APIExportIdentityValid, Status: metav1.ConditionTrue}
	}
	return hash, condition
}

// hashOf returns the identity hash of the key in a secret, empty without a key.
func hashOf(secret *corev1.Secret) string {
	if secret == nil || len(secret.Data[apisv1alpha2.IdentitySecretKey]) == 0 {
		return ""
	}
	sum := sha256.Sum256(secret.Data[apisv1alpha2.IdentitySecretKey])
	return hex.EncodeToString(sum[:])
}
