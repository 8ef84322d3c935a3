package kubeconfig_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator"
	"github.com/kcplane/kcp/operator/access"
	"github.com/kcplane/kcp/operator/certmanager"
	"github.com/kcplane/kcp/operator/kubeconfig"
	"github.com/kcplane/kcp/operator/operatortest"
)

// world is a cluster, and a kcp that remembers the roles of every workspace.
type world struct {
	*operatortest.Cluster
	reconciler *kubeconfig.Reconciler
	bound      map[string]access.Roles
	down       error
	now        time.Time
}

func newWorld(t *testing.T, k *v1alpha1.Kubeconfig) *world {
	t.Helper()
	rs := &v1alpha1.RootShard{ObjectMeta: metav1.ObjectMeta{Name: "kcp"}}
	rs.Spec.External = v1alpha1.ExternalConfig{Hostname: "kcp.example.com", Port: 443}
	w := &world{Cluster: operatortest.New(operator.Scheme(), rs, k,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "kcp-merged-ca-bundle"}, Data: map[string][]byte{"tls.crt": operatortest.PEM("ca")}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "kcp-kcp-operator"}, Data: map[string][]byte{"tls.crt": []byte("c"), "tls.key": []byte("k")}},
	), bound: map[string]access.Roles{}, now: time.Now()}
	w.reconciler = &kubeconfig.Reconciler{Client: w, Recorder: w.Events, Bind: w.bind, Now: func() time.Time { return w.now }}
	w.available(t, metav1.ConditionTrue)
	return w
}

func (w *world) bind(_ context.Context, c access.Credentials, workspace string, roles access.Roles) error {
	if w.down != nil {
		return w.down
	}
	if c.URL != "https://kcp-kcp.team.svc.cluster.local:6443" || string(c.CertificateKey) != "k" || string(c.Authorities) != string(operatortest.PEM("ca")) {
		return errors.New("who are you?")
	}
	w.bound[workspace] = roles
	return nil
}

func (w *world) available(t *testing.T, status metav1.ConditionStatus) {
	t.Helper()
	rs := operatortest.Read(t, w.Cluster, "kcp", &v1alpha1.RootShard{})
	meta.SetStatusCondition(&rs.Status.Conditions, metav1.Condition{Type: "Available", Status: status, Reason: "Test"})
	if err := w.Status().Update(t.Context(), rs); err != nil {
		t.Fatal(err)
	}
}

func (w *world) reconcile(t *testing.T) *v1alpha1.Kubeconfig {
	t.Helper()
	w.Reconcile(t, w.reconciler, "admin")
	return operatortest.Read(t, w.Cluster, "admin", &v1alpha1.Kubeconfig{})
}

func (w *world) settle(t *testing.T) *v1alpha1.Kubeconfig {
	t.Helper()
	w.reconcile(t)
	w.Issue(t)
	return w.reconcile(t)
}

func admin() *v1alpha1.Kubeconfig {
	k := &v1alpha1.Kubeconfig{ObjectMeta: metav1.ObjectMeta{Name: "admin"}}
	k.Spec = v1alpha1.KubeconfigSpec{
		Target:    v1alpha1.KubeconfigTarget{RootShardRef: &v1alpha1.LocalReference{Name: "kcp"}},
		Username:  "alice",
		Groups:    []string{"team"},
		Validity:  v1alpha1.Duration{Duration: metav1.Duration{Duration: 24 * time.Hour}},
		SecretRef: v1alpha1.LocalReference{Name: "admin-kubeconfig"},
		Authorization: &v1alpha1.KubeconfigAuthorization{ClusterRoleBindings: v1alpha1.KubeconfigClusterRoleBindings{
			ClusterRoles: []string{"cluster-admin"}}},
	}
	return k
}

func expect(t *testing.T, k *v1alpha1.Kubeconfig, name string, status metav1.ConditionStatus, message string) {
	t.Helper()
	c := meta.FindStatusCondition(k.Status.Conditions, name)
	if c == nil || c.Status != status || !strings.Contains(c.Message, message) {
		t.Errorf("%s: got %+v, want %s with %q", name, c, status, message)
	}
}

