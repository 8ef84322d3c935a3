package v1alpha1

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// AssignmentPhase is the state of a copy of a namespace on a cluster.
type AssignmentPhase string

// Phases of an Assignment. One without a phase was not seen by the agent.
const (
	// AssignmentPlacing is the phase while the agent creates the objects, or waits for them to become ready.
	AssignmentPlacing AssignmentPhase = "Placing"
	// AssignmentReady is the phase when all objects exist on the cluster and are ready.
	AssignmentReady AssignmentPhase = "Ready"
	// AssignmentGone is the phase of a draining assignment of which nothing is left on the cluster.
	AssignmentGone AssignmentPhase = "Gone"
)

// Assignment is the decision to run one namespace of a workspace on one cluster. Only the fleet creates Assignments.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=kcp
// +kubebuilder:printcolumn:name="Workspace",type=string,JSONPath=`.spec.workspace`
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.spec.namespace`
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.cluster`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Draining",type=boolean,JSONPath=`.spec.draining`
type Assignment struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec AssignmentSpec `json:"spec"`
	// +optional
	Status AssignmentStatus `json:"status,omitempty"`
}

// AssignmentSpec is what runs where.
type AssignmentSpec struct {
	// Workspace is the name of the logical cluster.
	//
	// +required
	Workspace string `json:"workspace"`
	// Namespace is the name of the namespace in the workspace.
	//
	// +required
	Namespace string `json:"namespace"`
	// Cluster is the name of the Cluster.
	//
	// +required
	Cluster string `json:"cluster"`
	// Endpoint is the URL at which the objects of the workspace were found.
	//
	// +required
	Endpoint string `json:"endpoint"`
	// Share is the part of the replicas that this cluster runs. Nil means all.
	//
	// +optional
	Share *Share `json:"share,omitempty"`
	// Draining is true when the agent must remove the copy.
	//
	// +optional
	Draining bool `json:"draining,omitempty"`
}

// Share is a part of a number of replicas: those from offset/total to (offset+weight)/total.
type Share struct {
	// +optional
	Offset int64 `json:"offset,omitempty"`
	// +required
	Weight int64 `json:"weight"`
	// +required
	// +kubebuilder:validation:Minimum:=1
	Total int64 `json:"total"`
}

// Of returns the part of n replicas. The parts of shares that cover the total without overlap add up to n.
func (s *Share) Of(n int64) int64 {
	if s == nil {
		return n
	}
	return (s.Offset+s.Weight)*n/s.Total - s.Offset*n/s.Total
}

// OfRequests returns the part of what pods request together, rounded up.
func (s *Share) OfRequests(list corev1.ResourceList) corev1.ResourceList {
	if s == nil {
		return list
	}
	part := corev1.ResourceList{}
	for name, quantity := range list {
		milli := math.Ceil(float64(quantity.MilliValue()) / float64(s.Total) * float64(s.Weight))
		part[name] = *resource.NewMilliQuantity(int64(min(milli, math.MaxInt64/2)), quantity.Format)
	}
	return part
}

// AssignmentStatus is what the agent reports.
type AssignmentStatus struct {
	// ObservedGeneration is the generation of the Assignment that the phase is for.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// +optional
	Phase AssignmentPhase `json:"phase,omitempty"`
	// Message says what the agent waits for.
	//
	// +optional
	// +kubebuilder:validation:MaxLength:=1024
	Message string `json:"message,omitempty"`
	// Namespace is the name of the namespace on the cluster.
	//
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// AssignmentList is a list of Assignments.
//
// +kubebuilder:object:root=true
type AssignmentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []Assignment `json:"items"`
}

// Workload is an object of a workspace as an agent sees it. It is not stored: the fleet computes it from the object and from the
// Assignment of its namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster
type Workload struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec WorkloadSpec `json:"spec"`
	// +optional
	Status WorkloadStatus `json:"status,omitempty"`
}

// WorkloadSpec is an object to create on a cluster.
type WorkloadSpec struct {
	// Assignment is the name of the Assignment.
	//
	// +required
	Assignment string `json:"assignment"`
	// Resource is the plural name of the resource.
	//
	// +required
	Resource string `json:"resource"`
	// Generation is the generation of the object in the workspace.
	//
	// +optional
	Generation int64 `json:"generation,omitempty"`
	// Object is the object without status, and without what belongs to the workspace only.
	//
	// +required
	// +kubebuilder:pruning:PreserveUnknownFields
	Object runtime.RawExtension `json:"object"`
}

// WorkloadStatus is what the agent reports.
type WorkloadStatus struct {
	// Object is the status of the object on the cluster.
	//
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Object *runtime.RawExtension `json:"object,omitempty"`
	// Message is an error of the agent, or empty.
	//
	// +optional
	// +kubebuilder:validation:MaxLength:=1024
	Message string `json:"message,omitempty"`
}

// WorkloadList is a list of Workloads.
//
// +kubebuilder:object:root=true
type WorkloadList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []Workload `json:"items"`
}
