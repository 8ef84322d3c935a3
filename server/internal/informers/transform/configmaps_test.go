package transform

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// meta returns metadata with fields that informers keep.
func meta(name string, annotations map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, UID: "u", ResourceVersion: "7", Labels: map[string]string{"app": "web"}, Finalizers: []string{"example.com/finalizer"},
		OwnerReferences: []metav1.OwnerReference{{Name: "owner"}}, Annotations: annotations,
	}
}

func TestOnlyTheConfigMapsOfOneNameKeepTheirDataAndAnnotations(t *testing.T) {
	configMap := func(name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{
			ObjectMeta: meta(name, map[string]string{"kcp.io/cluster": "a", "about": "it"}),
			Data:       map[string]string{"ca.crt": "certificate"}, BinaryData: map[string][]byte{"x": nil},
		}
	}
	trim := ConfigMap("ca")
	for _, name := range []string{"ca", "mine"} {
		got, want := configMap(name), configMap(name)
		got.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
		trim(got)
		want.BinaryData = nil
		if name == "mine" {
			want.Data = nil
			delete(want.Annotations, "about")
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("of %s: %s", name, diff)
		}
	}
}

func TestASecretKeepsItsServiceAccountAndNoData(t *testing.T) {
	annotations := map[string]string{
		"kcp.io/cluster": "a", corev1.ServiceAccountNameKey: "robot", corev1.ServiceAccountUIDKey: "1",
	}
	want := &corev1.Secret{ObjectMeta: meta("token", annotations), Type: corev1.SecretTypeServiceAccountToken}
	got := want.DeepCopy()
	got.Annotations[corev1.LastAppliedConfigAnnotation] = "{}"
	got.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	got.Data = map[string][]byte{"token": []byte("secret")}
	Secret(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
