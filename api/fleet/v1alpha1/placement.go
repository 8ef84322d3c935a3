package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Strategies of a Placement.
const (
	Single = "Single"
	Spread = "Spread"
)

// Moves of a Placement.
const (
	MakeBeforeBreak = "MakeBeforeBreak"
	BreakBeforeMake = "BreakBeforeMake"
)

const (
	// PlacementScheduled is the condition of a Placement whose namespaces all have a cluster that fits.
	PlacementScheduled = "Scheduled"
	// PlacementApplied is the condition of a Placement whose clusters have accepted all objects.
	PlacementApplied = "Applied"
)

// NotReadyTaint is the key of the taint NoExecute of each cluster that is not ready. Placements that tolerate it for a limited time
// move to another cluster after that time; all others stay.
const NotReadyTaint = "fleet.kcp.io/not-ready"

// Placement runs the objects of some namespaces of its workspace on clusters of the fleet. If several Placements select a namespace, the
// first by name applies.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=kcp
// +kubebuilder:printcolumn:name="Strategy",type=string,JSONPath=`.spec.strategy`
// +kubebuilder:printcolumn:name="Scheduled",type=string,JSONPath=`.status.conditions[?(@.type=="Scheduled")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Placement struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec PlacementSpec `json:"spec,omitempty"`
	// +optional
	Status PlacementStatus `json:"status,omitempty"`
}

// PlacementSpec is the desired state of a placement.
//
// +kubebuilder:validation:XValidation:rule="!has(self.spread) || self.strategy == 'Spread'",message="spread requires the strategy Spread"
type PlacementSpec struct {
	// NamespaceSelector selects namespaces of the workspace by labels. Defaults to all namespaces, except those of the system.
	//
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// ClusterSelector selects clusters by labels. Defaults to all clusters.
	//
	// +optional
	ClusterSelector *metav1.LabelSelector `json:"clusterSelector,omitempty"`
	// Strategy is Single for one cluster, or Spread for several clusters with a part of the replicas each.
	//
	// +optional
	// +kubebuilder:validation:Enum=Single;Spread
	// +kubebuilder:default:=Single
	Strategy string `json:"strategy,omitempty"`
	// Spread configures the strategy Spread.
	//
	// +optional
	Spread *SpreadSpec `json:"spread,omitempty"`
	// Tolerations allow clusters with matching taints.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems:=20
	Tolerations []Toleration `json:"tolerations,omitempty"`
	// Move is MakeBeforeBreak to keep the former copy until the new one is ready, or BreakBeforeMake to remove it first.
	//
	// +optional
	// +kubebuilder:validation:Enum=MakeBeforeBreak;BreakBeforeMake
	// +kubebuilder:default:=MakeBeforeBreak
	Move string `json:"move,omitempty"`
}

// SpreadSpec configures the strategy Spread.
type SpreadSpec struct {
	// Max is the highest number of clusters. Defaults to all.
	//
	// +optional
	// +kubebuilder:validation:Minimum:=1
	Max *int32 `json:"max,omitempty"`
	// Weights are the shares of clusters in the replicas, by their names. Defaults to 1 for each cluster.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties:=100
	Weights map[string]Weight `json:"weights,omitempty"`
}

// Weight is the share of a cluster in the replicas.
//
// +kubebuilder:validation:Minimum:=0
// +kubebuilder:validation:Maximum:=1000
type Weight int32

// Toleration allows clusters with a taint.
type Toleration struct {
	// Key of the taint. Defaults to all keys.
	//
	// +optional
	// +kubebuilder:validation:MaxLength:=317
	Key string `json:"key,omitempty"`
	// Value of the taint. Defaults to all values.
	//
	// +optional
	// +kubebuilder:validation:MaxLength:=63
	Value string `json:"value,omitempty"`
	// Effect of the taint. Defaults to all effects.
	//
	// +optional
	// +kubebuilder:validation:Enum=NoSchedule;NoExecute
	Effect corev1.TaintEffect `json:"effect,omitempty"`
	// TolerationSeconds limits the time for which a taint NoExecute is tolerated. Defaults to no limit.
	//
	// +optional
	// +kubebuilder:validation:Minimum:=0
	TolerationSeconds *int64 `json:"tolerationSeconds,omitempty"`
}

// PlacementStatus is the observed state of a placement.
type PlacementStatus struct {
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PlacementList is a list of Placements.
//
// +kubebuilder:object:root=true
type PlacementList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []Placement `json:"items"`
}
