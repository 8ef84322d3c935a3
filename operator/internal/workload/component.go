// Package workload builds the objects that run a component of kcp. A shard, a proxy and a cache differ in what they put into
// Component only.
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
	// Port that every component serves HTTPS on.
	Port = 6443
	// portName of it, in pods and Services.
	portName = "https"
	// InputAnnotation prefixes hashes of what a component reads once, when it starts.
	InputAnnotation = "input.operator.kcp.io/"
)

// Component is what runs.
type Component struct {
	// Name of its objects, and their namespace.
	Name, Namespace string
	// Instance is the name of the object that asks for it, Kind what it is in the word for labels, such as rootshard.
	Instance, Kind string
	// Image, PullSecrets, Command and Args of the container, whose name is Container.
	Image       string
	PullSecrets []v1alpha1.LocalReference
	Container   string
	Command     []string
	Args        []string
	// Replicas is nil if the number is left to an autoscaler.
	Replicas  *int32
	Resources corev1.ResourceRequirements
	// Files that the container reads.
	Files []Files
	// Scratch directories that it writes.
	Scratch []string
	// Inputs are hashes, by names, of what the component reads only when it starts: pods are replaced when one changes.
	Inputs map[string]string
	// What users want to be different. All of it may be empty.
	Extra         v1alpha1.ExtraSpec
	Template      *v1alpha1.DeploymentTemplate
	Service       *v1alpha1.ServiceTemplate
	PDB           *v1alpha1.PDBSpec
	NetworkPolicy *v1alpha1.NetworkPolicySpec
	Monitoring    *v1alpha1.MonitoringSpec
	// Metrics says how a Prometheus gets at the metrics.
	Metrics Metrics
}

// Files are a Secret or a ConfigMap in a directory.
type Files struct {
	// Name of the volume.
	Name              string
	Secret, ConfigMap string
	// Keys are what is mounted. Empty: all.
	Keys []string
	Path string
}

// Metrics says how a Prometheus gets at the metrics of a component.
type Metrics struct {
	Path string
	// ServerName is what the certificates of the pods are made out to.
	ServerName string
	// CASecret has in tls.crt who vouches for them. ClientSecret has what Prometheus proves itself with.
	CASecret, ClientSecret string
}

// Labels of every object of the component.
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

// metaWith adds what users want to be in the metadata. What the operator sets wins.
func (c *Component) metaWith(extra *v1alpha1.Metadata) metav1.ObjectMeta {
	m := c.meta()
	if extra != nil {
		m.Labels, m.Annotations = pki.Overlay(extra.Labels, m.Labels), pki.Overlay(extra.Annotations, nil)
	}
	return m
}

// Resources lays what a user asks for over defaults, resource by resource.
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
