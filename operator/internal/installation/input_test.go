package installation_test

import (
	"strings"
	"testing"

	acmev1 "github.com/cert-manager/cert-manager/pkg/apis/acme/v1"
	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
	"github.com/kcplane/kcp/operator/internal/workload"
)

// Shards keep running without their cache server, and report what is missing.
func TestACacheServerThatIsDeletedWhileShardsUseItIsReported(t *testing.T) {
	w := newWorld(installation()...)
	w.settle(t)
	if err := w.Delete(t.Context(), operatortest.Read(t, w.Cluster, "cache", &v1alpha1.CacheServer{})); err != nil {
		t.Fatal(err)
	}
	before := w.templates(t)
	w.reconcile(t)
	for _, object := range []client.Object{root("kcp"), further("east"), further("west")} {
		w.expect(t, object, "Stalled", metav1.ConditionTrue, "ReferenceNotFound",
			"spec.cache.ref of RootShard kcp: there is no CacheServer cache: create it")
		w.expect(t, object, "Available", metav1.ConditionTrue, "", "")
	}
	if after := w.templates(t); before != after {
		t.Errorf("pods are replaced:\n%s\n%s", before, after)
	}
	again := cache("cache")
	again.SetNamespace(operatortest.Namespace)
	w.MustCreate(t, again)
	w.settle(t)
	w.expect(t, root("kcp"), "Ready", metav1.ConditionTrue, "", "")
	w.expect(t, further("east"), "Ready", metav1.ConditionTrue, "", "")
}

// templates returns the hashes of the templates of shards.
func (w *world) templates(t *testing.T) string {
	t.Helper()
	var all []string
	for _, name := range []string{"kcp-kcp", "east-shard-kcp", "west-shard-kcp"} {
		set := operatortest.Read(t, w.Cluster, name, &appsv1.StatefulSet{})
		all = append(all, name+" "+workload.Template(set))
	}
	return strings.Join(all, "\n")
}

// Each component may go to the next minor version, if its root shard has it, and not further.
func TestNoComponentSkipsAMinorVersion(t *testing.T) {
	for _, object := range []client.Object{cache("cache"), root("kcp"), further("east"), proxy("public"), viewsOf("views", "west")} {
		t.Run(typeOf(object), func(t *testing.T) {
			w := running(t)
			operatortest.Read(t, w.Cluster, object.GetName(), object)
			skips := &v1alpha1.ImageSpec{Tag: "v1.2.0"}
			switch o := object.(type) {
			case *v1alpha1.CacheServer:
				o.Spec.Image = skips
			case *v1alpha1.RootShard:
				o.Spec.Image, o.Spec.Cache = skips, nil
			case *v1alpha1.Shard:
				o.Spec.Image = skips
			case *v1alpha1.FrontProxy:
				o.Spec.Image = skips
			case *v1alpha1.VirtualWorkspace:
				o.Spec.Image = skips
			}
			w.MustUpdate(t, object)
			w.reconcileAll(t)
			operatortest.Read(t, w.Cluster, object.GetName(), object)
			c := meta.FindStatusCondition(operatortest.Conditions(t, object), "Stalled")
			if c == nil || c.Reason != "VersionRefused" || !strings.HasPrefix(c.Message, "spec.image: ") {
				t.Errorf("got %+v", c)
			}
			sets := &appsv1.StatefulSetList{}
			if err := w.List(t.Context(), sets); err != nil {
				t.Fatal(err)
			}
			for _, set := range sets.Items {
				if image := set.Spec.Template.Spec.Containers[0].Image; strings.HasSuffix(image, ":v1.2.0") {
					t.Errorf("%s has the image %s", set.Name, image)
				}
			}
		})
	}
}

// A cache server has an authority of its own, so its issuer must sign authorities.
func TestACacheServerWithoutAnIssuerOfAuthoritiesIsReported(t *testing.T) {
	issuer := &certmanager.Issuer{ObjectMeta: metav1.ObjectMeta{Name: "public"}}
	issuer.Spec.ACME = &acmev1.ACMEIssuer{Server: "https://acme.example.com/directory"}
	site := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "site"}, Data: map[string][]byte{
		"tls.crt": operatortest.Leaf(t, "kcp.example.com"), "tls.key": []byte("x")}}
	byIssuer, bySecret := cache("cache"), cache("cache")
	byIssuer.Spec.Certificates = &v1alpha1.Certificates{IssuerRef: &v1alpha1.ObjectReference{Name: "public"}}
	bySecret.Spec.Certificates = &v1alpha1.Certificates{CASecretRef: &v1alpha1.LocalReference{Name: "site"}}
	for _, test := range []struct {
		object          *v1alpha1.CacheServer
		reason, message string
	}{
		{byIssuer, "IssuerCannotSign", "spec.certificates.issuerRef: Issuer public uses ACME, which signs no certificate authorities"},
		{bySecret, "NotAnAuthority", "spec.certificates.caSecretRef: the certificate in Secret site is not one of a CA"},
	} {
		w := newWorld(issuer.DeepCopy(), site.DeepCopy(), test.object)
		w.reconcile(t)
		w.expect(t, test.object, "CertificatesReady", metav1.ConditionFalse, test.reason, test.message)
		w.expect(t, test.object, "Stalled", metav1.ConditionTrue, test.reason, test.message)
	}
}

func TestADrainWithNowhereToGoIsReported(t *testing.T) {
	w, kcp, west := registered(t)
	kcp.full = true
	operatortest.Read(t, w.Cluster, "west", west)
	west.Spec.Drain = true
	w.MustUpdate(t, west)
	w.reconcile(t)
	w.reconcile(t)
	w.expect(t, west, "Drained", metav1.ConditionFalse, "NoDestination",
		"no other shard accepts logical clusters (east is full): add a Shard, or set spec.drain of another Shard to false")
	if len(kcp.migrations) > 0 {
		t.Errorf("the migrations are %v", kcp.migrations)
	}
	kcp.full = false
	w.reconcile(t)
	w.expect(t, west, "Drained", metav1.ConditionFalse, "Moving", "1 are moving")
}
