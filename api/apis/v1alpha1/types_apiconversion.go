package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PreserveAnnotationPrefix and a version are the annotation that keeps what an object of that version has and another
// version cannot express.
const PreserveAnnotationPrefix = "preserve.conversion.apis.kcp.io/"

// APIConversion says how objects of an APIResourceSchema, which has the same name, are converted between versions.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=kcp
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type APIConversion struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec APIConversionSpec `json:"spec"`
}

// APIConversionSpec is how objects are converted.
type APIConversionSpec struct {
	// Conversions, each from one version to another.
	//
	// +required
	// +listType=map
	// +listMapKey=from
	// +listMapKey=to
	Conversions []APIVersionConversion `json:"conversions"`
}

// APIVersionConversion converts objects from one version to another.
type APIVersionConversion struct {
	// From is the version of the objects that are converted.
	//
	// +required
	// +kubebuilder:validation:MinLength:=1
	// +kubebuilder:validation:Pattern:=`^v[1-9][0-9]*([a-z]+[1-9][0-9]*)?$`
	From string `json:"from"`
	// To is the version that they get.
	//
	// +required
	// +kubebuilder:validation:MinLength:=1
	// +kubebuilder:validation:Pattern:=`^v[1-9][0-9]*([a-z]+[1-9][0-9]*)?$`
	To string `json:"to"`
	// Rules say where fields go. What no rule names stays where it is.
	//
	// +required
	// +listType=map
	// +listMapKey=destination
	Rules []APIConversionRule `json:"rules"`
	// Preserve are the paths of fields that are kept in an annotation, because the other version has no place for them.
	//
	// +optional
	Preserve []string `json:"preserve,omitempty"`
}

// APIConversionRule fills one field.
type APIConversionRule struct {
	// Field is the path of a field in the version that is converted from.
	//
	// +required
	// +kubebuilder:validation:MinLength:=1
	Field string `json:"field"`
	// Destination is the path of a field in the version that is converted to.
	//
	// +required
	// +kubebuilder:validation:MinLength:=1
	Destination string `json:"destination"`
	// Transformation is a CEL expression that makes the new value of the old one, which it knows as self.
	//
	// +optional
	Transformation string `json:"transformation,omitempty"`
}

// APIConversionList is a list of APIConversions.
//
// +kubebuilder:object:root=true
type APIConversionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []APIConversion `json:"items"`
}
