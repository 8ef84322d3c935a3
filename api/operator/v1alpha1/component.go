package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Duration is a length of time in Go's format.
//
// +kubebuilder:validation:Type=string
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$')",message="must be a duration such as 8760h or 1h30m"
type Duration struct {
	metav1.Duration `json:",inline"`
}

// LocalReference names an object in the same namespace.
type LocalReference struct {
	// Name of the object.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// LocalKeyReference names a key in a ConfigMap or Secret in the same namespace.
type LocalKeyReference struct {
	// Name of the object.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Key in the data of the object.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key"`
}

// ObjectReference names an issuer of cert-manager.
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

// ImageSpec selects the image of a container.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.tag) && has(self.digest))",message="set tag or digest, not both: a digest identifies the image without a tag"
type ImageSpec struct {
	// Repository of the image. Unset: the repository of the operator's release.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9][A-Za-z0-9._:/-]*)?$') && !self.contains('://')",message="must be a repository such as registry.example.com/kcp, without a scheme"
	Repository string `json:"repository,omitempty"`
	// Tag of the image. Unset: the version of the operator's release.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9_][A-Za-z0-9._@:-]*)?$')",message="a tag consists of letters, digits, dots, dashes and underscores"
	Tag string `json:"tag,omitempty"`
	// Digest of the image, instead of a tag.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.matches('^sha256:[0-9a-f]{64}$')",message="a digest is sha256: followed by 64 hexadecimal digits"
	// +kubebuilder:validation:MaxLength=71
	Digest string `json:"digest,omitempty"`
	// ImagePullSecrets are the image pull Secrets of the pods.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	ImagePullSecrets []LocalReference `json:"imagePullSecrets,omitempty"`
}

// ExternalConfig is the address of kcp for clients outside of the cluster.
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
	// PrivateHostname is the hostname that kcp's own components use inside of the network. Unset: Hostname.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.size() == 0 || isIP(self) || self.matches('^[A-Za-z0-9]([-.A-Za-z0-9]*[A-Za-z0-9])?$')",message="a hostname has no scheme, no port and no path: write kcp.example.com, not https://kcp.example.com:443/"
	PrivateHostname string `json:"privateHostname,omitempty"`
	// PrivatePort is the port at PrivateHostname. Unset: Port.
	//
	// +optional
	// +kubebuilder:validation:Maximum=65535
	PrivatePort uint32 `json:"privatePort,omitempty"`
}

// LoggingSpec configures logging.
type LoggingSpec struct {
	// Level of verbosity. 0 or unset: the default of the component.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	Level int `json:"level,omitempty"`
}

// Metadata has labels and annotations to add to an object. Values that the operator sets take precedence.
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

// ServiceTemplate customizes a Service that the operator creates.
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

// ServiceSpecTemplate customizes the spec of a Service.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.loadBalancerClass) || has(self.loadBalancerSourceRanges)) || has(self.type) && self.type == 'LoadBalancer'",message="loadBalancerClass and loadBalancerSourceRanges require type LoadBalancer"
// +kubebuilder:validation:XValidation:rule="!(has(self.nodePort) || has(self.externalTrafficPolicy)) || has(self.type) && self.type != 'ClusterIP'",message="nodePort and externalTrafficPolicy require type NodePort or LoadBalancer"
// +kubebuilder:validation:XValidation:rule="!has(self.allocateLoadBalancerNodePorts) || has(self.type) && self.type == 'LoadBalancer'",message="allocateLoadBalancerNodePorts requires type LoadBalancer"
// +kubebuilder:validation:XValidation:rule="!has(self.healthCheckNodePort) || has(self.type) && self.type == 'LoadBalancer' && has(self.externalTrafficPolicy) && self.externalTrafficPolicy == 'Local'",message="healthCheckNodePort requires type LoadBalancer and externalTrafficPolicy Local"
type ServiceSpecTemplate struct {
	// Type of the Service. Unset: ClusterIP.
	//
	// +optional
	// +kubebuilder:validation:Enum=ClusterIP;NodePort;LoadBalancer
	Type corev1.ServiceType `json:"type,omitempty"`
	// ClusterIP is the cluster IP of the Service. Unset: assigned by Kubernetes.
	//
	// +optional
	ClusterIP string `json:"clusterIP,omitempty"`
	// LoadBalancerClass selects the implementation of the load balancer. Unset: the default of the cluster.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=317
	LoadBalancerClass string `json:"loadBalancerClass,omitempty"`
	// LoadBalancerSourceRanges are the networks, such as 10.0.0.0/8, whose clients the load balancer accepts. Unset: all.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	LoadBalancerSourceRanges []ServiceSourceRange `json:"loadBalancerSourceRanges,omitempty"`
	// ExternalTrafficPolicy says whether nodes send connections from outside of the cluster to pods of all nodes (Cluster), or only to their
	// own (Local), which keeps the addresses of clients. Unset: Cluster.
	//
	// +optional
	// +kubebuilder:validation:Enum=Cluster;Local
	ExternalTrafficPolicy corev1.ServiceExternalTrafficPolicy `json:"externalTrafficPolicy,omitempty"`
	// NodePort is the port on nodes. Unset: assigned by Kubernetes.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	NodePort int32 `json:"nodePort,omitempty"`
	// HealthCheckNodePort is the port on nodes with which the load balancer finds nodes that have pods, with externalTrafficPolicy Local. It
	// cannot change. Unset: assigned by Kubernetes.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	HealthCheckNodePort int32 `json:"healthCheckNodePort,omitempty"`
	// AllocateLoadBalancerNodePorts is false for a load balancer that sends connections to pods, and needs no ports on nodes. Unset: true.
	//
	// +optional
	AllocateLoadBalancerNodePorts *bool `json:"allocateLoadBalancerNodePorts,omitempty"`
	// IPFamilyPolicy says whether the Service has addresses of one or both families. Unset: SingleStack.
	//
	// +optional
	// +kubebuilder:validation:Enum=SingleStack;PreferDualStack;RequireDualStack
	IPFamilyPolicy *corev1.IPFamilyPolicy `json:"ipFamilyPolicy,omitempty"`
	// IPFamilies are the families of the addresses, the primary one first. Unset: the default of the cluster.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:Enum=IPv4;IPv6
	IPFamilies []corev1.IPFamily `json:"ipFamilies,omitempty"`
}

