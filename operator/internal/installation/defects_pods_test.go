package installation_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
)

// flags returns the command line of a component, without the program.
func (w *world) flags(t *testing.T, workload string) []string {
	t.Helper()
	return operatortest.Read(t, w.Cluster, workload, &appsv1.StatefulSet{}).Spec.Template.Spec.Containers[0].Args
}

// D3: the file of an OIDC authority has a default name. D14: flags are not quoted, because no shell removes the quotes.
func TestFlagsOfEveryKindAreComplete(t *testing.T) {
	dex := &corev1.Secret{Data: map[string][]byte{"ca.crt": operatortest.PEM("dex")}}
	dex.Name = "dex"
	auth := &v1alpha1.AuthSpec{OIDC: &v1alpha1.OIDCConfiguration{IssuerURL: "https://dex.example.com", ClientID: "kcp",
		CAFileRef: &v1alpha1.OIDCCAFileRef{Name: "dex"}}}
	objects := everyKind()
	for _, object := range objects {
		switch o := object.(type) {
		case *v1alpha1.RootShard:
			o.Spec.Auth = auth
		case *v1alpha1.Shard:
			o.Spec.Auth = auth
		case *v1alpha1.FrontProxy:
			o.Spec.Auth = auth.DeepCopy()
			o.Spec.Auth.DropGroups = []string{"system:masters", "system:kcp:*"}
		}
	}
	w := newWorld(append(objects, dex)...)
	w.settle(t)
	for _, name := range workloads {
		flags := w.flags(t, name)
		for _, flag := range flags {
			if strings.HasSuffix(flag, "/") || strings.HasSuffix(flag, "=") || strings.ContainsAny(flag, `"'`) {
				t.Errorf("%s has the flag %s", name, flag)
			}
		}
		if name != "cache-cache-server" && !slices.Contains(flags, "--oidc-ca-file=/etc/kcp/tls/oidc/ca.crt") {
			t.Errorf("%s has no file of an OIDC authority: %v", name, flags)
		}
	}
	if flags := w.flags(t, "public-front-proxy"); !slices.Contains(flags, "--authentication-drop-groups=system:masters,system:kcp:*") {
		t.Errorf("the front proxy does not drop both groups: %v", flags)
	}
}

// D4: fields that are accepted only for compatibility are reported once. TestTrustDoesNotDependOnCertificatesOfServers is for the same
// field of other kinds, where it has an effect.
func TestTheAuthoritiesInTheSpecOfAVirtualWorkspaceAreReportedAsIgnored(t *testing.T) {
	objects := everyKind()
	views := objects[slices.IndexFunc(objects, func(o client.Object) bool { return o.GetName() == "views" })].(*v1alpha1.VirtualWorkspace)
	views.Spec.CABundleSecretRef = &v1alpha1.LocalReference{Name: "more"}
	w := newWorld(objects...)
	w.settle(t)
	w.reconcile(t)
	reported := 0
	for len(w.Events.Events) > 0 {
		if event := <-w.Events.Events; strings.Contains(event, "FieldsIgnored") && strings.Contains(event, "spec.caBundleSecretRef: the server trusts") {
			reported++
		}
	}
	if reported != 1 {
		t.Errorf("it is reported %d times", reported)
	}
}

// D15: another program gets the flags in the spec, and none of kcp.
func TestAnotherProgramGetsNoFlagsOfKCP(t *testing.T) {
	views := viewsOf("things", "east")
	views.Spec.Command, views.Spec.ExtraArgs = []string{"/things"}, []string{"--all"}
	views.Spec.KubeconfigSecretRef = &v1alpha1.LocalReference{Name: "things"}
	kubeconfig := &corev1.Secret{Data: map[string][]byte{"kubeconfig": []byte("{}")}}
	kubeconfig.Name = "things"
	w := newWorld(append(everyKind(), views, kubeconfig)...)
	w.settle(t)
	for _, flag := range w.flags(t, "things-virtual-workspace") {
		for _, of := range []string{"--shard-", "--cache-", "--root-", "--etcd-", "--logical-cluster", "--service-account"} {
			if strings.HasPrefix(flag, of) {
				t.Errorf("it gets the flag %s", flag)
			}
		}
	}
	if flags := w.flags(t, "things-virtual-workspace"); !slices.Contains(flags, "--all") {
		t.Errorf("it does not get the flag in the spec: %v", flags)
	}
}

// D18: no pod has the keys of another shard, nor those of authorities. A virtual workspace server has those of its own shard.
func TestPodsOfEveryKindHaveNoKeysOfOthers(t *testing.T) {
	w := newWorld(everyKind()...)
	w.settle(t)
	for name, own := range map[string][]string{
		"kcp-kcp": {"kcp-"}, "east-shard-kcp": {"east-shard-"}, "west-shard-kcp": {"west-shard-"}, "public-front-proxy": {"public-front-proxy-"},
		"cache-cache-server": {"cache-cache-server-server"}, "views-virtual-workspace": {"views-virtual-workspace-", "west-shard-"},
	} {
		for _, v := range operatortest.Read(t, w.Cluster, name, &appsv1.StatefulSet{}).Spec.Template.Spec.Volumes {
			if v.Secret == nil {
				continue
			}
			key := len(v.Secret.Items) == 0 || slices.ContainsFunc(v.Secret.Items, func(i corev1.KeyToPath) bool { return i.Key == "tls.key" })
			of := slices.ContainsFunc(own, func(prefix string) bool { return strings.HasPrefix(v.Secret.SecretName, prefix) })
			if key && (!of || strings.HasSuffix(v.Secret.SecretName, "-ca")) {
				t.Errorf("%s has the key in Secret %s", name, v.Secret.SecretName)
			}
		}
	}
}

// D29: a namespace is deleted with everything in it, in any order, also if kcp never answers.
func TestEveryKindIsDeletedWithoutKCP(t *testing.T) {
	for name, order := range map[string]func([]client.Object){"in one order": func([]client.Object) {}, "in the other": slices.Reverse[[]client.Object]} {
		t.Run(name, func(t *testing.T) {
			objects := everyKind()
			w := newWorld(objects...)
			w.registry = &registry{err: errors.New("connection refused")}
			w.settle(t)
			for _, workload := range workloads {
				w.start(t, workload)
			}
			w.reconcile(t)
			order(objects)
			for _, object := range objects {
				if err := w.Delete(t.Context(), object); err != nil {
					t.Fatal(err)
				}
			}
			w.reconcileAll(t)
			for _, object := range objects {
				if err := w.Get(t.Context(), client.ObjectKeyFromObject(object), object); !apierrors.IsNotFound(err) {
					t.Errorf("%T %s remains: %v", object, object.GetName(), err)
				}
			}
		})
	}
}
