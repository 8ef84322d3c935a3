package kubeconfig_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/kcpaccess"
	"github.com/kcplane/kcp/operator/internal/kubeconfig"
	"github.com/kcplane/kcp/operator/internal/operatortest"
)

// world is a cluster, and a fake kcp that stores the roles of every workspace.
type world struct {
	*operatortest.Cluster
	reconciler *kubeconfig.Reconciler
	revoker    *kubeconfig.Revoker
	bound      map[string]kcpaccess.Roles
	down       error
}

func newWorld(t *testing.T, k *v1alpha1.Kubeconfig) *world {
	t.Helper()
	rs := &v1alpha1.RootShard{ObjectMeta: metav1.ObjectMeta{Name: "kcp"}}
	rs.Spec.External = v1alpha1.ExternalConfig{Hostname: "kcp.example.com", Port: 443}
	w := &world{Cluster: operatortest.New(rs, k,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "kcp-merged-ca-bundle"}, Data: map[string][]byte{"tls.crt": operatortest.PEM("ca")}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "kcp-kcp-operator"}, Data: map[string][]byte{"tls.crt": []byte("c"), "tls.key": []byte("k")}},
	), bound: map[string]kcpaccess.Roles{}}
	w.reconciler = &kubeconfig.Reconciler{Client: w, Live: w, Recorder: w.Events, Bind: w.bind}
	w.revoker = &kubeconfig.Revoker{Client: w, Live: w, Recorder: w.Events, Bind: w.bind}
	w.available(t, metav1.ConditionTrue)
	return w
}

func (w *world) bind(_ context.Context, c kcpaccess.Credentials, workspace string, roles kcpaccess.Roles) error {
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
	w.MustUpdateStatus(t, rs)
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

// D7: a Kubeconfig is not Ready before its Secret exists, and its message has the certificate that it waits for. D10: all objects belong to
// the Kubeconfig.
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
			t.Errorf("the URL of context %s is not %s", name, url)
		}
	}
	if roles := w.bound["root"]; roles.Group != "kubeconfig:uid-admin" || !slices.Equal(roles.ClusterRoles, []string{"cluster-admin"}) {
		t.Errorf("bound %+v", w.bound)
	}
	w.WritesNothing(t, func() { w.reconcile(t) })
}

func TestTheSecretIsUpdatedWhenTheCertificateIsRenewed(t *testing.T) {
	w := newWorld(t, admin())
	w.settle(t)
	secret := operatortest.Read(t, w.Cluster, "kubeconfig-cert-admin", &corev1.Secret{})
	secret.Data["tls.crt"] = operatortest.PEM("renewed")
	w.MustUpdate(t, secret)
	w.reconcile(t)
	config, err := clientcmd.Load(operatortest.Read(t, w.Cluster, "admin-kubeconfig", secret).Data["kubeconfig"])
	if err != nil || string(config.AuthInfos["alice"].ClientCertificateData) != string(operatortest.PEM("renewed")) {
		t.Errorf("the kubeconfig has the old certificate (%v)", err)
	}
}

func TestASecretOfAnotherOwnerIsNotOverwritten(t *testing.T) {
	w := newWorld(t, admin())
	theirs := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: "admin-kubeconfig"}, Data: map[string][]byte{"a": []byte("b")}}
	w.MustCreate(t, theirs)
	k := w.settle(t)
	expect(t, k, "Stalled", metav1.ConditionTrue, "Secret admin-kubeconfig exists and was not created by the operator")
	if k.Status.Phase != v1alpha1.PhaseFailed {
		t.Errorf("phase %s", k.Status.Phase)
	}
}

