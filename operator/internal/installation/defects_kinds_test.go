package installation_test

import (
	"context"
	"strings"
	"testing"
	"time"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/kcpaccess"
	"github.com/kcplane/kcp/operator/internal/operatortest"
)

// kubeconfigs returns a Kubeconfig for each kind of target in everyKind.
func kubeconfigs() []*v1alpha1.Kubeconfig {
	var all []*v1alpha1.Kubeconfig
	for name, target := range map[string]v1alpha1.KubeconfigTarget{
		"at-root":  {RootShardRef: &v1alpha1.LocalReference{Name: "kcp"}},
		"at-shard": {ShardRef: &v1alpha1.LocalReference{Name: "west"}},
		"at-proxy": {FrontProxyRef: &v1alpha1.LocalReference{Name: "public"}},
	} {
		k := named(&v1alpha1.Kubeconfig{}, name)
		k.Spec = v1alpha1.KubeconfigSpec{Target: target, Username: name, SecretRef: v1alpha1.LocalReference{Name: name + "-secret"},
			TargetWorkspace: "root:" + name, Authorization: &v1alpha1.KubeconfigAuthorization{
				ClusterRoleBindings: v1alpha1.KubeconfigClusterRoleBindings{ClusterRoles: []string{"view"}}}}
		k.Spec.Validity.Duration.Duration = time.Hour
		all = append(all, k)
	}
	return all
}

// D5: pods of a former spec do not count, and without pods no kind is available.
func TestNoKindIsReadyWithPodsOfAFormerSpecNorAvailableWithoutPods(t *testing.T) {
	objects := everyKind()
	w := newWorld(objects...)
	w.settle(t)
	for _, name := range workloads {
		set := operatortest.Read(t, w.Cluster, name, &appsv1.StatefulSet{})
		set.Generation++
		w.MustUpdate(t, set)
	}
	w.reconcile(t)
	for _, object := range objects {
		w.expect(t, object, "Ready", metav1.ConditionFalse, "", "")
		w.expect(t, object, "Available", metav1.ConditionTrue, "", "")
	}
	w.settle(t)
	for _, object := range objects {
		w.expect(t, object, "Ready", metav1.ConditionTrue, "", "")
		spec, _ := parts(object)
		spec.Replicas = new(int32(0))
		object.SetGeneration(object.GetGeneration() + 1)
		w.MustUpdate(t, object)
	}
	w.settle(t)
	for _, object := range objects {
		w.expect(t, object, "Available", metav1.ConditionFalse, "ScaledToZero", "spec.replicas is 0")
		if _, status := parts(object); status.ObservedGeneration != object.GetGeneration() || status.Pods != "0/0" {
			t.Errorf("%T: status %+v", object, status)
		}
	}
}

// D7: no Kubeconfig is Ready before its Secret exists, whatever its target is.
func TestNoKubeconfigIsReadyBeforeItsSecretExists(t *testing.T) {
	w := newWorld(everyKind()...)
	w.settle(t)
	for _, k := range kubeconfigs() {
		k.Namespace = operatortest.Namespace
		w.MustCreate(t, k)
	}
	check := func(phase v1alpha1.Phase, status metav1.ConditionStatus, exists bool) {
		t.Helper()
		for _, k := range kubeconfigs() {
			operatortest.Read(t, w.Cluster, k.Name, k)
			c := meta.FindStatusCondition(k.Status.Conditions, "Ready")
			if k.Status.Phase != phase || c.Status != status || !exists && !strings.Contains(c.Message, "Certificate kubeconfig-cert-"+k.Name) {
				t.Errorf("%s has the phase %s and %+v", k.Name, k.Status.Phase, c)
			}
			err := w.Get(t.Context(), operatortest.Key(k.Spec.SecretRef.Name), &corev1.Secret{})
			if client.IgnoreNotFound(err) != nil || apierrors.IsNotFound(err) == exists {
				t.Errorf("%s: the Secret: %v", k.Name, err)
			}
		}
	}
	w.reconcile(t)
	check(v1alpha1.PhaseProvisioning, metav1.ConditionFalse, false)
	w.settle(t)
	check(v1alpha1.PhaseReady, metav1.ConditionTrue, true)
}