func TestAccessBecomesReadyAndThenNothingIsWritten(t *testing.T) {
	w := newWorld(t, admin())
	k := w.reconcile(t)
	expect(t, k, "Ready", metav1.ConditionFalse, "Certificate kubeconfig-cert-admin")
	if k.Status.Phase != v1alpha1.PhaseProvisioning {
		t.Errorf("phase %s before there is a Secret", k.Status.Phase)
	}
	w.Issue(t)
	k = w.reconcile(t)
	expect(t, k, "Ready", metav1.ConditionTrue, "")
	if k.Status.Phase != v1alpha1.PhaseReady || k.Status.TargetName != "RootShard/kcp" || k.Status.Authorization.ProvisionedCluster != "root" {
		t.Errorf("status %+v", k.Status)
	}
	certificate := operatortest.Read(t, w.Cluster, "kubeconfig-cert-admin", &certmanager.Certificate{})
	if got := certificate.Spec.Subject.Organizations; !slices.Equal(got, []string{"kubeconfig:admin", "kubeconfig:uid-admin", "team"}) {
		t.Errorf("groups %v", got)
	}
	secret := operatortest.Read(t, w.Cluster, "admin-kubeconfig", &corev1.Secret{})
	if !metav1.IsControlledBy(secret, k) || !metav1.IsControlledBy(certificate, k) {
		t.Error("what was made stays behind when the Kubeconfig is deleted")
	}
	config, err := clientcmd.Load(secret.Data["kubeconfig"])
	if err != nil {
		t.Fatal(err)
	}
	for name, url := range map[string]string{
		"default": "https://kcp-kcp.team.svc.cluster.local:6443/clusters/root", "base": "https://kcp-kcp.team.svc.cluster.local:6443",
		"shard-base": "https://kcp-kcp.team.svc.cluster.local:6443", "external": "https://kcp.example.com:443/clusters/root",
	} {
		if config.Contexts[name] == nil || config.Clusters[config.Contexts[name].Cluster].Server != url {
			t.Errorf("context %s does not lead to %s", name, url)
		}
	}
	if roles := w.bound["root"]; roles.Group != "kubeconfig:uid-admin" || !slices.Equal(roles.ClusterRoles, []string{"cluster-admin"}) {
		t.Errorf("bound %+v", w.bound)
	}
	w.Writes()
	w.reconcile(t)
	if n := w.Writes(); n != 0 {
		t.Errorf("%d writes, though nothing has changed", n)
	}
}

func TestTheSecretFollowsRenewal(t *testing.T) {
	w := newWorld(t, admin())
	w.settle(t)
	secret := operatortest.Read(t, w.Cluster, "kubeconfig-cert-admin", &corev1.Secret{})
	secret.Data["tls.crt"] = operatortest.PEM("renewed")
	if err := w.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	w.reconcile(t)
	config, err := clientcmd.Load(operatortest.Read(t, w.Cluster, "admin-kubeconfig", secret).Data["kubeconfig"])
	if err != nil || string(config.AuthInfos["alice"].ClientCertificateData) != string(operatortest.PEM("renewed")) {
		t.Errorf("the kubeconfig has the old certificate (%v)", err)
	}
}

func TestASecretOfSomebodyElseIsNotOverwritten(t *testing.T) {
	w := newWorld(t, admin())
	theirs := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: "admin-kubeconfig"}, Data: map[string][]byte{"a": []byte("b")}}
	if err := w.Create(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	k := w.settle(t)
	expect(t, k, "Stalled", metav1.ConditionTrue, "Secret admin-kubeconfig exists and was not made by the operator")
	if k.Status.Phase != v1alpha1.PhaseFailed {
		t.Errorf("phase %s", k.Status.Phase)
	}
}