func TestRolesMoveWithTheWorkspaceAndAreUnboundWithoutAuthorization(t *testing.T) {
	k := admin()
	k.Spec.Authorization.ClusterRoleBindings.Cluster = "root:old"
	w := newWorld(t, k)
	if k = w.settle(t); len(w.bound["root:old"].ClusterRoles) != 1 {
		t.Fatalf("the deprecated field has no effect: %+v", w.bound)
	}
	k.Spec.TargetWorkspace, k.Spec.Authorization.ClusterRoleBindings.Cluster = "root:team", ""
	w.MustUpdate(t, k)
	if k = w.reconcile(t); len(w.bound["root:old"].ClusterRoles) != 0 || len(w.bound["root:team"].ClusterRoles) != 1 {
		t.Errorf("bound %+v", w.bound)
	}
	k.Spec.Authorization = nil
	w.MustUpdate(t, k)
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
		t.Error("there is no retry")
	}
	k = operatortest.Read(t, w.Cluster, "admin", k)
	expect(t, k, "Ready", metav1.ConditionFalse, "connection refused")
}

func TestMissingTargetsAreReported(t *testing.T) {
	k := admin()
	k.Spec.Target = v1alpha1.KubeconfigTarget{FrontProxyRef: &v1alpha1.LocalReference{Name: "front"}}
	w := newWorld(t, k)
	expect(t, w.reconcile(t), "Stalled", metav1.ConditionTrue, "spec.target.frontProxyRef: there is no FrontProxy front")
	k = admin()
	k.Spec.Target.RootShardRef.Name = "gone"
	w = newWorld(t, k)
	expect(t, w.reconcile(t), "ReferenceValid", metav1.ConditionFalse, "there is no RootShard gone")
}

// delete deletes the Kubeconfig, and reconciles its deletion.
func (w *world) delete(t *testing.T, k *v1alpha1.Kubeconfig) {
	t.Helper()
	if err := w.Delete(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	if err := w.Get(t.Context(), operatortest.Key(k.Name), k); !apierrors.IsNotFound(err) {
		t.Errorf("the Kubeconfig is held up: %v", err)
	}
	w.Reconcile(t, w.reconciler, k.Name)
}

// revoke reconciles the Revoker, and reports whether it is done with a Kubeconfig.
func (w *world) revoke(t *testing.T, k *v1alpha1.Kubeconfig) bool {
	t.Helper()
	return w.Reconcile(t, w.revoker, string(k.UID)).RequeueAfter == 0
}

// left returns the names of the Secrets with the UID of a Kubeconfig that the garbage collector does not delete.
func (w *world) left(t *testing.T, k *v1alpha1.Kubeconfig) []string {
	t.Helper()
	list := &corev1.SecretList{}
	if err := w.List(t.Context(), list, client.MatchingLabels{"operator.kcp.io/kubeconfig": string(k.UID)}); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, secret := range list.Items {
		if !metav1.IsControlledBy(&secret, k) {
			names = append(names, secret.Name)
		}
	}
	return names
}

// copySecret copies a kubeconfig with its labels, as a user may do.
func (w *world) copySecret(t *testing.T) {
	t.Helper()
	copied := operatortest.Read(t, w.Cluster, "admin-kubeconfig", &corev1.Secret{})
	copied.ObjectMeta = metav1.ObjectMeta{Namespace: copied.Namespace, Name: "copied", Labels: copied.Labels}
	w.MustCreate(t, copied)
}

func TestAccessIsRevokedWhenTheKubeconfigIsDeleted(t *testing.T) {
	w := newWorld(t, admin())
	k := w.settle(t)
	w.copySecret(t)
	w.Writes()
	if !w.revoke(t, k) || w.Writes() != 0 || len(w.bound["root"].ClusterRoles) != 1 {
		t.Error("it ends before")
	}
	w.delete(t, k)
	if !w.revoke(t, k) || len(w.bound["root"].ClusterRoles) != 0 {
		t.Errorf("bound %+v", w.bound)
	}
	if left := w.left(t, k); !slices.Equal(left, []string{"copied"}) {
		t.Errorf("there still are the Secrets %v", left)
	}
	if err := w.Get(t.Context(), operatortest.Key("kubeconfig-cert-admin"), &certmanager.Certificate{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Certificate writes its Secret again: %v", err)
	}
}

// D29: the deletion of the Kubeconfig and its namespace does not wait for kcp.
func TestAccessIsRevokedWhenKCPIsAvailableAgain(t *testing.T) {
	w := newWorld(t, admin())
	k := w.settle(t)
	w.down = errors.New("connection refused")
	w.delete(t, k)
	if w.revoke(t, k) {
		t.Error("there is no retry")
	}
	if left := w.left(t, k); !slices.Equal(left, []string{"kubeconfig-roles-" + string(k.UID)}) {
		t.Errorf("remaining Secrets are %v: a key remains, or the record is lost", left)
	}
	reported := false
	for len(w.Events.Events) > 0 {
		reported = strings.Contains(<-w.Events.Events, "roles of a deleted Kubeconfig in workspace root are not unbound yet") || reported
	}
	if !reported {
		t.Error("no event reports the remaining roles")
	}
	w.down = nil
	if !w.revoke(t, k) || len(w.bound["root"].ClusterRoles) != 0 || len(w.left(t, k)) != 0 {
		t.Errorf("bound %+v", w.bound)
	}
}

func TestRevocationDoesNotWaitForDeletedObjects(t *testing.T) {
	for what, goes := range map[string]func(*world){
		"workspace": func(w *world) { w.down = apierrors.NewNotFound(schema.GroupResource{Resource: "workspaces"}, "root") },
		"RootShard": func(w *world) {
			w.down = errors.New("connection refused")
			if err := w.Client.Delete(t.Context(), operatortest.Read(t, w.Cluster, "kcp", &v1alpha1.RootShard{})); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t, admin())
			k := w.settle(t)
			goes(w)
			w.delete(t, k)
			if !w.revoke(t, k) || len(w.left(t, k)) != 0 {
				t.Error("it waits")
			}
		})
	}
}

