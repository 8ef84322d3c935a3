package virtualworkspace

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/component"
	"github.com/kcplane/kcp/operator/internal/installation"
	"github.com/kcplane/kcp/operator/internal/kcpaccess"
	"github.com/kcplane/kcp/operator/internal/pki"
	"github.com/kcplane/kcp/operator/internal/settings"
	"github.com/kcplane/kcp/operator/internal/shard"
	"github.com/kcplane/kcp/operator/internal/workload"
)

const (
	// rootDirectory has the files that the server writes.
	rootDirectory  = "/var/run/kcp"
	tls            = "/etc/kcp/tls/"
	kubeconfigs    = "/etc/kcp/server-kubeconfig"
	initKubeconfig = "/etc/kcp/init-kubeconfig"
	// server is the name of the certificate of the server, and clientCA that of the volume with the CAs of users.
	server   = "server"
	clientCA = "client-ca"
	scratch  = "scratch-"
	// kubeconfigVolume is the volume with the kubeconfig of another program.
	kubeconfigVolume = "kubeconfig"
)

// views is the input of the builders.
type views struct {
	*v1alpha1.VirtualWorkspace
	// target is the shard whose virtual workspaces are served, and root the root shard of its installation.
	target, root *shard.Shard
	// set has the pods of the shard. The server has their command line and their files. Nil: unknown, or another program is the server.
	set *appsv1.StatefulSet
	// proxies is the Secret with the CAs of front proxies.
	proxies string
}

// other reports whether another program than kcp is the server.
func (v views) other() bool { return len(v.Spec.Command) > 0 }

// name returns the name of an object of a VirtualWorkspace.
func (v views) name(part string) string { return v.workload() + "-" + part }

// workload returns the name of the StatefulSet and of the Service.
func (v views) workload() string { return installation.ViewsWorkload(v.Name) }

func (v views) base() *workload.Component { return installation.ViewsComponent(v.VirtualWorkspace) }

// labels returns the labels of certificates and Secrets.
func (v views) labels() map[string]string {
	return pki.Overlay(v.base().Labels(), map[string]string{installation.ViewsLabel: v.Name})
}

// host returns the DNS name of the Service.
func (v views) host() string {
	return v.workload() + "." + v.Namespace + ".svc." + cmp.Or(v.Spec.ClusterDomain, v.target.Spec.ClusterDomain, "cluster.local")
}

// leaf builds the certificate of the server.
func (v views) leaf() client.Object {
	service := v.workload()
	var names, addresses []string
	for _, host := range []string{"localhost", service, service + "." + v.Namespace, service + "." + v.Namespace + ".svc", v.host(),
		v.Spec.External.Hostname, v.Spec.External.PrivateHostname} {
		if net.ParseIP(host) != nil {
			addresses = append(addresses, host)
		} else {
			names = append(names, host)
		}
	}
	return pki.Certificate(pki.Request{Namespace: v.Namespace, Name: v.name(server), Labels: v.labels(), Template: v.template(),
		Issuer: pki.IssuerNamed(v.root.ServerCA()), DNSNames: names, IPAddresses: addresses, Usages: pki.ServerUsages})
}

// template returns the customizations of the certificate of the server, or nil.
func (v views) template() *v1alpha1.CertificateTemplate {
	if template, ok := v.Spec.CertificateTemplates[server]; ok {
		return &template
	}
	return nil
}

// references lists the Secrets and ConfigMaps in the spec.
func references(v *v1alpha1.VirtualWorkspace) []settings.Reference {
	all := slices.Concat(settings.Authorities("clientCABundleRef", v.Spec.ClientCABundleRef), settings.VolumeReferences(v.Spec.ExtraVolumes))
	if ref := v.Spec.KubeconfigSecretRef; ref != nil {
		all = append(all, settings.Reference{Field: "kubeconfigSecretRef", Secret: ref.Name, Keys: []string{kcpaccess.Key},
			Volume: kubeconfigVolume, Path: kubeconfigs})
	}
	for i, init := range v.Spec.InitContainers {
		if ref := init.KubeconfigSecretRef; ref != nil {
			all = append(all, settings.Reference{Field: fmt.Sprintf("initContainers[%d].kubeconfigSecretRef", i), Secret: ref.Name,
				Keys: []string{kcpaccess.Key}})
		}
		all = append(all, settings.VolumeReferences(init.ExtraVolumes)...)
	}
	return all
}

// build builds the input for package workload.
func (v views) build(inputs map[string]string, image string, replicas *int32) *workload.Component {
	c := v.base()
	c.Image, c.Container, c.Replicas, c.Inputs = image, shard.Container, replicas, inputs
	c.Resources = workload.Resources(defaultResources(), v.Spec.Resources)
	c.Files = []workload.Files{
		{Name: server, Secret: v.name(server), Keys: []string{"tls.crt", "tls.key"}, Path: tls + "server"},
		{Name: clientCA, Secret: v.name("merged-client-ca"), Keys: []string{"tls.crt"}, Path: tls + "ca/client"},
	}
	c.Metrics = workload.Metrics{Path: "/metrics", ServerName: v.host(), CASecret: v.root.ServerBundle(),
		ClientSecret: v.target.Leaf("metrics-viewer")}
	c = workload.Customized(c, &v.Spec.ComponentSpec)
	c.Extra.ExtraVolumes, c.Extra.ExtraVolumeMounts = slices.Clone(c.Extra.ExtraVolumes), slices.Clone(c.Extra.ExtraVolumeMounts)
	if v.other() {
		c.Command, c.Args = v.Spec.Command, v.otherArgs()
		c.Files = append(c.Files, workload.Files{Name: "requestheader-client-ca", Secret: v.proxies, Keys: []string{"tls.crt"},
			Path: tls + "ca/requestheader-client"})
		c.Files = append(c.Files, settings.Mounts(references(v.VirtualWorkspace))...)
		c.Scratch = []string{rootDirectory, "/tmp"}
	} else {
		c.Command = []string{"/kcp", "virtual-workspaces"}
		v.likeShard(c)
	}
	v.initContainers(c)
	return c
}

