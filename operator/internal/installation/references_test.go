package installation_test

import (
	"strings"
	"testing"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
)

// D16, D17: a missing Secret is reported, with the field; one that changes replaces the pods that read it only when they start.
func TestSecretsInTheSpecOfEveryKindAreChecked(t *testing.T) {
	objects := everyKind()
	for _, object := range objects {
		spec, _ := parts(object)
		spec.ExtraVolumes = []corev1.Volume{{Name: "things",
			VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "things"}}}}
		switch o := object.(type) {
		case *v1alpha1.Shard:
			o.Spec.Auth = &v1alpha1.AuthSpec{TokenAuthFile: &v1alpha1.TokenAuthFile{SecretName: "tokens"}}
		case *v1alpha1.FrontProxy:
			o.Spec.Auth = &v1alpha1.AuthSpec{TokenAuthFile: &v1alpha1.TokenAuthFile{SecretName: "tokens"}}
		}
	}
	tokens := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "tokens"}, Data: map[string][]byte{"token.csv": []byte("a,a,a")}}
	w := newWorld(append(objects, tokens)...)
	w.settle(t)
	for _, object := range objects {
		if _, ok := object.(*v1alpha1.VirtualWorkspace); ok {
			continue // waits for its shard first
		}
		w.expect(t, object, "ReferenceValid", metav1.ConditionFalse, "ReferenceNotFound", "spec.extraVolumes")
		w.expect(t, object, "Stalled", metav1.ConditionTrue, "ReferenceNotFound", "there is no Secret things: create it")
	}
	w.MustCreate(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: "things"}})
	w.settle(t)
	w.settle(t) // front proxies wait for the shards
	template := func(name string) string {
		return strings.Join(strings.Fields(operatortest.Read(t, w.Cluster, name, &appsv1.StatefulSet{}).Annotations["operator.kcp.io/made"]), "")
	}
	before := map[string]string{}
	for _, name := range workloads {
		before[name] = template(name)
	}
	operatortest.Read(t, w.Cluster, "tokens", tokens)
	tokens.Data["token.csv"] = []byte("b,b,b")
	w.MustUpdate(t, tokens)
	w.settle(t)
	for name, was := range before {
		reads := strings.HasSuffix(name, "-shard-kcp") || name == "public-front-proxy" || name == "views-virtual-workspace"
		if changed := template(name) != was; changed != reads {
			t.Errorf("%s: its pods are replaced: %t", name, changed)
		}
	}
}

// D16 of a VirtualWorkspace whose shard is ready.
func TestSecretsInTheSpecOfAVirtualWorkspaceAreChecked(t *testing.T) {
	v := viewsOf("views", "west")
	v.Spec.ExtraVolumes = []corev1.Volume{{Name: "things",
		VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "things"}}}}
	w := newWorld(root("kcp"), further("west"), v)
	w.settle(t)
	w.expect(t, v, "Stalled", metav1.ConditionTrue, "ReferenceNotFound", "there is no Secret things: create it")
}

// D24: with an authority of the user, no Secret is mounted that nothing creates.
func TestACacheServerWithAnAuthorityOfTheUserIsReady(t *testing.T) {
	c := cache("cache")
	c.Spec.Certificates = &v1alpha1.Certificates{CASecretRef: &v1alpha1.LocalReference{Name: "other-ca"}}
	rs := root("kcp")
	rs.Spec.Cache = &v1alpha1.CacheConfig{Reference: &v1alpha1.LocalReference{Name: "cache"}}
	w := newWorld(root("other"), c, rs)
	w.settle(t) // other-ca is the authority of another RootShard
	w.expect(t, c, "Ready", metav1.ConditionTrue, "", "")
	w.expect(t, rs, "Ready", metav1.ConditionTrue, "", "")
	for _, v := range operatortest.Read(t, w.Cluster, "cache-cache-server", &appsv1.StatefulSet{}).Spec.Template.Spec.Volumes {
		if v.Secret != nil {
			operatortest.Read(t, w.Cluster, v.Secret.SecretName, &corev1.Secret{})
		}
	}
}

