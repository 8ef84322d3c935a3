package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PreserveAnnotationPrefix followed by a version is the annotation for information that objects of another version cannot express.
const PreserveAnnotationPrefix = "preserve.conversion.apis.kcp.io/"

// APIConversion defines how objects of the APIResourceSchema of the same name are converted between versions.
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

// APIConversionSpec is the desired state of a conversion.
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
	// From is the source version.
	//
	// +required
	// +kubebuilder:validation:MinLength:=1
	// +kubebuilder:validation:Pattern:=`^v[1-9][0-9]*([a-z]+[1-9][0-9]*)?$`
	From string `json:"from"`
	// To is the target version.
	//
	// +required
	// +kubebuilder:validation:MinLength:=1
	// +kubebuilder:validation:Pattern:=`^v[1-9][0-9]*([a-z]+[1-9][0-9]*)?$`
	To string `json:"to"`
	// Rules move and transform fields. Fields without a rule stay unchanged.
	//
	// +required
	// +listType=map
	// +listMapKey=destination
	Rules []APIConversionRule `json:"rules"`
	// Preserve lists the paths of fields to keep in an annotation, because the other version does not have them.
	//
	// +optional
	Preserve []string `json:"preserve,omitempty"`
}

// APIConversionRule sets one field.
type APIConversionRule struct {
	// Field is the path of the field in the source version.
	//
	// +required
	// +kubebuilder:validation:MinLength:=1
	Field string `json:"field"`
	// Destination is the path of the field in the target version.
	//
	// +required
	// +kubebuilder:validation:MinLength:=1
	Destination string `json:"destination"`
	// Transformation is a CEL expression that returns the new value. The old value is self.
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