func TestAKubeconfigThatIsCreatedAgainKeepsItsAccess(t *testing.T) {
	w := newWorld(t, admin())
	old := w.settle(t).DeepCopy()
	w.delete(t, old)
	k := admin()
	k.Namespace, k.UID = operatortest.Namespace, "another"
	w.MustCreate(t, k)
	if !w.revoke(t, old) {
		t.Error("it waits")
	}
	w.settle(t)
	if !w.revoke(t, old) || !w.revoke(t, k) || w.bound["root"].ID != "another" || len(w.left(t, k)) != 2 {
		t.Errorf("bound %+v, Secrets %v", w.bound, w.left(t, k))
	}
}

func TestFormerFinalizersAreRemoved(t *testing.T) {
	k := admin()
	k.Finalizers = []string{"operator.kcp.io/cleanup-rbac"}
	w := newWorld(t, k)
	if k = w.reconcile(t); len(k.Finalizers) != 0 {
		t.Errorf("finalizers %v", k.Finalizers)
	}
}

// D27: a Kubeconfig can be deleted before its first reconciliation, and one with a missing target does no harm.
func TestAKubeconfigCanBeDeletedAtAnyTime(t *testing.T) {
	k := admin()
	w := newWorld(t, k)
	w.delete(t, k)
	if !w.revoke(t, k) {
		t.Error("a reconciliation waits")
	}
	k = admin()
	k.Spec.Target = v1alpha1.KubeconfigTarget{}
	w = newWorld(t, k)
	k = w.reconcile(t)
	expect(t, k, "Stalled", metav1.ConditionTrue, "spec.target is empty")
	w.delete(t, k)
	if !w.revoke(t, k) {
		t.Error("a reconciliation waits")
	}
}

// D9: two Kubeconfigs cannot use the same Secret.
func TestASecretBelongsToOneKubeconfig(t *testing.T) {
	w := newWorld(t, admin())
	w.settle(t)
	second := admin()
	second.Namespace, second.Name, second.UID, second.ResourceVersion = operatortest.Namespace, "second", "uid-second", ""
	w.MustCreate(t, second)
	w.Reconcile(t, w.reconciler, "second")
	w.Issue(t)
	w.Reconcile(t, w.reconciler, "second")
	expect(t, operatortest.Read(t, w.Cluster, "second", second), "Stalled", metav1.ConditionTrue, "Secret admin-kubeconfig exists and belongs to Kubeconfig admin")
}

