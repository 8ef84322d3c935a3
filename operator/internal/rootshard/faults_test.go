package rootshard_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/access"
	"github.com/kcplane/kcp/operator/internal/kubeconfig"
	"github.com/kcplane/kcp/operator/internal/operatortest"
	"github.com/kcplane/kcp/operator/internal/pki"
	"github.com/kcplane/kcp/operator/internal/rootshard"
	"github.com/kcplane/kcp/operator/internal/workload"
)

// installation is a RootShard and a Kubeconfig, with certificates that can be verified.
type installation struct {
	*operatortest.Cluster
	shard   *rootshard.Reconciler
	clients *kubeconfig.Reconciler
	made    int    // how often the RootShard was made
	rolled  string // what the pods are
}

func newInstallation(objects ...client.Object) *installation {
	c := operatortest.New(objects...)
	bind := func(context.Context, access.Credentials, string, access.Roles) error { return nil }
	return &installation{Cluster: c, shard: &rootshard.Reconciler{Client: c, Live: c, Recorder: c.Events, DefaultImage: image},
		clients: &kubeconfig.Reconciler{Client: c, Live: c, Recorder: c.Events, Bind: bind}}
}

func (i *installation) object(t *testing.T, object client.Object, name string) bool {
	t.Helper()
	err := i.Get(t.Context(), operatortest.Key(name), object)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return err == nil
}

// look lets the operator look at both objects, and checks that their conditions are true.
func (i *installation) look(t *testing.T) {
	t.Helper()
	i.Reconcile(t, i.shard, "kcp")
	i.Reconcile(t, i.clients, "admin")
	rs := operatortest.Read(t, i.Cluster, "kcp", &v1alpha1.RootShard{})
	wrong := i.distrust(t)
	if len(wrong) > 0 && meta.IsStatusConditionTrue(rs.Status.Conditions, "Ready") && meta.IsStatusConditionTrue(rs.Status.Conditions, "CertificatesReady") {
		t.Errorf("it says Ready and CertificatesReady, though %s", strings.Join(wrong, ", "))
	}
}

// round lets everything go on: the garbage collector, cert-manager, who applies the RootShard again, the operator, and the pods.
func (i *installation) round(t *testing.T) {
	t.Helper()
	rs := &v1alpha1.RootShard{}
	if !i.object(t, rs, "kcp") {
		for _, object := range i.everything(t) {
			if by := metav1.GetControllerOf(object); by != nil && by.Kind == "RootShard" {
				i.gone(t, object)
			}
		}
		i.made++
		rs = external()
		rs.Namespace, rs.UID, rs.Generation = operatortest.Namespace, types.UID(fmt.Sprint("again-", i.made)), 1
		i.MustCreate(t, rs)
	}
	if !i.object(t, &v1alpha1.Kubeconfig{}, "admin") {
		i.MustCreate(t, admin())
	}
	i.Certify(t)
	i.look(t)
	set := &appsv1.StatefulSet{}
	if !i.object(t, set, "kcp-kcp") || workload.RolledOut(set) && set.Annotations["operator.kcp.io/made"] == i.rolled {
		return
	}
	if i.rolled = set.Annotations["operator.kcp.io/made"]; workload.RolledOut(set) {
		set.Generation++ // as an API server counts
		i.MustUpdate(t, set)
		i.look(t)
	}
	i.Roll(t, "kcp-kcp")
	i.look(t)
}

func (i *installation) settle(t *testing.T) {
	t.Helper()
	for range 20 {
		i.Writes()
		i.round(t)
		if i.Writes() == 0 {
			return
		}
	}
	t.Error("it does not come to rest")
}

func (i *installation) gone(t *testing.T, object client.Object) {
	t.Helper()
	if err := client.IgnoreNotFound(i.Delete(t.Context(), object)); err != nil {
		t.Fatal(err)
	}
}

// everything lists what there is, that the operator has to do with.
func (i *installation) everything(t *testing.T) []client.Object {
	t.Helper()
	return append(list(t, i.Cluster), list(t, i.Cluster, &v1alpha1.RootShardList{}, &v1alpha1.KubeconfigList{})...)
}

// distrust verifies what everybody shows with what those have whom it is shown to, and says who is refused.
func (i *installation) distrust(t *testing.T) []string {
	t.Helper()
	data := func(name, key string) []byte {
		secret := &corev1.Secret{}
		i.object(t, secret, name)
		return secret.Data[key]
	}
	var wrong []string
	verify := func(who, by string, certificate, authorities []byte) {
		if len(certificate) > 0 && len(authorities) > 0 && !pki.TrustedBy(certificate, authorities) {
			wrong = append(wrong, by+" refuses "+who)
		}
	}
	server, clients := data("kcp-server", "tls.crt"), data("kcp-merged-client-ca", "tls.crt")
	verify("the server", "the operator", server, data("kcp-merged-ca-bundle", "tls.crt"))
	for _, name := range []string{"kcp-logical-cluster-admin-kubeconfig", "kcp-external-logical-cluster-admin-kubeconfig", "admin-kubeconfig"} {
		content := data(name, access.Key)
		if len(content) == 0 {
			continue
		}
		config, err := clientcmd.RESTConfigFromKubeConfig(content)
		if err != nil {
			t.Fatal(err)
		}
		verify("the server", name, server, config.CAData)
		verify(name, "the server", config.CertData, clients)
	}
	verify("the operator", "the server", data("kcp-kcp-operator", "tls.crt"), clients)
	if accepted := data("kcp-service-account-keys", "tls.crt"); len(accepted) > 0 {
		if issued, _ := pki.Trusted(data("kcp-service-account", "tls.crt")); !bytes.Contains(accepted, issued) {
			wrong = append(wrong, "the server refuses tokens of the key of service accounts")
		}
	}
	return wrong
}

