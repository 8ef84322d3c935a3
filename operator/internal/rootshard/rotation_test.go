package rootshard_test

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
)

// replaced writes another certificate and key to a Secret, like cert-manager.
func (w *world) replaced(t *testing.T, secret, by string) {
	t.Helper()
	s := operatortest.Read(t, w.Cluster, secret, &corev1.Secret{})
	s.Data["tls.crt"], s.Data["tls.key"] = operatortest.PEM(by), []byte("key of "+by)
	w.MustUpdate(t, s)
}

func (w *world) deleted(t *testing.T, secret string) {
	t.Helper()
	if err := w.Delete(t.Context(), operatortest.Read(t, w.Cluster, secret, &corev1.Secret{})); err != nil {
		t.Fatal(err)
	}
}

// counted increments the generation of the StatefulSet, as an API server does when it changes.
func (w *world) counted(t *testing.T) {
	t.Helper()
	set := operatortest.Read(t, w.Cluster, "kcp-kcp", &appsv1.StatefulSet{})
	set.Generation++
	w.MustUpdate(t, set)
}

// input returns the hash of an input of the pods.
func (w *world) input(t *testing.T, name string) string {
	t.Helper()
	set := operatortest.Read(t, w.Cluster, "kcp-kcp", &appsv1.StatefulSet{})
	return set.Spec.Template.Annotations["input.operator.kcp.io/"+name]
}

// D28: a new key of service accounts invalidates no token, and no server receives a token that it does not accept.
func TestEveryPodAcceptsANewServiceAccountKeyBeforeItSigns(t *testing.T) {
	w := newWorld(external())
	expect(t, w.settle(t), "Rotating", metav1.ConditionFalse, "", "")
	holds := func(when, signs string, accepts ...string) {
		t.Helper()
		data := operatortest.Read(t, w.Cluster, "kcp-service-account-keys", &corev1.Secret{}).Data
		want := ""
		for _, key := range accepts {
			want += string(operatortest.PEM(key))
		}
		if string(data["tls.crt"]) != want || string(data["tls.key"]) != "key of "+signs {
			t.Errorf("%s, %s signs, and accepted are\n%s", when, data["tls.key"], data["tls.crt"])
		}
	}
	holds("at the start", "kcp-service-account", "kcp-service-account")
	before := w.input(t, "service-account")

	w.replaced(t, "kcp-service-account", "new")
	rs := w.reconcile(t)
	expect(t, rs, "Rotating", metav1.ConditionTrue, v1alpha1.RotatingDistributing, "every pod")
	expect(t, rs, "Ready", metav1.ConditionFalse, "RollingOut", "")
	holds("before pods accept it", "kcp-service-account", "new", "kcp-service-account")
	accepting := w.input(t, "service-account")
	w.counted(t)
	w.reconcile(t)
	holds("while pods are replaced", "kcp-service-account", "new", "kcp-service-account")

	w.Roll(t, "kcp-kcp")
	w.reconcile(t)
	holds("when all pods accept it", "new", "new", "kcp-service-account")
	signing := w.input(t, "service-account")
	if before == accepting || accepting == signing {
		t.Error("pods are not replaced")
	}
	w.Roll(t, "kcp-kcp")
	rs = w.reconcile(t)
	expect(t, rs, "Rotating", metav1.ConditionTrue, v1alpha1.RotatingRenewed, "kcp-service-account-keys")
	expect(t, rs, "Ready", metav1.ConditionTrue, "", "")

	w.deleted(t, "kcp-service-account-keys")
	w.reconcile(t)
	holds("at the end", "new", "new")
	if w.input(t, "service-account") == signing {
		t.Error("pods that accept the old key are not replaced")
	}
	w.Roll(t, "kcp-kcp")
	rs = w.reconcile(t)
	expect(t, rs, "Rotating", metav1.ConditionFalse, "", "")
	expect(t, rs, "Ready", metav1.ConditionTrue, "", "")
}

// Pods that are not replaced do not accept the new key: the condition must report why they are not replaced.
func TestARotationDoesNotHideWhyPodsAreNotReplaced(t *testing.T) {
	rs := external()
	rs.Spec.Image = &v1alpha1.ImageSpec{Tag: "v0.5.1"}
	w := newWorld(rs)
	w.settle(t)
	w.pod(t, "first")
	rs = w.reconcile(t)
	rs.Spec.Image.Tag = "v0.9.0"
	w.MustUpdate(t, rs)
	w.replaced(t, "kcp-service-account", "new")
	rs = w.reconcile(t)
	expect(t, rs, "Rotating", metav1.ConditionTrue, v1alpha1.RotatingDistributing, "every pod")
	expect(t, rs, "Stalled", metav1.ConditionTrue, "VersionRefused", "not v0.9.0")
}

func TestRenewingACertificateWithItsKeyReplacesNoPods(t *testing.T) {
	key := operatortest.NewKey(t)
	w := newWorld(external())
	w.settle(t)
	before := ""
	for serial := range int64(2) {
		template := &x509.Certificate{SerialNumber: big.NewInt(serial + 1)}
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		s := operatortest.Read(t, w.Cluster, "kcp-service-account", &corev1.Secret{})
		s.Data["tls.crt"] = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
		w.MustUpdate(t, s)
		w.reconcile(t)
		if serial > 0 && w.input(t, "service-account") != before {
			t.Error("the pods are replaced")
		}
		before = w.input(t, "service-account")
	}
}

// D28: a CA with a new key is trusted beside the former one, until a user deletes the bundle.
func TestAFormerAuthorityIsTrustedUntilItsBundleIsDeleted(t *testing.T) {
	rs := external()
	rs.Spec.ClientCABundleRef = &v1alpha1.LocalReference{Name: "more"}
	w := newWorld(rs, secret("more", map[string][]byte{"tls.crt": operatortest.PEM("more")}))
	w.deaths = operatortest.NewDeaths() // operators end at each write, and the next one continues
	w.settle(t)
	trusts := func(when string, names ...string) {
		t.Helper()
		want := ""
		for _, name := range names {
			want += string(operatortest.PEM(name))
		}
		if got := string(operatortest.Read(t, w.Cluster, "kcp-merged-client-ca", &corev1.Secret{}).Data["tls.crt"]); got != want {
			t.Errorf("%s, trusted are\n%s", when, got)
		}
	}
	trusts("at the start", "kcp-client-ca", "more")
	before := w.input(t, "authorities")
	w.replaced(t, "kcp-client-ca", "new")
	w.reconcile(t)
	w.counted(t)
	rs = w.reconcile(t)
	expect(t, rs, "Ready", metav1.ConditionFalse, "RollingOut", "")
	expect(t, rs, "Rotating", metav1.ConditionTrue, v1alpha1.RotatingRenewed, "kcp-merged-client-ca")
	trusts("with a new one", "new", "kcp-client-ca", "more")
	if w.input(t, "authorities") == before {
		t.Error("pods are not replaced")
	}
	w.Roll(t, "kcp-kcp")
	w.Writes()
	expect(t, w.reconcile(t), "Ready", metav1.ConditionTrue, "", "")
	w.Writes()
	w.reconcile(t)
	if n := w.Writes(); n != 0 {
		t.Errorf("%d writes, though nothing has changed", n)
	}
	w.deleted(t, "kcp-merged-client-ca")
	expect(t, w.reconcile(t), "Rotating", metav1.ConditionFalse, "", "")
	trusts("at the end", "new", "more")
}
