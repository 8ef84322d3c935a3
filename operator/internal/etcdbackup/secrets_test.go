package etcdbackup

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/encryption"
	"github.com/kcplane/kcp/operator/internal/operatortest"
)

func secret(name string, labels map[string]string, key string, value []byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Data: map[string][]byte{key: value}}
}

// If the authority belongs to the user, its Secret has no label.
func TestTheSecretsThatBelongToASnapshotAreStoredWithIt(t *testing.T) {
	rs := &v1alpha1.RootShard{ObjectMeta: metav1.ObjectMeta{Name: "kcp"}}
	rs.Spec.Certificates = &v1alpha1.Certificates{CASecretRef: &v1alpha1.LocalReference{Name: "company"}}
	cluster, b := etcd(true), backup()
	b.Spec.IncludeSecrets = &v1alpha1.EtcdBackupSecretsSpec{EncryptionKeyRef: v1alpha1.LocalKeyReference{Name: "encryption", Key: "key"}}
	of := map[string]string{"operator.kcp.io/rootshard": "kcp"}
	c := with(cluster, b, rs, secret("company", nil, "tls.key", []byte("company's")), secret("kcp-service-account-keys", of, "tls.key", []byte("signs")),
		secret("other-ca", map[string]string{"operator.kcp.io/rootshard": "other"}, "tls.key", []byte("other's")),
		secret("admin", map[string]string{"operator.kcp.io/rootshard": "kcp", "operator.kcp.io/kubeconfig": "uid"}, "kubeconfig", []byte("admin's")))
	stalled := func(message string) {
		t.Helper()
		says(t, take(t, c).Status.Conditions, "Stalled", "True", message)
	}
	stalled("spec.includeSecrets.encryptionKeyRef: Secret encryption not found in this namespace")
	holder := secret("encryption", nil, "key", []byte("password"))
	holder.Namespace = operatortest.Namespace
	c.MustCreate(t, holder)
	stalled("needs a key key of at least 32 random bytes; it has 8")
	key := bytes.Repeat([]byte("k"), encryption.MinKeySize)
	holder.Data["key"] = key
	c.MustUpdate(t, holder)
	stalled("spec.includeSecrets: EtcdCluster x does not belong to a RootShard")
	operatortest.Read(t, c, "x", cluster)
	cluster.OwnerReferences = []metav1.OwnerReference{{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "RootShard", Name: "kcp", UID: rs.UID, Controller: new(true)}}
	c.MustUpdate(t, cluster)
	take(t, c)

	stored := operatortest.Read(t, c, "b-secrets", &corev1.Secret{})
	text, err := encryption.Decrypt(key, stored.Data["sealed"])
	if err != nil {
		t.Fatal(err)
	}
	list := &corev1.SecretList{}
	if err := json.Unmarshal(text, list); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range list.Items {
		got = append(got, s.Name+" "+string(s.Data["tls.key"]))
		if s.Kind != "Secret" || s.Namespace != "" || s.ResourceVersion != "" || s.UID != "" {
			t.Errorf("%s is of this cluster: %+v", s.Name, s.ObjectMeta)
		}
	}
	if slices.Sort(got); !slices.Equal(got, []string{"company company's", "kcp-service-account-keys signs"}) || list.Kind != "List" {
		t.Errorf("stored are %v", got)
	}
	pod := operatortest.Read(t, c, "b-snapshot", &batchv1.Job{}).Spec.Template.Spec
	if !slices.Contains(pod.Containers[0].Args, "--secrets=/sealed/sealed") ||
		!slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Secret != nil && v.Secret.SecretName == "b-secrets" }) ||
		slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Secret != nil && v.Secret.SecretName == "encryption" }) {
		t.Errorf("the Job is given %v, and %+v", pod.Containers[0].Args, pod.Volumes)
	}

	end(t, c, batchv1.JobComplete, 0, `{"key":"x/1.db","revision":42,"size":4096}`)
	after := take(t, c)
	says(t, after.Status.Conditions, v1alpha1.ConditionSecretsIncluded, "True", "stored encrypted as x/1.db.secrets: company, kcp-service-account-keys")
	if err := c.Get(t.Context(), operatortest.Key("b-secrets"), &corev1.Secret{}); !apierrors.IsNotFound(err) {
		t.Errorf("what was sealed is left: %v", err)
	}
	c.WritesNothing(t, func() { take(t, c) })
}
