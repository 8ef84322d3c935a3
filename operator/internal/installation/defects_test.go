package installation_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
)

// These tests are for known defects of other operators of kcp, in all kinds that run in pods. D… are their numbers in the list of defects.
// Tests of definitions and admission (D1, D26, D27, D32) are in test/definitions, tests that need an API server (D1, D8, D9, D19, D21, D29)
// in operator/e2e, and those of the chart (D22, D23) there, too. D10, D29 and D31 are also in TestOperatorsThatEndAtEachWriteLeaveTheSame.
// D25 is true of every test here: neither the RootShard nor the CacheServer names an issuer.

// workloads are the names of the workloads of everyKind.
var workloads = []string{"cache-cache-server", "kcp-kcp", "east-shard-kcp", "west-shard-kcp", "views-virtual-workspace", "public-front-proxy"}

// everyKind returns an installation with all kinds.
func everyKind() []client.Object {
	objects := slices.DeleteFunc(installation(), func(o client.Object) bool { return o.GetName() == "west" })
	return append(objects, served("west", "views"), viewsOf("views", "west"))
}

// parts returns the parts of an object that all kinds have.
func parts(object client.Object) (*v1alpha1.ComponentSpec, *v1alpha1.ComponentStatus) {
	switch o := object.(type) {
	case *v1alpha1.CacheServer:
		return &o.Spec.ComponentSpec, &o.Status.ComponentStatus
	case *v1alpha1.RootShard:
		return &o.Spec.ComponentSpec, &o.Status.ComponentStatus
	case *v1alpha1.Shard:
		return &o.Spec.ComponentSpec, &o.Status.ComponentStatus
	case *v1alpha1.VirtualWorkspace:
		return &o.Spec.ComponentSpec, &o.Status
	}
	f := object.(*v1alpha1.FrontProxy)
	return &f.Spec.ComponentSpec, &f.Status
}

