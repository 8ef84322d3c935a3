package virtualworkspace

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
	"github.com/kcplane/kcp/operator/internal/settings"
	"github.com/kcplane/kcp/operator/internal/shard"
	"github.com/kcplane/kcp/operator/internal/workload"
)

// target returns the shard of the VirtualWorkspaces, and the root shard of its installation.
func target() (west, root *shard.Shard) {
	rs := &v1alpha1.RootShard{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "kcp"}}
	rs.Spec.External = v1alpha1.ExternalConfig{Hostname: "kcp.example.com", Port: 443}
	sh := &v1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "west"}}
	sh.Spec.ClusterDomain = "example.local"
	sh.Spec.Logging = &v1alpha1.LoggingSpec{Level: 2}
	sh.Spec.ExtraArgs = []string{"--encryption-provider-config=/etc/encryption/config.yaml"}
	sh.Spec.ExtraVolumes = []corev1.Volume{{Name: "encryption", VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: "encryption"}}}}
	sh.Spec.ExtraVolumeMounts = []corev1.VolumeMount{{Name: "encryption", MountPath: "/etc/encryption"}}
	west, root = shard.Further(sh, rs), shard.Root(rs)
	west.Image, west.ViewsURL = "registry.example.com/kcp:v1", "https://views.example.com:443"
	west.Etcd = settings.Etcd{Endpoints: []string{"https://etcd:2379"}, Secret: "west-etcd-client", Trust: "west-etcd-trust", TrustKey: "ca.crt"}
	west.Cache = &shard.Cache{Issuer: "cache-cache-server-ca", Bundle: "cache-cache-server-merged-ca-bundle", URL: "https://cache:6443"}
	west.Inputs = map[string]string{shard.ServiceAccountInput: "5e", shard.ServerTrustInput: "7d"}
	return west, root
}

func object(name string) *v1alpha1.VirtualWorkspace {
	v := &v1alpha1.VirtualWorkspace{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}}
	v.Spec.Target.ShardRef = &v1alpha1.LocalReference{Name: "west"}
	v.Spec.External = v1alpha1.ExternalConfig{Hostname: "views.example.com", Port: 443, PrivateHostname: "10.1.2.3"}
	return v
}

func TestObjectsAreEqualToTheGoldenFiles(t *testing.T) {
	smallest, other := object("views"), object("things")
	smallest.Spec.Logging = &v1alpha1.LoggingSpec{Level: 4}
	other.Spec.Command, other.Spec.ExtraArgs = []string{"/things"}, []string{"--all"}
	other.Spec.KubeconfigSecretRef = &v1alpha1.LocalReference{Name: "things-kubeconfig"}
	settingsVolume := corev1.Volume{Name: "settings", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}}
	other.Spec.ExtraVolumes = []corev1.Volume{settingsVolume}
	other.Spec.InitContainers = []v1alpha1.VirtualWorkspaceInitContainer{{
		Name: "prepare", Image: &v1alpha1.ImageSpec{Repository: "registry.example.com/things", Tag: "v2"}, Command: []string{"/prepare"},
		KubeconfigSecretRef: &v1alpha1.LocalReference{Name: "prepare-kubeconfig"}, ExtraVolumes: []corev1.Volume{settingsVolume},
		ExtraVolumeMounts: []corev1.VolumeMount{{Name: "settings", MountPath: "/etc/settings"}},
	}}
	other.Spec.NetworkPolicy = &v1alpha1.NetworkPolicySpec{Enabled: true}
	for name, o := range map[string]*v1alpha1.VirtualWorkspace{"smallest": smallest, "other-program": other} {
		west, root := target()
		pods, err := workload.StatefulSet(shard.Component(west))
		if err != nil {
			t.Fatal(err)
		}
		v := views{VirtualWorkspace: o, target: west, root: root, set: pods, proxies: root.ProxyBundle()}
		c := v.build(map[string]string{}, "registry.example.com/kcp:v1", new(int32(2)))
		set, err := workload.StatefulSet(c)
		if err != nil {
			t.Fatal(err)
		}
		objects := []client.Object{v.leaf(), workload.Service(c), set}
		if policy, wanted := workload.NetworkPolicy(c); wanted {
			objects = append(objects, policy)
		}
		operatortest.Golden(t, "testdata/"+name+".golden", objects)
	}
}

// Another program has no rights at the shard besides those of its kubeconfig: neither the certificates of the shard nor those for its etcd.
func TestOtherProgramsGetNoKeysOfTheShard(t *testing.T) {
	o := object("things")
	o.Spec.Command, o.Spec.KubeconfigSecretRef = []string{"/things"}, &v1alpha1.LocalReference{Name: "things-kubeconfig"}
	o.Spec.InitContainers = []v1alpha1.VirtualWorkspaceInitContainer{{Name: "prepare"}}
	west, root := target()
	pods, err := workload.StatefulSet(shard.Component(west))
	if err != nil {
		t.Fatal(err)
	}
	pod, err := workload.Pod(views{VirtualWorkspace: o, target: west, root: root, set: pods}.build(map[string]string{}, "things:v1", nil))
	if err != nil {
		t.Fatal(err)
	}
	for _, volume := range pod.Spec.Volumes {
		if volume.Secret != nil && (strings.HasPrefix(volume.Secret.SecretName, "west-") || strings.Contains(volume.Secret.SecretName, "etcd")) {
			t.Errorf("the pods have Secret %s", volume.Secret.SecretName)
		}
	}
	for _, mount := range pod.Spec.InitContainers[0].VolumeMounts {
		if mount.Name == kubeconfigVolume {
			t.Error("the init container has the kubeconfig of the server")
		}
	}
}