func TestRolesMoveWithTheWorkspaceAndEndWithTheAuthorization(t *testing.T) {
	k := admin()
	k.Spec.Authorization.ClusterRoleBindings.Cluster = "root:old"
	w := newWorld(t, k)
	if k = w.settle(t); len(w.bound["root:old"].ClusterRoles) != 1 {
		t.Fatalf("the deprecated field has no effect: %+v", w.bound)
	}
	k.Spec.TargetWorkspace, k.Spec.Authorization.ClusterRoleBindings.Cluster = "root:team", ""
	if err := w.Update(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	if k = w.reconcile(t); len(w.bound["root:old"].ClusterRoles) != 0 || len(w.bound["root:team"].ClusterRoles) != 1 {
		t.Errorf("bound %+v", w.bound)
	}
	k.Spec.Authorization = nil
	if err := w.Update(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	if k = w.reconcile(t); len(w.bound["root:team"].ClusterRoles) != 0 || k.Status.Authorization != nil {
		t.Errorf("bound %+v, status %+v", w.bound, k.Status.Authorization)
	}
}

func TestRolesWaitForKCP(t *testing.T) {
	w := newWorld(t, admin())
	w.available(t, metav1.ConditionFalse)
	k := w.settle(t)
	expect(t, k, "Ready", metav1.ConditionFalse, "waiting for RootShard kcp")
	expect(t, k, "Available", metav1.ConditionTrue, "")
	w.available(t, metav1.ConditionTrue)
	w.down = errors.New("connection refused")
	if result := w.Reconcile(t, w.reconciler, "admin"); result.RequeueAfter == 0 {
		t.Error("nobody tries again")
	}
	k = operatortest.Read(t, w.Cluster, "admin", k)
	expect(t, k, "Ready", metav1.ConditionFalse, "connection refused")
}

func TestWhatCannotBeServedIsSaid(t *testing.T) {
	k := admin()
	k.Spec.Target = v1alpha1.KubeconfigTarget{FrontProxyRef: &v1alpha1.LocalReference{Name: "front"}}
	w := newWorld(t, k)
	expect(t, w.reconcile(t), "Stalled", metav1.ConditionTrue, "spec.target.frontProxyRef")
	k = admin()
	k.Spec.Target.RootShardRef.Name = "gone"
	w = newWorld(t, k)
	expect(t, w.reconcile(t), "ReferenceValid", metav1.ConditionFalse, "there is no RootShard gone")
}

func (w *world) delete(t *testing.T, k *v1alpha1.Kubeconfig) bool {
	t.Helper()
	if err := w.Delete(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	w.Reconcile(t, w.reconciler, "admin")
	return w.gone(t)
}

func (w *world) gone(t *testing.T) bool {
	t.Helper()
	return apierrors.IsNotFound(w.Get(t.Context(), operatortest.Key("admin"), &v1alpha1.Kubeconfig{}))
}

func TestDeletionEndsTheAccess(t *testing.T) {
	w := newWorld(t, admin())
	if k := w.settle(t); !w.delete(t, k) {
		t.Error("the Kubeconfig is still there")
	}
	if len(w.bound["root"].ClusterRoles) != 0 {
		t.Errorf("bound %+v", w.bound)
	}
	for _, object := range []string{"kubeconfig-cert-admin"} {
		if err := w.Get(t.Context(), operatortest.Key(object), &corev1.Secret{}); !apierrors.IsNotFound(err) {
			t.Errorf("Secret %s: %v", object, err)
		}
	}
}

func TestDeletionDoesNotWaitForEverForAKCPThatIsDown(t *testing.T) {
	w := newWorld(t, admin())
	k := w.settle(t)
	w.down = errors.New("connection refused")
	if w.delete(t, k) {
		t.Error("it did not wait at all")
	}
	w.now = w.now.Add(2 * time.Minute)
	w.Reconcile(t, w.reconciler, "admin")
	if !w.gone(t) {
		t.Error("it still waits after two minutes")
	}
	told := false
	for len(w.Events.Events) > 0 {
		told = strings.Contains(<-w.Events.Events, "roles are left in the workspace root") || told
	}
	if !told {
		t.Error("no event tells that roles are left")
	}
}

func TestDeletionDoesNotWaitForARootShardThatIsDeletedToo(t *testing.T) {
	w := newWorld(t, admin())
	k := w.settle(t)
	w.down = errors.New("connection refused")
	if err := w.Client.Delete(t.Context(), operatortest.Read(t, w.Cluster, "kcp", &v1alpha1.RootShard{})); err != nil {
		t.Fatal(err)
	}
	if !w.delete(t, k) {
		t.Error("it waits")
	}
}
