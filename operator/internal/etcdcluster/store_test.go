package etcdcluster

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
)

// A pod without its Secret would wait without naming the field that is wrong.
func TestARestorationReportsMissingCredentials(t *testing.T) {
	spec := v1alpha1.EtcdClusterSpec{}
	err := yaml.UnmarshalStrict([]byte("restore: {key: x/1.db, store: {s3: {endpoint: 'https://s3', bucket: all, credentialsSecretRef: {name: bucket}}}}"), &spec)
	if err != nil {
		t.Fatal(err)
	}
	r := newTestClusterOf(t, spec)
	r.stalled("spec.restore.store.s3.credentialsSecretRef: Secret bucket not found in this namespace")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: "bucket"}, Data: map[string][]byte{"AWS_ACCESS_KEY_ID": []byte("me")}}
	r.MustCreate(t, secret)
	r.stalled("Secret bucket has no key AWS_SECRET_ACCESS_KEY")
	secret.Data["AWS_SECRET_ACCESS_KEY"] = []byte("secret")
	r.MustUpdate(t, secret)
	r.restores()
}

func TestARestorationReportsAMissingVolume(t *testing.T) {
	r := newTestClusterOf(t, v1alpha1.EtcdClusterSpec{Restore: &v1alpha1.EtcdRestoreSpec{Key: "x/1.db",
		Store: &v1alpha1.EtcdStoreSpec{Volume: &v1alpha1.EtcdVolumeStore{ClaimName: "snapshots"}}}})
	r.stalled("spec.restore.store.volume.claimName: PersistentVolumeClaim snapshots not found in this namespace: create it, or set another name")
	r.MustCreate(t, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: "snapshots"}})
	r.restores()
}

// stalled waits for a message of Stalled, and checks that the operator retries soon, because no watch reports the change.
func (r *testCluster) stalled(message string) {
	r.t.Helper()
	r.until(message, func(c *v1alpha1.EtcdCluster) bool {
		said := apimeta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionStalled)
		return said != nil && said.Status == metav1.ConditionTrue && strings.Contains(said.Message, message)
	})
	if again := r.step().RequeueAfter; again != whileWaiting {
		r.t.Errorf("it looks again after %v", again)
	}
}

func (r *testCluster) restores() {
	r.t.Helper()
	r.until("the Job", func(*v1alpha1.EtcdCluster) bool {
		return r.Get(r.t.Context(), operatortest.Key("x-restore"), &batchv1.Job{}) == nil
	})
}