// Only the Secret in the spec has the key.
func TestTheFormerSecretIsDeleted(t *testing.T) {
	w := newWorld(t, admin())
	k := w.settle(t)
	w.copySecret(t)
	k.Spec.SecretRef.Name = "renamed"
	w.MustUpdate(t, k)
	expect(t, w.reconcile(t), "Ready", metav1.ConditionTrue, "")
	if err := w.Get(t.Context(), operatortest.Key("admin-kubeconfig"), &corev1.Secret{}); !apierrors.IsNotFound(err) {
		t.Errorf("the former one: %v", err)
	}
	for _, name := range []string{"renamed", "copied", "kubeconfig-cert-admin"} {
		operatortest.Read(t, w.Cluster, name, &corev1.Secret{})
	}
}

func TestTheStatusHasTheCertificateAndItIsRenewedOnDemand(t *testing.T) {
	w := newWorld(t, admin())
	if k := w.reconcile(t); k.Status.TargetName != "RootShard/kcp" || k.Status.Authorization == nil {
		t.Errorf("at first it is %+v", k.Status)
	}
	w.Issue(t)
	k := w.reconcile(t)
	if c := k.Status.Certificates; len(c) != 1 || c[0].Name != "kubeconfig-cert-admin" || c[0].Revision != 1 || c[0].NotAfter == nil {
		t.Errorf("certificates %+v", c)
	}
	expect(t, k, v1alpha1.ConditionCertificatesExpiring, metav1.ConditionFalse, "")
	certificate := operatortest.Read(t, w.Cluster, "kubeconfig-cert-admin", &certmanager.Certificate{})
	certificate.Status.NotBefore, certificate.Status.NotAfter = new(metav1.NewTime(time.Now().Add(-23*time.Hour))), new(metav1.NewTime(time.Now().Add(time.Hour)))
	w.MustUpdateStatus(t, certificate)
	k = w.reconcile(t)
	expect(t, k, v1alpha1.ConditionCertificatesExpiring, metav1.ConditionTrue, "kubeconfig-cert-admin expires")
	expect(t, k, "Ready", metav1.ConditionTrue, "")
	k.Annotations = map[string]string{v1alpha1.RenewAnnotation: "now"}
	w.MustUpdate(t, k)
	if k = w.reconcile(t); k.Status.Renewed != "now" {
		t.Errorf("renewed: %q", k.Status.Renewed)
	}
	conditions := operatortest.Read(t, w.Cluster, "kubeconfig-cert-admin", certificate).Status.Conditions
	if len(conditions) != 2 || conditions[1].Type != "Issuing" || conditions[1].Status != cmmeta.ConditionTrue {
		t.Errorf("conditions %+v", conditions)
	}
}

func TestAMissingIssuerIsReported(t *testing.T) {
	k := admin()
	k.Spec.CertificateTemplate = &v1alpha1.CertificateTemplate{Spec: &v1alpha1.CertificateSpecTemplate{IssuerRef: &v1alpha1.ObjectReference{Name: "company"}}}
	w := newWorld(t, k)
	expect(t, w.reconcile(t), "Stalled", metav1.ConditionTrue, "spec.certificateTemplate.spec.issuerRef: there is no Issuer company: create it")
}

func TestAStatusIsCorrectedEvenIfTheCacheIsOutdated(t *testing.T) {
	w := newWorld(t, admin())
	before := w.settle(t)
	if !meta.IsStatusConditionTrue(before.Status.Conditions, "Ready") {
		t.Fatalf("it is not Ready: %+v", before.Status.Conditions)
	}
	w.available(t, metav1.ConditionFalse)
	if after := w.reconcile(t); meta.IsStatusConditionTrue(after.Status.Conditions, "Ready") {
		t.Fatalf("it is Ready without kcp: %+v", after.Status.Conditions)
	}
	w.available(t, metav1.ConditionTrue)
	w.reconciler.Client = w.Behind(before)
	if after := w.reconcile(t); !meta.IsStatusConditionTrue(after.Status.Conditions, "Ready") {
		t.Errorf("it is not Ready, and nothing will reconcile it: %+v", after.Status.Conditions)
	}
}