// D27: objects from before a field was required are reported, and crash nothing.
func TestObjectsWithoutTheirRootShardAreReported(t *testing.T) {
	s, f, v := further("west"), proxy("public"), viewsOf("views", "west")
	s.Spec.RootShard, f.Spec.RootShard, v.Spec.Target = v1alpha1.RootShardConfig{}, v1alpha1.RootShardConfig{}, v1alpha1.VirtualWorkspaceTarget{}
	w := newWorld(root("kcp"), s, f, v)
	w.settle(t)
	for object, field := range map[client.Object]string{s: "spec.rootShard.ref", f: "spec.rootShard.ref", v: "spec.target"} {
		w.expect(t, object, "Stalled", metav1.ConditionTrue, "", field)
	}
	w.expect(t, root("kcp"), "Ready", metav1.ConditionTrue, "", "")
}

// D28: renewal keeps the keys of authorities and of service accounts, and replaces others.
func TestRenewalKeepsTheKeysThatOthersTrustInEveryKind(t *testing.T) {
	w := newWorld(everyKind()...)
	w.settle(t)
	list := &certmanager.CertificateList{}
	if err := w.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) < 25 {
		t.Errorf("only %d certificates", len(list.Items))
	}
	for _, c := range list.Items {
		want := certmanager.RotationPolicyAlways
		if c.Spec.IsCA || strings.HasSuffix(c.Name, "-service-account") {
			want = certmanager.RotationPolicyNever
		}
		if got := c.Spec.PrivateKey.RotationPolicy; got != want {
			t.Errorf("Certificate %s has the rotation policy %s", c.Name, got)
		}
	}
}

// D31: what the spec no longer has is removed.
func TestTheMappingFileOfAFrontProxyIsRemovedWithTheMappings(t *testing.T) {
	f := proxy("public")
	f.Spec.AdditionalPathMappings = []v1alpha1.PathMappingEntry{{Path: "/services/things/", Backend: "https://things:6443",
		BackendServerCA: "/etc/kcp/tls/ca/tls.crt", ProxyClientCert: "/etc/kcp-front-proxy/requestheader-client/tls.crt",
		ProxyClientKey: "/etc/kcp-front-proxy/requestheader-client/tls.key"}}
	w := newWorld(root("kcp"), f)
	w.settle(t)
	operatortest.Read(t, w.Cluster, "public-front-proxy-config", &corev1.Secret{})
	operatortest.Read(t, w.Cluster, "public", f)
	f.Spec.AdditionalPathMappings = nil
	f.Generation++
	w.MustUpdate(t, f)
	w.settle(t)
	if err := w.Get(t.Context(), operatortest.Key("public-front-proxy-config"), &corev1.Secret{}); !apierrors.IsNotFound(err) {
		t.Errorf("the mapping file remains: %v", err)
	}
}

// D33: labels that others add to objects of the operator remain. D34: labels and annotations of the owner are not copied to them.
func TestLabelsOfOwnersAndOfOthersStayApart(t *testing.T) {
	objects := everyKind()
	for _, object := range objects {
		object.SetLabels(map[string]string{"argocd.argoproj.io/instance": "argo"})
		object.SetAnnotations(map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "{}", "argocd.argoproj.io/tracking-id": "argo"})
	}
	w := newWorld(objects...)
	w.settle(t)
	for _, name := range workloads {
		set := operatortest.Read(t, w.Cluster, name, &appsv1.StatefulSet{})
		set.Labels["theirs"] = "kept"
		w.MustUpdate(t, set)
	}
	for _, object := range objects {
		operatortest.Read(t, w.Cluster, object.GetName(), object)
		spec, _ := parts(object)
		spec.Logging = &v1alpha1.LoggingSpec{Level: 4}
		object.SetGeneration(object.GetGeneration() + 1)
		w.MustUpdate(t, object)
	}
	w.settle(t)
	for _, name := range workloads {
		if set := operatortest.Read(t, w.Cluster, name, &appsv1.StatefulSet{}); set.Labels["theirs"] != "kept" {
			t.Errorf("%s has lost the label of another client", name)
		}
	}
	for _, owner := range objects {
		owned := w.owned(t, owner)
		if len(owned) < 5 {
			t.Errorf("%T owns only %d objects", owner, len(owned))
		}
		for _, object := range owned {
			for _, values := range []map[string]string{object.GetLabels(), object.GetAnnotations()} {
				for key, value := range values {
					if value == "argo" || strings.Contains(key, "last-applied") {
						t.Errorf("%T %s has %s: %s", object, object.GetName(), key, value)
					}
				}
			}
		}
	}
}
