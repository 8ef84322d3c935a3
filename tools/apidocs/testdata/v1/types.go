// Package v1 has one of everything that a reference has to tell.
//
// +groupName=example.org
package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Widget is what it is.
// It goes on.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=wd,categories=all
// +kubebuilder:printcolumn:name="Size",type=string,JSONPath=`.spec.size`
// +kubebuilder:printcolumn:name="Color",type=string,priority=1,JSONPath=`.spec.color`
// +kubebuilder:validation:XValidation:rule="self.metadata.name != 'no'",message="no is no name"
type Widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec WidgetSpec `json:"spec"`
}

// WidgetSpec is how it should be.
//
// +kubebuilder:validation:XValidation:rule="self.size == oldSelf.size",messageExpression="'it has ' + self.size + ', which stays'",fieldPath=".size"
type WidgetSpec struct {
	Embedded `json:",inline"`

	// Size of it: small|large.
	//
	// +kubebuilder:default:="10"
	Size Size `json:"size"`
	// Parts of it.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=3
	Parts []Part `json:"parts,omitempty"`
	// Requirements of it.
	//
	// +optional
	Requirements *corev1.ResourceRequirements `json:"requirements,omitempty"`
	// Labels of it.
	//
	// +optional
	Labels map[string]Size `json:"labels,omitempty"`
	// Since when it is so.
	//
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
}

// Size is a number, as text.
//
// +kubebuilder:validation:Pattern:=`^[0-9]+$`
type Size string

// Part of a widget.
type Part struct {
	// Name of the part.
	//
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// Inner part.
	//
	// +optional
	Inner *Nothing `json:"inner,omitempty"`
}

// Nothing has no settings.
type Nothing struct{}

// Embedded is in others.
type Embedded struct {
	// Color of it.
	//
	// +optional
	// +kubebuilder:validation:Enum=red;blue
	Color string `json:"color,omitempty"`
}