// ServiceSourceRange is a network in CIDR notation.
//
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:Pattern="^[0-9a-fA-F.:]+/[0-9]{1,3}$"
type ServiceSourceRange string

// DeploymentTemplate customizes the workload that the operator creates, of whichever kind.
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

// DeploymentSpecTemplate customizes the spec of a workload.
type DeploymentSpecTemplate struct {
	// Template of the pods.
	//
	// +optional
	Template *PodTemplateSpec `json:"template,omitempty"`
}

// PodTemplateSpec customizes the pods that the operator creates.
type PodTemplateSpec struct {
	// Metadata to add to the pods.
	//
	// +optional
	Metadata *Metadata `json:"metadata,omitempty"`
	// Spec is merged into the spec of the pods by a strategic merge patch, as with kubectl patch: lists of named items, such as
	// containers, are merged by name, and fields that are not set here keep the value of the operator. Any field of a pod's spec is
	// possible; the condition Stalled reports fields that do not exist.
	//
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Spec *runtime.RawExtension `json:"spec,omitempty"`
}

// AutoscalingSpec configures the HorizontalPodAutoscaler of a workload.
//
// +kubebuilder:validation:XValidation:rule="!has(self.minReplicas) || self.minReplicas <= self.maxReplicas",message="minReplicas must not be greater than maxReplicas"
type AutoscalingSpec struct {
	// MinReplicas is the minimum number of pods. Unset: 2, or MaxReplicas if that is less.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	MinReplicas int32 `json:"minReplicas,omitempty"`
	// MaxReplicas is the maximum number of pods.
	//
	// +kubebuilder:validation:Minimum=1
	MaxReplicas int32 `json:"maxReplicas"`
	// TargetCPUUtilizationPercentage is the average use of CPU by the pods, in percent of their request. Unset: 80, unless
	// targetMemoryUtilizationPercentage is set.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	TargetCPUUtilizationPercentage *int32 `json:"targetCPUUtilizationPercentage,omitempty"`
	// TargetMemoryUtilizationPercentage is the average use of memory by the pods, in percent of their request. Each pod of a shard has a copy
	// of the same objects in memory, so more pods reduce only the memory of requests. Unset: memory does not count.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	TargetMemoryUtilizationPercentage *int32 `json:"targetMemoryUtilizationPercentage,omitempty"`
}

// PDBSpec configures the PodDisruptionBudget of a workload.
type PDBSpec struct {
	// Enabled creates a PodDisruptionBudget. Unset: only if the workload has more than one pod.
	//
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
}

// MonitoringSpec configures the monitoring of a workload.
type MonitoringSpec struct {
	// ServiceMonitor for the Prometheus Operator. Unset: none is created.
	//
	// +optional
	ServiceMonitor *ServiceMonitorSpec `json:"serviceMonitor,omitempty"`
}

// ServiceMonitorSpec configures the ServiceMonitor of a workload.
type ServiceMonitorSpec struct {
	// Enabled creates a ServiceMonitor.
	Enabled bool `json:"enabled"`
	// Labels to add to the ServiceMonitor, with which a Prometheus selects it.
	//
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// Interval between two scrapes. Unset: the default of Prometheus.
	//
	// +optional
	// +kubebuilder:validation:Pattern:=`^([0-9]+(ms|[smhdwy]))+$`
	Interval string `json:"interval,omitempty"`
}

// NetworkPolicySpec configures the NetworkPolicy of a workload.
type NetworkPolicySpec struct {
	// Enabled creates a NetworkPolicy that allows connections only to the ports that the workload serves.
	Enabled bool `json:"enabled"`
}
