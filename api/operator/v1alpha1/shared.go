package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ComponentSpec has the fields of every component that runs in pods.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.replicas) && has(self.autoscaling))",message="set replicas or autoscaling, not both: an autoscaler sets the number of pods"
type ComponentSpec struct {
	// Image of the pods. Unset: the image of the operator's release.
	//
	// +optional
	Image *ImageSpec `json:"image,omitempty"`
	// Replicas is the number of pods. Unset: 2, or 1 for a CacheServer with an embedded etcd, unless an autoscaler has set another number.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`
	// Autoscaling creates a HorizontalPodAutoscaler, which sets the number of pods. Unset: none is created.
	//
	// +optional
	Autoscaling *AutoscalingSpec `json:"autoscaling,omitempty"`
	// Resources of each pod. They override the defaults, with which an installation starts on a small node: shards and virtual workspaces
	// request 100m and 256Mi, with limits of 2 CPU and 2Gi; cache servers request 100m and 256Mi, with limits of 1 CPU and 2Gi; front proxies
	// request 100m and 128Mi, without limits.
	//
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
	// ServiceTemplate customizes the Service.
	//
	// +optional
	ServiceTemplate *ServiceTemplate `json:"serviceTemplate,omitempty"`
	// DeploymentTemplate customizes the workload and its pods.
	//
	// +optional
	DeploymentTemplate *DeploymentTemplate `json:"deploymentTemplate,omitempty"`
	// Logging configures logging.
	//
	// +optional
	Logging *LoggingSpec `json:"logging,omitempty"`
	// PDB configures the PodDisruptionBudget, which allows the eviction of one pod at a time if there are two or more.
	//
	// +optional
	PDB *PDBSpec `json:"pdb,omitempty"`
	// Monitoring of the pods.
	//
	// +optional
	Monitoring *MonitoringSpec `json:"monitoring,omitempty"`
	// NetworkPolicy of the pods. Unset: none is created.
	//
	// +optional
	NetworkPolicy *NetworkPolicySpec `json:"networkPolicy,omitempty"`

	ExtraSpec `json:",inline"`
}

// ExtraSpec has additions to the container of a component.
type ExtraSpec struct {
	// ExtraArgs are added to the command line.
	//
	// +optional
	// +listType=atomic
	ExtraArgs []string `json:"extraArgs,omitempty"`
	// ExtraVolumes are added to the pods.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	ExtraVolumes []corev1.Volume `json:"extraVolumes,omitempty"`
	// ExtraVolumeMounts are added to the container.
	//
	// +optional
	// +listType=map
	// +listMapKey=mountPath
	ExtraVolumeMounts []corev1.VolumeMount `json:"extraVolumeMounts,omitempty"`
}

// ComponentStatus is the observed state of a component that runs in pods.
type ComponentStatus struct {
	// ObservedGeneration is the generation of the spec that the status describes.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Phase summarizes the conditions.
	//
	// +optional
	Phase Phase `json:"phase,omitempty"`
	// Conditions: Ready, Reconciling, Stalled, Available, CertificatesReady, CertificatesExpiring, ReferenceValid and RolloutHeld. Shards and
	// cache servers also have EtcdReady, shards Rotating, further shards Registered and Drained, and front proxies with an Ingress or a
	// TLSRoute Exposed.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Image with which pods were last ready. A new version of the operator with another default image does not change it; only spec.image
	// does. An image with which no pod became ready is not recorded: when spec.image no longer names it, pods run this image again.
	//
	// +optional
	Image string `json:"image,omitempty"`
	// Version that pods have run, if the tag of their image is a version. kcp can be upgraded from it to the next minor version, and cannot
	// skip a minor version or be downgraded, unless the annotation operator.kcp.io/allow-version names the new version.
	//
	// +optional
	Version string `json:"version,omitempty"`
	// Pods is the number of ready pods and of all pods, such as 2/2.
	//
	// +optional
	Pods string `json:"pods,omitempty"`
	// Replicas is the number of pods, for autoscalers.
	//
	// +optional
	Replicas int32 `json:"replicas,omitempty"`
	// Selector of the pods, for autoscalers.
	//
	// +optional
	Selector string `json:"selector,omitempty"`
	// URL of the component for its clients. That of a RootShard and of a FrontProxy is for clients outside of the cluster.
	//
	// +optional
	URL string `json:"url,omitempty"`
	// Certificates of the component, and when they expire.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	Certificates []CertificateStatus `json:"certificates,omitempty"`
	// Renewed is the value of the annotation operator.kcp.io/renew with which certificates were last renewed.
	//
	// +optional
	Renewed string `json:"renewed,omitempty"`
}