// D17: a ConfigMap that changes replaces the pods that read it only when they start.
func TestPodsOfEveryShardFollowTheirAuditPolicy(t *testing.T) {
	policy := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "audit"}, Data: map[string]string{"policy.yaml": "rules: []"}}
	audit := &v1alpha1.AuditSpec{Policy: &v1alpha1.AuditPolicySpec{ConfigMap: &v1alpha1.LocalKeyReference{Name: "audit", Key: "policy.yaml"}}}
	objects := everyKind()
	for _, object := range objects {
		switch o := object.(type) {
		case *v1alpha1.RootShard:
			o.Spec.Audit = audit
		case *v1alpha1.Shard:
			o.Spec.Audit = audit
		}
	}
	w := newWorld(append(objects, policy)...)
	w.settle(t)
	before := w.templates(t)
	operatortest.Read(t, w.Cluster, "audit", policy)
	policy.Data["policy.yaml"] = "rules: [{level: Metadata}]"
	w.MustUpdate(t, policy)
	w.settle(t)
	was, is := strings.Split(before, "\n"), strings.Split(w.templates(t), "\n")
	for i := range was {
		if was[i] == is[i] {
			t.Errorf("its pods are not replaced: %s", is[i])
		}
	}
}

// D31: authorities that the spec no longer names are not trusted, and certificates that nothing needs are deleted with their keys.
func TestWhatTheSpecOfEveryKindNoLongerNamesIsRemoved(t *testing.T) {
	key := operatortest.NewKey(t)
	more := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "more"},
		Data: map[string][]byte{"tls.crt": operatortest.Certificate(t, "more", key, key)}}
	objects := everyKind()
	name := func(ref *v1alpha1.LocalReference) {
		for _, object := range objects {
			switch o := object.(type) {
			case *v1alpha1.Shard:
				o.Spec.CABundleSecretRef, o.Spec.ClientCABundleRef = ref, ref
			case *v1alpha1.FrontProxy:
				o.Spec.CABundleSecretRef, o.Spec.ClientCABundleRef = ref, ref
			case *v1alpha1.VirtualWorkspace:
				o.Spec.ClientCABundleRef = ref
			}
		}
	}
	name(&v1alpha1.LocalReference{Name: "more"})
	w := newWorld(append(objects, more)...)
	w.settle(t)
	trusted := func(want bool) {
		t.Helper()
		for _, bundle := range []string{"west-shard-merged-ca-bundle", "west-shard-merged-client-ca", "public-front-proxy-merged-ca-bundle",
			"public-front-proxy-merged-client-ca", "views-virtual-workspace-merged-client-ca"} {
			content := string(operatortest.Read(t, w.Cluster, bundle, &corev1.Secret{}).Data["tls.crt"])
			if got := strings.Contains(content, strings.TrimSpace(string(more.Data["tls.crt"]))); got != want {
				t.Errorf("Secret %s has the authority: %t", bundle, got)
			}
		}
	}
	trusted(true)
	for _, object := range objects {
		operatortest.Read(t, w.Cluster, object.GetName(), object)
	}
	name(nil)
	for _, object := range objects {
		if rs, ok := object.(*v1alpha1.RootShard); ok {
			rs.Spec.Cache = nil
		}
		object.SetGeneration(object.GetGeneration() + 1)
		w.MustUpdate(t, object)
	}
	w.settle(t)
	trusted(false)
	w.leaves(t, false, "kcp-cache-client", "west-shard-cache-client", "east-shard-cache-client")
}

// D35: the operator trusts the root shard with another issuer of its certificate, to register shards and to bind roles.
func TestTheOperatorTrustsARootShardWithAnotherIssuer(t *testing.T) {
	rs := root("kcp")
	rs.Spec.CertificateTemplates = v1alpha1.CertificateTemplateMap{"server": {Spec: &v1alpha1.CertificateSpecTemplate{
		IssuerRef: &v1alpha1.ObjectReference{Name: "other-server-ca", Kind: "Issuer"}}}}
	w := newWorld(root("other"), rs, further("west"), kubeconfigs()[0])
	kcp := &trusting{registry: registry{shards: map[string]kcpaccess.Registered{
		"west": {BaseURL: "https://west-shard-kcp.team.svc.cluster.local:6443", Responds: true}}}}
	w.registry = kcp
	w.settle(t)
	w.expect(t, further("west"), "Registered", metav1.ConditionTrue, "", "")
	chain := operatortest.Read(t, w.Cluster, "kcp-server", &corev1.Secret{}).Data["tls.crt"]
	if issuer := operatortest.Read(t, w.Cluster, "kcp-server", &certmanager.Certificate{}).Spec.IssuerRef.Name; issuer != "other-server-ca" {
		t.Errorf("the issuer of the server is %s", issuer)
	}
	if err := operatortest.Verify(chain, kcp.authorities); err != nil {
		t.Error(err)
	}
}

// trusting is a registry that records the authorities with which the operator verifies kcp.
type trusting struct {
	registry
	authorities []byte
}

func (r *trusting) Shard(ctx context.Context, c kcpaccess.Credentials, name string) (kcpaccess.Registered, error) {
	r.authorities = c.Authorities
	return r.registry.Shard(ctx, c, name)
}
