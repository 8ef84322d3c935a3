// Package workload builds the objects that run a component of kcp. A shard, a proxy and a cache differ only in their values of Component.
package workload

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/apply"
	"github.com/kcplane/kcp/operator/internal/pki"
)

const (
	// Port on which every component serves HTTPS.
	Port = 6443
	// PortName is its name in pods and Services.
	PortName = "https"
	// InputAnnotation is the prefix of annotations with hashes of data that a component reads only when it starts.
	InputAnnotation = "input.operator.kcp.io/"
)

// Component is the input of the builders.
type Component struct {
	// Name of its objects, and their namespace.
	Name, Namespace string
	// Instance is the name of the owning object, and Kind its kind as in labels, such as rootshard.
	Instance, Kind string
	// Image, PullSecrets, Command and Args of the container, whose name is Container.
	Image       string
	PullSecrets []v1alpha1.LocalReference
	Container   string
	Command     []string
	Args        []string
	// Replicas is nil to leave the number to an autoscaler.
	Replicas  *int32
	Resources corev1.ResourceRequirements
	// ServicePort is the port of the Service. Zero: Port.
	ServicePort int32
	// Files that the container reads.
	Files []Files
	// Scratch directories that it writes.
	Scratch []string
	// Inputs are hashes, by names, of data that the component reads only when it starts: pods are replaced when one changes.
	Inputs map[string]string
	// InitContainers run before the container. Their mounts name volumes of Files and Extra.
	InitContainers []corev1.Container
	// Customizations of users. All may be empty.
	Extra         v1alpha1.ExtraSpec
	Template      *v1alpha1.DeploymentTemplate
	Service       *v1alpha1.ServiceTemplate
	PDB           *v1alpha1.PDBSpec
	NetworkPolicy *v1alpha1.NetworkPolicySpec
	Monitoring    *v1alpha1.MonitoringSpec
	Autoscaling   *v1alpha1.AutoscalingSpec
	// Metrics configures the ServiceMonitor.
	Metrics Metrics
}

// Files is a Secret or a ConfigMap that is mounted in a directory.
type Files struct {
	// Name of the volume.
	Name              string
	Secret, ConfigMap string
	// Keys are the mounted keys. Empty: all.
	Keys []string
	Path string
}

// Metrics configures how a Prometheus reads the metrics of a component.
type Metrics struct {
	Path string
	// ServerName is the name in the certificates of the pods.
	ServerName string
	// CASecret has the CA of these certificates in tls.crt. ClientSecret has the client certificate for Prometheus.
	CASecret, ClientSecret string
}

// Labels returns the labels of every object of the component.
func (c *Component) Labels() map[string]string {
	return map[string]string{
		apply.ManagedByLabel:          apply.FieldOwner,
		"app.kubernetes.io/name":      "kcp",
		"app.kubernetes.io/instance":  c.Instance,
		"app.kubernetes.io/component": c.Kind,
	}
}

func (c *Component) meta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name, Labels: c.Labels()}
}

// metaWith adds metadata of users. Values of the operator take precedence.
func (c *Component) metaWith(extra *v1alpha1.Metadata) metav1.ObjectMeta {
	m := c.meta()
	if extra != nil {
		m.Labels, m.Annotations = pki.Overlay(extra.Labels, m.Labels), pki.Overlay(extra.Annotations, nil)
	}
	return m
}

// Customized adds the customizations in a spec to a component.
func Customized(c *Component, spec *v1alpha1.ComponentSpec) *Component {
	if spec.Image != nil {
		c.PullSecrets = spec.Image.ImagePullSecrets
	}
	c.Extra, c.Template, c.Service = spec.ExtraSpec, spec.DeploymentTemplate, spec.ServiceTemplate
	c.PDB, c.NetworkPolicy, c.Monitoring, c.Autoscaling = spec.PDB, spec.NetworkPolicy, spec.Monitoring, spec.Autoscaling
	return c
}

// Resources overrides defaults with the values of a user, for each resource.
func Resources(defaults corev1.ResourceRequirements, asked *corev1.ResourceRequirements) corev1.ResourceRequirements {
	result := *defaults.DeepCopy()
	if asked == nil {
		return result
	}
	overlay := func(under *corev1.ResourceList, over corev1.ResourceList) {
		if *under == nil && len(over) > 0 {
			*under = corev1.ResourceList{}
		}
		maps.Copy(*under, over)
	}
	overlay(&result.Requests, asked.Requests)
	overlay(&result.Limits, asked.Limits)
	result.Claims = slices.Clone(asked.Claims)
	return result
}
