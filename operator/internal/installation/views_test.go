package installation_test

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
)

// viewsOf returns a VirtualWorkspace for the Shard of a name.
func viewsOf(name, target string) *v1alpha1.VirtualWorkspace {
	v := named(&v1alpha1.VirtualWorkspace{}, name)
	v.Spec.Target.ShardRef = &v1alpha1.LocalReference{Name: target}
	v.Spec.External = v1alpha1.ExternalConfig{Hostname: "views.example.com", Port: 443}
	return v
}

// served returns a Shard whose virtual workspaces a VirtualWorkspace serves.
func served(name, by string) *v1alpha1.Shard {
	s := further(name)
	s.Spec.KCPVirtualWorkspace = &v1alpha1.LocalReference{Name: by}
	return s
}

func TestAVirtualWorkspaceServesThoseOfItsShard(t *testing.T) {
	v, west := viewsOf("views", "west"), served("west", "views")
	w := newWorld(root("kcp"), west, v)
	w.settle(t)
	w.expect(t, v, "Ready", metav1.ConditionTrue, "", "")
	w.expect(t, west, "Ready", metav1.ConditionTrue, "", "")
	for _, flag := range []string{"--run-virtual-workspaces=false", "--shard-virtual-workspace-url=https://views.example.com:443"} {
		if got := w.args(t, "west-shard-kcp"); !strings.Contains(got, flag) {
			t.Errorf("the shard has no flag %s: %s", flag, got)
		}
	}
	got := w.args(t, "views-virtual-workspace")
	for flag, want := range map[string]bool{"virtual-workspaces": true, "--etcd-servers=https://etcd-west:2379": true, "--shard-name=west": true,
		"--run-virtual-workspaces": false, "--enable-leader-election": false} {
		if strings.Contains(got, flag) != want {
			t.Errorf("%s: got %t in %s", flag, !want, got)
		}
	}
	if v.Status.URL != "https://views.example.com:443" || v.Status.Pods != "2/2" {
		t.Errorf("status: %+v", v.Status)
	}
	w.WritesNothing(t, func() { w.reconcile(t) })
}

func TestAVirtualWorkspaceFollowsItsShard(t *testing.T) {
	v := viewsOf("views", "west")
	w := newWorld(root("kcp"), served("west", "views"), v)
	w.settle(t)
	west := operatortest.Read(t, w.Cluster, "west", &v1alpha1.Shard{})
	west.Spec.Image, west.Spec.ExtraArgs = &v1alpha1.ImageSpec{Tag: "v1.1.0"}, []string{"--new-flag=true"}
	west.Generation++
	w.MustUpdate(t, west)
	pods := operatortest.Read(t, w.Cluster, "west-shard-kcp", &appsv1.StatefulSet{})
	pods.Status.UpdatedReplicas = 0
	w.MustUpdateStatus(t, pods)
	w.reconcile(t)
	if got := w.args(t, "views-virtual-workspace"); strings.Contains(got, "--new-flag") {
		t.Errorf("the shard has not become ready, and the VirtualWorkspace has the command line %s", got)
	}
	w.expect(t, v, "ReferenceValid", metav1.ConditionFalse, "ShardNotReady", "StatefulSet west-shard-kcp")
	w.Roll(t, "west-shard-kcp")
	w.reconcile(t)
	w.reconcile(t)
	set := operatortest.Read(t, w.Cluster, "views-virtual-workspace", &appsv1.StatefulSet{})
	if c := set.Spec.Template.Spec.Containers[0]; c.Image != "registry.example.com/kcp:v1.1.0" || !slices.Contains(c.Args, "--new-flag=true") {
		t.Errorf("the VirtualWorkspace has the image %s and the command line %v", c.Image, c.Args)
	}
}

func TestBadVirtualWorkspacesAreReported(t *testing.T) {
	program, withKubeconfig, monitored := viewsOf("views", "west"), viewsOf("views", "west"), viewsOf("views", "west")
	program.Spec.Command = []string{"/things"}
	withKubeconfig.Spec.KubeconfigSecretRef = &v1alpha1.LocalReference{Name: "things"}
	monitored.Spec.Monitoring = &v1alpha1.MonitoringSpec{ServiceMonitor: &v1alpha1.ServiceMonitorSpec{Enabled: true}}
	runs := program.DeepCopy()
	runs.Spec.KubeconfigSecretRef = &v1alpha1.LocalReference{Name: "things"}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "things"}, Data: map[string][]byte{"kubeconfig": []byte("{}")}}
	for _, test := range []struct {
		name            string
		object          client.Object
		others          []client.Object
		reason, message string // no reason: the input is good
	}{
		{"without its Shard", viewsOf("views", "east"), nil, "ReferenceNotFound", "spec.target.shardRef: there is no Shard east: create it"},
		{"a program without rights", program, []client.Object{further("west")}, "KubeconfigMissing", "spec.kubeconfigSecretRef: another program"},
		{"a program with rights", runs, []client.Object{further("west"), secret}, "", ""},
		{"a kubeconfig for kcp", withKubeconfig, []client.Object{further("west"), secret}, "NotSupported", "remove the field, or set spec.command"},
		{"metrics without a user", monitored, []client.Object{further("west")}, "NotSupported", "spec.monitoring.serviceMonitor"},
		{"a shard without its VirtualWorkspace", served("west", "views"), nil, "ReferenceNotFound",
			"spec.kcpVirtualWorkspace: there is no VirtualWorkspace views: create it"},
		{"a shard with that of another shard", served("west", "views"), []client.Object{further("east"), viewsOf("views", "east")}, "OtherTarget",
			"VirtualWorkspace views serves another shard"},
		{"a shard with another program", served("west", "views"), []client.Object{runs.DeepCopy(), secret.DeepCopy()}, "OtherProgram",
			"runs another program"},
		{"virtual workspaces that no shard names", viewsOf("views", "west"), []client.Object{further("west")}, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(append(test.others, root("kcp"), test.object)...)
			w.settle(t)
			if test.reason == "" {
				w.expect(t, test.object, "Ready", metav1.ConditionTrue, "", "")
				return
			}
			w.expect(t, test.object, "ReferenceValid", metav1.ConditionFalse, test.reason, test.message)
		})
	}
}

// No server receives a token of a service account that it does not accept.
func TestAVirtualWorkspaceAcceptsANewServiceAccountKeyBeforeItSigns(t *testing.T) {
	w := newWorld(root("kcp"), served("west", "views"), viewsOf("views", "west"))
	w.settle(t)
	const name = "west-shard-service-account"
	signs := func() string {
		return string(operatortest.Read(t, w.Cluster, name+"-keys", &corev1.Secret{}).Data["tls.key"])
	}
	former := signs()
	issued := operatortest.Read(t, w.Cluster, name, &corev1.Secret{})
	issued.Data["tls.crt"], issued.Data["tls.key"] = operatortest.PEM("new"), []byte("key of new")
	w.MustUpdate(t, issued)
	w.reconcile(t)
	pods := operatortest.Read(t, w.Cluster, "views-virtual-workspace", &appsv1.StatefulSet{})
	pods.Status.UpdatedReplicas = 1
	w.MustUpdateStatus(t, pods)
	w.reconcile(t)
	if got := signs(); got != former {
		t.Errorf("a pod of the VirtualWorkspace does not accept the new key, and the shard signs with %s", got)
	}
	w.Roll(t, "views-virtual-workspace")
	w.reconcile(t)
	if got := signs(); got != "key of new" {
		t.Errorf("all pods accept the new key, and the shard signs with %s", got)
	}
}
