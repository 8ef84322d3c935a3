package rootshard_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
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
	"github.com/kcplane/kcp/operator/internal/component"
	"github.com/kcplane/kcp/operator/internal/kcpaccess"
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
	made    int    // how often the RootShard was created
	rolled  string // the template of the running pods
}

func newInstallation(objects ...client.Object) *installation {
	c := operatortest.New(objects...)
	bind := func(context.Context, kcpaccess.Credentials, string, kcpaccess.Roles) error { return nil }
	return &installation{Cluster: c, shard: &rootshard.Reconciler{Environment: component.Environment{Client: c, Live: c, Recorder: c.Events, DefaultImage: image}},
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

// look reconciles both objects, and checks that their conditions are correct.
func (i *installation) look(t *testing.T) {
	t.Helper()
	i.Reconcile(t, i.shard, "kcp")
	i.Reconcile(t, i.clients, "admin")
	rs := operatortest.Read(t, i.Cluster, "kcp", &v1alpha1.RootShard{})
	is := func(name string) bool { return meta.IsStatusConditionTrue(rs.Status.Conditions, name) }
	shard, admin := i.distrust(t)
	if is("CertificatesReady") && len(shard) > 0 {
		t.Errorf("CertificatesReady is True, though %s", strings.Join(shard, ", "))
	}
	if why := i.unavailable(t); is("Available") != (why == "") {
		t.Errorf("Available is %v, and %q", is("Available"), why)
	}
	for _, name := range []string{"CertificatesReady", "Available", "EtcdReady", "ReferenceValid"} {
		if is("Ready") && !is(name) {
			t.Errorf("Ready is True, and %s is not", name)
		}
	}
	for _, name := range []string{"EtcdReady", "ReferenceValid"} {
		if !is(name) {
			t.Errorf("%s is not True, and nothing that it is about was touched", name)
		}
	}
	k := &v1alpha1.Kubeconfig{}
	if i.object(t, k, "admin") && meta.IsStatusConditionTrue(k.Status.Conditions, "Ready") && len(admin) > 0 {
		t.Errorf("the Kubeconfig is Ready, though %s", strings.Join(admin, ", "))
	}
}

// unavailable returns why clients cannot use kcp, or an empty string.
func (i *installation) unavailable(t *testing.T) string {
	t.Helper()
	set := &appsv1.StatefulSet{}
	if !i.object(t, set, "kcp-kcp") || set.Status.ReadyReplicas == 0 {
		return "no pod is ready"
	}
	if !i.object(t, &corev1.Service{}, "kcp-kcp") {
		return "there is no Service"
	}
	server, bundle := &corev1.Secret{}, &corev1.Secret{}
	if !i.object(t, server, "kcp-server") || !i.object(t, bundle, "kcp-merged-ca-bundle") {
		return "" // pods still have the mounted files
	}
	if err := operatortest.Verify(server.Data["tls.crt"], bundle.Data["tls.crt"]); err != nil {
		return "clients refuse the server: " + err.Error()
	}
	return ""
}

// round simulates one round of everything that acts: the garbage collector, cert-manager, a user who applies the RootShard again, the
// operator, and the pods.
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
	t.Error("there are writes in each of 20 rounds")
}

func (i *installation) gone(t *testing.T, object client.Object) {
	t.Helper()
	if err := client.IgnoreNotFound(i.Delete(t.Context(), object)); err != nil {
		t.Fatal(err)
	}
}

// everything lists all objects that the operator uses.
func (i *installation) everything(t *testing.T) []client.Object {
	t.Helper()
	return append(list(t, i.Cluster), list(t, i.Cluster, &v1alpha1.RootShardList{}, &v1alpha1.KubeconfigList{})...)
}

// distrust verifies the certificate of each client and server with the CAs of its peer, and returns those that are refused or missing: of
// the RootShard, and of the Kubeconfig.
func (i *installation) distrust(t *testing.T) (shard, admin []string) {
	t.Helper()
	data := func(name, key string) []byte {
		secret := &corev1.Secret{}
		i.object(t, secret, name)
		return secret.Data[key]
	}
	verify := func(who, by string, certificate, authorities []byte) []string {
		if err := operatortest.Verify(certificate, authorities); err != nil {
			return []string{fmt.Sprintf("%s refuses %s: %v", by, who, err)}
		}
		return nil
	}
	server, clients := data("kcp-server", "tls.crt"), data("kcp-merged-client-ca", "tls.crt")
	both := func(name string) []string {
		config, err := clientcmd.RESTConfigFromKubeConfig(data(name, kcpaccess.Key))
		if err != nil {
			return []string{fmt.Sprintf("there is no kubeconfig in %s: %v", name, err)}
		}
		return append(verify("the server", name, server, config.CAData), verify(name, "the server", config.CertData, clients)...)
	}
	shard = verify("the server", "the operator", server, data("kcp-merged-ca-bundle", "tls.crt"))
	shard = slices.Concat(shard, both("kcp-logical-cluster-admin-kubeconfig"), both("kcp-external-logical-cluster-admin-kubeconfig"),
		verify("the operator", "the server", data("kcp-kcp-operator", "tls.crt"), clients))
	if issued, _ := pki.Trusted(data("kcp-service-account", "tls.crt")); len(issued) == 0 || !bytes.Contains(data("kcp-service-account-keys", "tls.crt"), issued) {
		shard = append(shard, "the server refuses tokens of the key of service accounts")
	}
	if admin = both("admin-kubeconfig"); len(server) == 0 { // pods still have the mounted files
		admin = slices.DeleteFunc(admin, func(wrong string) bool { return strings.HasPrefix(wrong, "admin-kubeconfig refuses the server") })
	}
	return shard, admin
}

func admin() *v1alpha1.Kubeconfig {
	k := &v1alpha1.Kubeconfig{ObjectMeta: metav1.ObjectMeta{Namespace: operatortest.Namespace, Name: "admin", UID: "uid-admin", Generation: 1}}
	k.Spec.Target.RootShardRef = &v1alpha1.LocalReference{Name: "kcp"}
	k.Spec.Username, k.Spec.Validity, k.Spec.SecretRef.Name = "admin", v1alpha1.Duration{Duration: metav1.Duration{Duration: time.Hour}}, "admin-kubeconfig"
	return k
}

// phases of a rotation. Each one starts in the final state of the one before.
var phases = []struct {
	name     string
	rotating string // the reason, as long as nothing else happens
	begin    func(*testing.T, *installation)
}{
	{"before", "AsExpected", func(t *testing.T, i *installation) { i.settle(t) }},
	{"CAs have new keys", "AsExpected", func(t *testing.T, i *installation) {
		for _, name := range []string{"kcp-server-ca", "kcp-client-ca", "kcp-service-account"} {
			i.gone(t, operatortest.Read(t, i.Cluster, name, &corev1.Secret{}))
		}
		i.Certify(t)
	}},
	{"both CAs are being distributed", v1alpha1.RotatingDistributing, func(t *testing.T, i *installation) { i.look(t) }},
	{"both CAs are trusted", v1alpha1.RotatingRenewable, func(t *testing.T, i *installation) { i.settle(t) }},
	{"all certificates are renewed", v1alpha1.RotatingRenewed, func(t *testing.T, i *installation) {
		for _, object := range i.everything(t) {
			if secret, ok := object.(*corev1.Secret); ok && strings.HasSuffix(secret.Annotations["cert-manager.io/issuer-name"], "-ca") &&
				secret.Name != "kcp-service-account" && !strings.HasSuffix(secret.Name, "-ca") {
				i.gone(t, secret)
			}
		}
		i.settle(t)
	}},
}

// Carriers contain trusted CAs and keys, or own such objects. Each of them is deleted in every phase. The first ones, which decide what is
// trusted, are also deleted in pairs with each other carrier. Other objects are deleted in one phase. With KCP_FAULTS=all, every object is
// deleted in every phase, alone and with each other one.
var (
	deciders = []string{"RootShard kcp", "Secret kcp-client-ca", "Secret kcp-merged-client-ca"}
	carriers = append(deciders, "Secret kcp-server-ca", "Secret kcp-merged-ca-bundle", "StatefulSet kcp-kcp", "Certificate kcp-client-ca", "Secret kcp-ca", "Secret kcp-server", "Secret kcp-service-account",
		"Secret kcp-service-account-keys", "Secret kubeconfig-cert-admin")
)

// After the deletion of any one or two objects in any phase of a rotation, all clients and servers trust each other again without help, no
// condition is True before that, and the rotation continues.
func TestNoDeletionDuringARotationEndsTheTrust(t *testing.T) {
	i, all := newInstallation(external(), admin()), os.Getenv(operatortest.AllFaults) == "all"
	for _, phase := range phases {
		phase.begin(t, i)
		before := i.everything(t)
		t.Run(phase.name, func(t *testing.T) {
			t.Parallel()
			for n, first := range before {
				if all || slices.Contains(carriers, called(first)) || phase.name == "both CAs are trusted" {
					faults(t, phase.name, phase.rotating, before, first)
				}
				for _, second := range before[n+1:] {
					one, two := called(first), called(second)
					if all || slices.Contains(deciders, one) && slices.Contains(carriers, two) || slices.Contains(deciders, two) && slices.Contains(carriers, one) {
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
		if shard, admin := i.distrust(t); len(shard)+len(admin) > 0 {
			t.Errorf("%s: in the end, %s", when, strings.Join(append(shard, admin...), ", "))
		}
		there := map[string]bool{}
		for _, object := range i.everything(t) {
			there[called(object)] = true
		}
		for _, object := range before {
			if !there[called(object)] {
				t.Errorf("%s: in the end, there is no %s", when, called(object))
			}
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