// owned returns all objects in the cluster that an object controls.
func (w *world) owned(t *testing.T, owner client.Object) []client.Object {
	t.Helper()
	var all []client.Object
	for _, list := range []client.ObjectList{&appsv1.StatefulSetList{}, &corev1.ServiceList{}, &corev1.SecretList{}, &certmanager.IssuerList{},
		&certmanager.CertificateList{}, &policyv1.PodDisruptionBudgetList{}, &networkingv1.NetworkPolicyList{}} {
		if err := w.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		if err := meta.EachListItem(list, func(o runtime.Object) error {
			if object := o.(client.Object); metav1.IsControlledBy(object, owner) {
				all = append(all, object)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// D2: fields of a template do not remove those that the operator sets.
func TestATemplateOfPodsKeepsTheImagePullSecretsOfEveryKind(t *testing.T) {
	objects := everyKind()
	for _, object := range objects {
		spec, _ := parts(object)
		spec.Image = &v1alpha1.ImageSpec{ImagePullSecrets: []v1alpha1.LocalReference{{Name: "registry"}}}
		spec.DeploymentTemplate = &v1alpha1.DeploymentTemplate{Spec: &v1alpha1.DeploymentSpecTemplate{Template: &v1alpha1.PodTemplateSpec{
			Spec: &runtime.RawExtension{Raw: []byte(`{"affinity":{"nodeAffinity":{}},"imagePullSecrets":[{"name":"mirror"}]}`)}}}}
	}
	w := newWorld(objects...)
	w.settle(t)
	for _, name := range workloads {
		pod := operatortest.Read(t, w.Cluster, name, &appsv1.StatefulSet{}).Spec.Template.Spec
		var secrets []string
		for _, secret := range pod.ImagePullSecrets {
			secrets = append(secrets, secret.Name)
		}
		if slices.Sort(secrets); pod.Affinity == nil || !slices.Equal(secrets, []string{"mirror", "registry"}) {
			t.Errorf("%s has the image pull Secrets %v and the affinity %v", name, secrets, pod.Affinity)
		}
	}
}

// D5, D6: the status describes the current spec and the current pods, and the phase also returns to an earlier one.
func TestTheStatusOfEveryKindDescribesItsPods(t *testing.T) {
	objects := everyKind()
	w := newWorld(objects...)
	w.settle(t)
	for _, object := range objects {
		operatortest.Read(t, w.Cluster, object.GetName(), object)
		_, status := parts(object)
		if status.Phase != v1alpha1.PhaseRunning || status.ObservedGeneration != object.GetGeneration() {
			t.Errorf("%T has the phase %s at generation %d", object, status.Phase, status.ObservedGeneration)
		}
	}
	for _, name := range workloads {
		set := operatortest.Read(t, w.Cluster, name, &appsv1.StatefulSet{})
		set.Status.ReadyReplicas = 0
		w.MustUpdateStatus(t, set)
	}
	w.reconcile(t)
	for _, object := range objects {
		w.expect(t, object, "Available", metav1.ConditionFalse, "NoPodReady", "")
		if _, status := parts(object); status.Phase != v1alpha1.PhaseProvisioning {
			t.Errorf("%T without pods has the phase %s", object, status.Phase)
		}
	}
}

// D9: components of different kinds may have one name. Only their etcds cannot.
func TestComponentsOfDifferentKindsMayHaveOneName(t *testing.T) {
	rs := root("kcp")
	rs.Spec.Cache = &v1alpha1.CacheConfig{Reference: &v1alpha1.LocalReference{Name: "same"}}
	objects := []client.Object{rs, cache("same"), served("same", "same"), viewsOf("same", "same"), proxy("same")}
	w := newWorld(objects...)
	w.settle(t)
	for _, object := range objects {
		w.expect(t, object, "Ready", metav1.ConditionTrue, "", "")
	}
	first, second := cache("twin"), further("twin")
	first.Spec.Etcd = &v1alpha1.EtcdConfig{Managed: &v1alpha1.EtcdClusterSpec{}}
	second.Spec.Etcd = v1alpha1.EtcdConfig{Managed: &v1alpha1.EtcdClusterSpec{}}
	w = newWorld(root("kcp"), first, second)
	w.settle(t)
	w.expect(t, second, "EtcdReady", metav1.ConditionFalse, "NameConflict", "EtcdCluster twin-etcd exists and belongs to CacheServer twin")
}

// D11: clients use the domain of the cluster.
func TestCertificatesOfEveryKindHaveTheDomainOfTheCluster(t *testing.T) {
	objects := everyKind()
	for _, object := range objects {
		switch o := object.(type) {
		case *v1alpha1.CacheServer:
			o.Spec.ClusterDomain = "example.local"
		case *v1alpha1.RootShard:
			o.Spec.ClusterDomain = "example.local"
		case *v1alpha1.Shard:
			o.Spec.ClusterDomain = "example.local"
		case *v1alpha1.VirtualWorkspace:
			o.Spec.ClusterDomain = "example.local"
		}
	}
	w := newWorld(objects...)
	w.settle(t)
	for certificate, service := range map[string]string{"cache-cache-server-server": "cache-cache-server", "kcp-server": "kcp-kcp",
		"west-shard-server": "west-shard-kcp", "views-virtual-workspace-server": "views-virtual-workspace",
		"public-front-proxy-server": "public-front-proxy"} {
		names := operatortest.Read(t, w.Cluster, certificate, &certmanager.Certificate{}).Spec.DNSNames
		if !slices.Contains(names, service+".team.svc.example.local") {
			t.Errorf("%s has the names %v", certificate, names)
		}
	}
}

// D12, D30: what shards and front proxies trust are authorities, also those that the spec names, and not certificates of servers, which
// are renewed.
func TestTrustDoesNotDependOnCertificatesOfServers(t *testing.T) {
	key := operatortest.NewKey(t)
	more := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "more"},
		Data: map[string][]byte{"tls.crt": operatortest.Certificate(t, "more", key, key)}}
	objects := append(everyKind(), more)
	for _, object := range objects {
		switch o := object.(type) {
		case *v1alpha1.Shard:
			o.Spec.CABundleSecretRef = &v1alpha1.LocalReference{Name: "more"}
		case *v1alpha1.FrontProxy:
			o.Spec.CABundleSecretRef = &v1alpha1.LocalReference{Name: "more"}
		}
	}
	w := newWorld(objects...)
	w.settle(t)
	bundles := func() map[string]string {
		all := map[string]string{}
		for _, name := range []string{"west-shard-merged-ca-bundle", "public-front-proxy-merged-ca-bundle"} {
			all[name] = string(operatortest.Read(t, w.Cluster, name, &corev1.Secret{}).Data["tls.crt"])
			if !strings.Contains(all[name], strings.TrimSpace(string(more.Data["tls.crt"]))) {
				t.Errorf("%s does not have the authority in the spec", name)
			}
		}
		return all
	}
	before := bundles()
	for _, name := range []string{"kcp-server", "west-shard-server", "public-front-proxy-server"} {
		if err := w.Delete(t.Context(), operatortest.Read(t, w.Cluster, name, &corev1.Secret{})); err != nil {
			t.Fatal(err)
		}
	}
	w.settle(t)
	if after := bundles(); !maps.Equal(before, after) {
		t.Error("the renewal of the certificates of servers changes what others trust")
	}
}

// D13: each shard has a certificate with which other shards know it, also the root shard, for mounted workspaces.
func TestEveryShardHasACertificateForOtherShards(t *testing.T) {
	w := newWorld(everyKind()...)
	w.settle(t)
	for _, name := range []string{"kcp-kcp", "east-shard-kcp", "west-shard-kcp"} {
		if got := w.args(t, name); !strings.Contains(got, "--shard-client-cert-file=") || !strings.Contains(got, "--shard-client-key-file=") {
			t.Errorf("%s has no certificate for other shards: %s", name, got)
		}
	}
}
