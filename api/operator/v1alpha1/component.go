package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Duration is a length of time, as Go writes it.
//
// +kubebuilder:validation:Type=string
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$')",message="a duration is written like 8760h or 1h30m"
type Duration struct {
	metav1.Duration `json:",inline"`
}

// LocalReference names an object of the same namespace.
type LocalReference struct {
	// Name of the object.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// LocalKeyReference names a key in a ConfigMap or Secret of the same namespace.
type LocalKeyReference struct {
	// Name of the object.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Key in its data.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key"`
}

// ObjectReference names an issuer of certificates, in the words of cert-manager.
type ObjectReference struct {
	// Name of the issuer.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Kind of the issuer. Unset: Issuer.
	//
	// +optional
	Kind string `json:"kind,omitempty"`
	// Group of the issuer. Unset: cert-manager.io.
	//
	// +optional
	Group string `json:"group,omitempty"`
}

// ImageSpec says which image a container runs.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.tag) && has(self.digest))",message="an image has a tag or a digest, not both: the digest alone decides"
type ImageSpec struct {
	// Repository of the image. Unset: that of the operator's own release.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9][A-Za-z0-9._:/-]*)?$') && !self.contains('://')",message="a repository is written like registry.example.com/kcp, without a scheme"
	Repository string `json:"repository,omitempty"`
	// Tag of the image. Unset: the version that belongs to the operator.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9_][A-Za-z0-9._@:-]*)?$')",message="a tag has letters, digits, dots, dashes and underscores"
	Tag string `json:"tag,omitempty"`
	// Digest of the image, in place of a tag.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.matches('^sha256:[0-9a-f]{64}$')",message="a digest is sha256: and 64 hexadecimal digits"
	// +kubebuilder:validation:MaxLength=71
	Digest string `json:"digest,omitempty"`
	// ImagePullSecrets are for registries that ask who one is.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	ImagePullSecrets []LocalReference `json:"imagePullSecrets,omitempty"`
}

// ExternalConfig is how clients outside of the cluster reach kcp.
type ExternalConfig struct {
	// Hostname that clients use.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.size() == 0 || isIP(self) || self.matches('^[A-Za-z0-9]([-.A-Za-z0-9]*[A-Za-z0-9])?$')",message="a hostname has no scheme, no port and no path: write kcp.example.com, not https://kcp.example.com:443/"
	Hostname string `json:"hostname"`
	// Port that clients use.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port uint32 `json:"port"`
	// PrivateHostname is used in place of Hostname for what kcp's own components call from inside of the network.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.size() == 0 || isIP(self) || self.matches('^[A-Za-z0-9]([-.A-Za-z0-9]*[A-Za-z0-9])?$')",message="a hostname has no scheme, no port and no path: write kcp.example.com, not https://kcp.example.com:443/"
	PrivateHostname string `json:"privateHostname,omitempty"`
	// PrivatePort belongs to PrivateHostname. Unset: Port.
	//
	// +optional
	// +kubebuilder:validation:Maximum=65535
	PrivatePort uint32 `json:"privatePort,omitempty"`
}

// LoggingSpec says how much is logged.
type LoggingSpec struct {
	// Level of verbosity. 0 or unset: the component's own default.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	Level int `json:"level,omitempty"`
}

// Metadata is added to that of an object. What the operator itself sets wins.
type Metadata struct {
	// Annotations to add.
	//
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
	// Labels to add.
	//
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
}

// ServiceTemplate changes a Service that the operator makes.
type ServiceTemplate struct {
	// Metadata to add to the Service.
	//
	// +optional
	Metadata *Metadata `json:"metadata,omitempty"`
	// Spec of the Service.
	//
	// +optional
	Spec *ServiceSpecTemplate `json:"spec,omitempty"`
}

// ServiceSpecTemplate is what can be said of a Service.
type ServiceSpecTemplate struct {
	// Type of the Service. Unset: ClusterIP.
	//
	// +optional
	// +kubebuilder:validation:Enum=ClusterIP;NodePort;LoadBalancer
	Type corev1.ServiceType `json:"type,omitempty"`
	// ClusterIP is an address of one's own choice.
	//
	// +optional
	ClusterIP string `json:"clusterIP,omitempty"`
}

// DeploymentTemplate changes the workload that the operator makes, whatever its kind is.
type DeploymentTemplate struct {
	// Metadata to add to the workload.
	//
	// +optional
	Metadata *Metadata `json:"metadata,omitempty"`
	// Spec of the workload.
	//
	// +optional
	Spec *DeploymentSpecTemplate `json:"spec,omitempty"`
}

// DeploymentSpecTemplate is what can be said of a workload.
type DeploymentSpecTemplate struct {
	// Template of the pods.
	//
	// +optional
	Template *PodTemplateSpec `json:"template,omitempty"`
}

// PodTemplateSpec changes the pods that the operator makes.
type PodTemplateSpec struct {
	// Metadata to add to the pods.
	//
	// +optional
	Metadata *Metadata `json:"metadata,omitempty"`
	// Spec is merged into that of the pods as kubectl patch does it: lists of things with names, containers for one, are
	// merged by name, and what is not written here stays as the operator makes it. Any field of a pod's spec can be given;
	// the operator reports those that do not exist in the condition Stalled.
	//
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Spec *runtime.RawExtension `json:"spec,omitempty"`
}

// PDBSpec is about the PodDisruptionBudget of a workload.
type PDBSpec struct {
	// Enabled says whether there is one. Unset: if the workload has more than one pod.
	//
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
}

// MonitoringSpec is about who reads the metrics of a workload.
type MonitoringSpec struct {
	// ServiceMonitor for the operator of Prometheus. Unset: none is made.
	//
	// +optional
	ServiceMonitor *ServiceMonitorSpec `json:"serviceMonitor,omitempty"`
}

// ServiceMonitorSpec is about the ServiceMonitor of a workload.
type ServiceMonitorSpec struct {
	// Enabled says whether there is one.
	Enabled bool `json:"enabled"`
	// Labels to add to it, by which a Prometheus selects it.
	//
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// Interval between two scrapes. Unset: that of Prometheus.
	//
	// +optional
	// +kubebuilder:validation:Pattern:=`^([0-9]+(ms|[smhdwy]))+$`
	Interval string `json:"interval,omitempty"`
}

// NetworkPolicySpec is about the NetworkPolicy of a workload.
type NetworkPolicySpec struct {
	// Enabled says whether there is one, which lets in what the workload serves and nothing else.
	Enabled bool `json:"enabled"`
}
