package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
)

// Types of the conditions of a PartitionSet, each with its reason if it is False.
const (
	PartitionSetValid     = "PartitionSetValid"
	ReasonInvalidSelector = "InvalidSelector"

	PartitionsReady                 = "PartitionsReady"
	ReasonErrorGeneratingPartitions = "ErrorGeneratingPartitions"
)

// PartitionSet creates Partitions: one for each combination of label values of the shards.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=kcp
// +kubebuilder:printcolumn:name="Count",type=integer,JSONPath=`.status.count`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PartitionSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec PartitionSetSpec `json:"spec"`
	// +optional
	Status PartitionSetStatus `json:"status,omitempty"`
}

// PartitionSetSpec is the desired state of a set.
type PartitionSetSpec struct {
	// Dimensions are label keys. Shards with the same values of all these labels are in the same partition.
	//
	// +optional
	Dimensions []string `json:"dimensions,omitempty"`
	// ShardSelector selects the shards to divide. Defaults to all shards.
	//
	// +optional
	// +structType=atomic
	ShardSelector *ShardSelector `json:"shardSelector,omitempty"`
}

// ShardSelector is a label selector of shards with a limited size.
type ShardSelector struct {
	// MatchLabels are labels that the shards must have.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties:=10
	// +kubebuilder:validation:XValidation:rule="self.all(key, size(key) <= 317 && key.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))",message="the keys must be those of labels: an optional prefix of up to 253 characters and a slash, then 1 to 63 letters, digits, dashes, underscores and dots"
	MatchLabels map[string]LabelValue `json:"matchLabels,omitempty"`
	// MatchExpressions are requirements that the shards must meet.
	//
	// +optional
	// +kubebuilder:validation:MaxItems:=10
	// +listType=atomic
	MatchExpressions []ShardSelectorRequirement `json:"matchExpressions,omitempty"`
}

// LabelValue is the value of a label.
//
// +kubebuilder:validation:MaxLength:=63
// +kubebuilder:validation:Pattern:=`^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$`
type LabelValue string

// ShardSelectorRequirement is a requirement for a label of a shard.
//
// +kubebuilder:validation:XValidation:rule="(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",message="values must be set with the operators In and NotIn, and with no others"
type ShardSelectorRequirement struct {
	// Key of the label.
	//
	// +required
	// +kubebuilder:validation:MaxLength:=317
	// +kubebuilder:validation:Pattern:=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	Key string `json:"key"`
	// Operator between the label and the values.
	//
	// +required
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist
	Operator metav1.LabelSelectorOperator `json:"operator"`
	// Values of the label.
	//
	// +optional
	// +listType=atomic
	Values []LabelValue `json:"values,omitempty"`
}

// LabelSelector returns the selector as a metav1.LabelSelector. A nil selector selects all shards.
func (s *ShardSelector) LabelSelector() *metav1.LabelSelector {
	general := &metav1.LabelSelector{}
	if s == nil {
		return general
	}
	for key, value := range s.MatchLabels {
		general = metav1.AddLabelToSelector(general, key, string(value))
	}
	for _, requirement := range s.MatchExpressions {
		expression := metav1.LabelSelectorRequirement{Key: requirement.Key, Operator: requirement.Operator}
		for _, value := range requirement.Values {
			expression.Values = append(expression.Values, string(value))
		}
		general.MatchExpressions = append(general.MatchExpressions, expression)
	}
	return general
}

// PartitionSetStatus is the observed state of a set.
type PartitionSetStatus struct {
	// Count is the number of partitions.
	//
	// +optional
	Count int `json:"count,omitempty"`
	// Conditions of the set.
	//
	// +optional
	Conditions []corev1alpha1.Condition `json:"conditions,omitempty"`
}

// PartitionSetList is a list of PartitionSets.
//
// +kubebuilder:object:root=true
type PartitionSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []PartitionSet `json:"items"`
}