// likeShard adds the command line, the files and the inputs of the pods of the shard. The certificate of the server and the CAs of users
// are those of the VirtualWorkspace, and the arguments of users take precedence.
func (v views) likeShard(c *workload.Component) {
	if v.set == nil {
		return
	}
	pod := v.set.Spec.Template.Spec
	i := slices.IndexFunc(pod.Containers, func(c corev1.Container) bool { return c.Name == shard.Container })
	if i < 0 {
		return
	}
	volumes := map[string]corev1.Volume{}
	for _, volume := range pod.Volumes {
		volumes[volume.Name] = volume
	}
	added := map[string]bool{server: true, clientCA: true}
	for _, mount := range pod.Containers[i].VolumeMounts {
		switch volume, ok := volumes[mount.Name]; {
		case !ok || mount.Name == server || mount.Name == clientCA: // a volume of others is not part of the template
		case strings.HasPrefix(mount.Name, scratch) && volume.EmptyDir != nil:
			c.Scratch = append(c.Scratch, mount.MountPath)
		default:
			if !added[mount.Name] {
				added[mount.Name], c.Extra.ExtraVolumes = true, append(c.Extra.ExtraVolumes, volume)
			}
			c.Extra.ExtraVolumeMounts = append(c.Extra.ExtraVolumeMounts, mount)
		}
	}
	for _, arg := range pod.Containers[i].Args {
		if !slices.ContainsFunc(v.ownFlags(), func(flag string) bool { return strings.HasPrefix(arg, flag) }) {
			c.Args = append(c.Args, arg)
		}
	}
	c.Args = slices.Concat(c.Args, settings.LoggingFlags(v.Spec.Logging), v.Spec.ExtraArgs)
	for key, value := range v.set.Spec.Template.Annotations {
		if input, ok := strings.CutPrefix(key, workload.InputAnnotation); ok && c.Inputs != nil {
			c.Inputs[input] = value
		}
	}
}

// ownFlags are the flags of the shard that the server does not have.
func (v views) ownFlags() []string {
	flags := []string{shard.OwnViewsFlag, "--enable-leader-election="}
	if len(settings.LoggingFlags(v.Spec.Logging)) > 0 {
		flags = append(flags, "-v=")
	}
	return flags
}

// otherArgs returns the command line of another program than kcp.
func (v views) otherArgs() []string {
	return slices.Concat([]string{
		"--bind-address=0.0.0.0",
		fmt.Sprintf("--secure-port=%d", workload.Port),
		"--tls-cert-file=" + tls + "server/tls.crt",
		"--tls-private-key-file=" + tls + "server/tls.key",
		"--client-ca-file=" + tls + "ca/client/tls.crt",
		"--requestheader-client-ca-file=" + tls + "ca/requestheader-client/tls.crt",
		"--requestheader-allowed-names=" + shard.ProxyName,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--kubeconfig=" + kubeconfigs + "/" + kcpaccess.Key,
	}, settings.LoggingFlags(v.Spec.Logging), v.Spec.ExtraArgs)
}

// initContainers adds the init containers. They have the files of the operator, a kubeconfig of their own, and volumes of their own, of
// which the first one with a name counts.
func (v views) initContainers(c *workload.Component) {
	for _, init := range v.Spec.InitContainers {
		container := corev1.Container{
			Name: init.Name, Image: component.Image(init.Image, c.Image), Command: init.Command, Args: init.Args,
			Resources:    workload.Resources(defaultResources(), init.Resources),
			VolumeMounts: slices.Clone(init.ExtraVolumeMounts),
		}
		for _, f := range c.Files {
			if f.Name != kubeconfigVolume { // the rights of the server
				container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: f.Name, MountPath: f.Path, ReadOnly: true})
			}
		}
		if ref := init.KubeconfigSecretRef; ref != nil {
			name := "init-kubeconfig-" + init.Name
			c.Extra.ExtraVolumes = append(c.Extra.ExtraVolumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
				Secret: &corev1.SecretVolumeSource{SecretName: ref.Name, Items: []corev1.KeyToPath{{Key: kcpaccess.Key, Path: kcpaccess.Key}}}}})
			container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: initKubeconfig, ReadOnly: true})
		}
		for _, volume := range init.ExtraVolumes {
			if !slices.ContainsFunc(c.Extra.ExtraVolumes, func(v corev1.Volume) bool { return v.Name == volume.Name }) {
				c.Extra.ExtraVolumes = append(c.Extra.ExtraVolumes, volume)
			}
		}
		c.InitContainers = append(c.InitContainers, container)
	}
}

func defaultResources() corev1.ResourceRequirements {
	list := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	return corev1.ResourceRequirements{Requests: list("100m", "256Mi"), Limits: list("2", "2Gi")}
}
