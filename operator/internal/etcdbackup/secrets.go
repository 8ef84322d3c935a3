package etcdbackup

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/apply"
	"github.com/kcplane/kcp/operator/internal/conditions"
	"github.com/kcplane/kcp/operator/internal/encryption"
	"github.com/kcplane/kcp/operator/internal/etcdcluster"
	"github.com/kcplane/kcp/operator/internal/retention"
	"github.com/kcplane/kcp/operator/internal/shard"
)

// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;create;patch;delete

// includeSecrets encrypts the Secrets that a restored snapshot needs, for the Job to store. The Job does not have the key.
func (r *Reconciler) includeSecrets(ctx context.Context, backup *v1alpha1.EtcdBackup, cluster *v1alpha1.EtcdCluster) error {
	include := backup.Spec.IncludeSecrets
	if include == nil {
		return nil
	}
	key, err := r.encryptionKey(ctx, backup.Namespace, include.EncryptionKeyRef)
	if err != nil {
		return err
	}
	owner := rootShardOf(cluster)
	if owner == nil {
		return conditions.Stall("NoRootShard",
			"spec.includeSecrets: EtcdCluster %s does not belong to a RootShard: remove the field, and back up the "+
				"Secrets of its clients yourself", cluster.Name)
	}
	secrets, err := r.secretsOf(ctx, backup.Namespace, owner.Name)
	if err != nil {
		return err
	}
	text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": secrets})
	if err != nil {
		return err
	}
	content, err := encryption.Encrypt(key, text)
	if err != nil {
		return err
	}
	var names []string
	for _, secret := range secrets {
		names = append(names, secret.Name)
	}
	secret := encryptedSecret(backup)
	secret.Data = map[string][]byte{etcdcluster.EncryptedKey: content}
	secret.Annotations = map[string]string{secretsAnnotation: strings.Join(names, ", ")}
	return apply.All(ctx, r.Client, backup, secret)
}

// secretsAnnotation lists the names of the encrypted Secrets.
const secretsAnnotation = "operator.kcp.io/secrets"

func encryptedSecret(backup *v1alpha1.EtcdBackup) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: backup.Namespace, Name: etcdcluster.EncryptedSecretName(backup),
		Labels: map[string]string{apply.ManagedByLabel: apply.FieldOwner}}}
}

func (r *Reconciler) encryptionKey(ctx context.Context, namespace string, ref v1alpha1.LocalKeyReference) ([]byte, error) {
	const field = "spec.includeSecrets.encryptionKeyRef"
	secret, err := etcdcluster.ReferredSecret(ctx, r, namespace, field, ref.Name)
	if err != nil {
		return nil, err
	}
	key := secret.Data[ref.Key]
	if len(key) < encryption.MinKeySize {
		return nil, conditions.Stall("KeyMissing", "%s: Secret %s needs a key %s of at least %d random bytes; it has %d", field, ref.Name,
			ref.Key, encryption.MinKeySize, len(key))
	}
	return key, nil
}

// secretsOf returns the Secrets of a RootShard, including those that its spec refers to, without the metadata of their cluster.
func (r *Reconciler) secretsOf(ctx context.Context, namespace, name string) ([]corev1.Secret, error) {
	list := &corev1.SecretList{}
	if err := r.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{shard.RootLabel: name}); err != nil {
		return nil, err
	}
	rs := &v1alpha1.RootShard{}
	if err := r.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, rs); err != nil {
		return nil, err
	}
	if given := shard.Root(rs).RootSecret; !slices.ContainsFunc(list.Items, func(s corev1.Secret) bool { return s.Name == given }) {
		authority := &corev1.Secret{}
		if err := r.Get(ctx, client.ObjectKey{Namespace: namespace, Name: given}, authority); client.IgnoreNotFound(err) != nil {
			return nil, err
		} else if err == nil {
			list.Items = append(list.Items, *authority)
		}
	}
	var secrets []corev1.Secret
	for _, s := range list.Items {
		if _, access := s.Labels[kubeconfigLabel]; access { // Kubeconfigs are issued again
			continue
		}
		secrets = append(secrets, corev1.Secret{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{Name: s.Name, Labels: s.Labels, Annotations: s.Annotations}, Type: s.Type, Data: s.Data,
		})
	}
	slices.SortFunc(secrets, func(a, b corev1.Secret) int { return strings.Compare(a.Name, b.Name) })
	return secrets, nil
}

// kubeconfigLabel is the label of the Secrets of Kubeconfigs.
const kubeconfigLabel = "operator.kcp.io/kubeconfig"

// reportSecrets reports whether the Secrets are stored with the snapshot, and under which key. The encrypted copy is then no longer needed.
func (r *Reconciler) reportSecrets(ctx context.Context, backup *v1alpha1.EtcdBackup) error {
	c := metav1.Condition{Type: v1alpha1.ConditionSecretsIncluded, Status: metav1.ConditionFalse, Reason: "NotIncluded",
		ObservedGeneration: backup.Generation,
		Message: "a snapshot contains no Secrets of the host cluster: set spec.includeSecrets, or back up those of service account keys and " +
			"certificate authorities, too; without them no token and no kubeconfig is valid after a restore"}
	if backup.Spec.IncludeSecrets != nil {
		secret := encryptedSecret(backup)
		if err := r.Get(ctx, client.ObjectKeyFromObject(secret), secret); client.IgnoreNotFound(err) != nil {
			return err
		}
		c.Status, c.Reason = metav1.ConditionTrue, "Encrypted"
		c.Message = fmt.Sprintf("these Secrets are stored encrypted as %s%s: %s", backup.Status.Snapshot.Key, retention.SecretsSuffix,
			secret.Annotations[secretsAnnotation])
	}
	meta.SetStatusCondition(&backup.Status.Conditions, c)
	return apply.Remove(ctx, r.Client, backup, encryptedSecret(backup))
}