func admin() *v1alpha1.Kubeconfig {
	k := &v1alpha1.Kubeconfig{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: "admin", UID: "uid-admin", Generation: 1}}
	k.Spec.Target.RootShardRef = &v1alpha1.LocalReference{Name: "kcp"}
	k.Spec.Username, k.Spec.Validity, k.Spec.SecretRef.Name = "admin", v1alpha1.Duration{Duration: metav1.Duration{Duration: time.Hour}}, "admin-kubeconfig"
	return k
}

// phases of a rotation, each of which begins where the one before has ended.
var phases = []struct {
	name     string
	rotating string // the reason, as long as nothing else happens
	begin    func(*testing.T, *installation)
}{
	{"before", "No", func(t *testing.T, i *installation) { i.settle(t) }},
	{"authorities have other keys", "No", func(t *testing.T, i *installation) {
		for _, name := range []string{"kcp-server-ca", "kcp-client-ca", "kcp-service-account"} {
			i.gone(t, operatortest.Read(t, i.Cluster, name, &corev1.Secret{}))
		}
		i.Certify(t)
	}},
	{"both are to be trusted", v1alpha1.RotatingDistributing, func(t *testing.T, i *installation) { i.look(t) }},
	{"both are trusted", v1alpha1.RotatingRenewable, func(t *testing.T, i *installation) { i.settle(t) }},
	{"all is renewed", v1alpha1.RotatingRenewed, func(t *testing.T, i *installation) {
		for _, object := range i.everything(t) {
			if secret, ok := object.(*corev1.Secret); ok && strings.HasSuffix(secret.Annotations["cert-manager.io/issuer-name"], "-ca") &&
				secret.Name != "kcp-service-account" && !strings.HasSuffix(secret.Name, "-ca") {
				i.gone(t, secret)
			}
		}
		i.settle(t)
	}},
}

// Carriers bear the trust, or keep those that do. The first of them, who decide whom to trust, are deleted in pairs with each other one. What is no carrier is deleted in one phase.
var (
	deciders = []string{"RootShard kcp", "Secret kcp-client-ca", "Secret kcp-merged-client-ca"}
	carriers = append(deciders, "Secret kcp-server-ca", "Secret kcp-merged-ca-bundle", "StatefulSet kcp-kcp", "Certificate kcp-client-ca", "Secret kcp-ca", "Secret kcp-server", "Secret kcp-service-account",
		"Secret kcp-service-account-keys", "Secret kubeconfig-cert-admin")
)

// Whatever is deleted, one object or two, and however far a rotation is: all trust each other again without help, no condition
// says so before they do, and the rotation goes on from where it was.
func TestNoDeletionDuringARotationEndsTheTrust(t *testing.T) {
	i := newInstallation(external(), admin())
	for _, phase := range phases {
		phase.begin(t, i)
		before := i.everything(t)
		t.Run(phase.name, func(t *testing.T) {
			t.Parallel()
			for n, first := range before {
				if slices.Contains(carriers, called(first)) || phase.name == "both are trusted" {
					faults(t, phase.name, phase.rotating, before, first)
				}
				for _, second := range before[n+1:] {
					one, two := called(first), called(second)
					if slices.Contains(deciders, one) && slices.Contains(carriers, two) || slices.Contains(deciders, two) && slices.Contains(carriers, one) {
						faults(t, phase.name, "", before, first, second)
					}
				}
			}
		})
	}
}

func called(object client.Object) string {
	kind := fmt.Sprintf("%T", object)
	return kind[strings.LastIndexByte(kind, '.')+1:] + " " + object.GetName()
}

func faults(t *testing.T, when, rotating string, before []client.Object, deleted ...client.Object) {
	t.Helper()
	var names []string
	for _, object := range deleted {
		names = append(names, called(object))
	}
	t.Run(strings.Join(names, " and "), func(t *testing.T) {
		var copies []client.Object
		for _, object := range before {
			object = object.DeepCopyObject().(client.Object)
			object.SetResourceVersion("")
			copies = append(copies, object)
		}
		i := newInstallation(copies...)
		for _, object := range deleted {
			i.gone(t, object)
		}
		if !slices.Contains(names, "RootShard kcp") {
			i.look(t)
		}
		i.settle(t)
		if wrong := i.distrust(t); len(wrong) > 0 {
			t.Errorf("%s: in the end, %s", when, strings.Join(wrong, ", "))
		}
		rs := operatortest.Read(t, i.Cluster, "kcp", &v1alpha1.RootShard{})
		expect(t, rs, "Ready", metav1.ConditionTrue, "", "")
		if k := operatortest.Read(t, i.Cluster, "admin", &v1alpha1.Kubeconfig{}); !meta.IsStatusConditionTrue(k.Status.Conditions, "Ready") {
			t.Errorf("the Kubeconfig says %+v", k.Status.Conditions)
		}
		if rotating == v1alpha1.RotatingRenewable || rotating == v1alpha1.RotatingRenewed {
			if strings.HasSuffix(names[0], "-ca") { // another rotation begins
				rotating = ""
			}
			expect(t, rs, "Rotating", metav1.ConditionTrue, rotating, "")
		}
	})
}
