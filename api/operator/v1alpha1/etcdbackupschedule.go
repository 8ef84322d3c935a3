package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// EtcdBackupSchedule makes an EtcdBackup at every time of a schedule.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=kcp,shortName=ebs
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.cluster`
// +kubebuilder:printcolumn:name="Schedule",type=string,JSONPath=`.spec.schedule`
// +kubebuilder:printcolumn:name="Suspended",type=boolean,JSONPath=`.spec.suspend`
// +kubebuilder:printcolumn:name="Last success",type=date,JSONPath=`.status.lastSuccess`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 40",message="the name of an EtcdBackupSchedule becomes part of those of EtcdBackups: at most 40 characters"
type EtcdBackupSchedule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec EtcdBackupScheduleSpec `json:"spec"`
	// +optional
	Status EtcdBackupScheduleStatus `json:"status,omitempty"`
}

// EtcdBackupScheduleSpec says when snapshots are taken, of what, and how many are kept.
type EtcdBackupScheduleSpec struct {
	// Cluster is the name of the EtcdCluster.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=45
	Cluster string `json:"cluster"`
	// Store is where the snapshots go.
	Store EtcdStoreSpec `json:"store"`
	// Schedule, as cron has it.
	//
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^@(hourly|daily|weekly|monthly)$|^([0-9*,/A-Za-z-]+ +){4}[0-9*,/A-Za-z-]+$')",message="a schedule has five fields, as in \"0 3 * * *\", or is one of @hourly, @daily, @weekly and @monthly"
	Schedule string `json:"schedule"`
	// TimeZone of the schedule, such as Europe/Berlin. Unset: UTC.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	TimeZone string `json:"timeZone,omitempty"`
	// StartingDeadlineSeconds is how late a snapshot may be begun, if it could not be when it was time. Later than that, it is given up, and
	// the next time waited for. Unset: however late.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	StartingDeadlineSeconds *int64 `json:"startingDeadlineSeconds,omitempty"`
	// Suspend takes no snapshots for the time being.
	//
	// +optional
	Suspend bool `json:"suspend,omitempty"`
	// KeepLast is how many snapshots of the cluster stay in the store. Unset: 7.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	KeepLast *int32 `json:"keepLast,omitempty"`
	// KeepDaily is for how many days, of those with snapshots, the last one of each stays as well. Days are those of UTC.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	KeepDaily *int32 `json:"keepDaily,omitempty"`
	// KeepWeekly is for how many weeks, of those with snapshots, the last one of each stays as well. They begin on Mondays.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	KeepWeekly *int32 `json:"keepWeekly,omitempty"`
	// IncludeSecrets stores the Secrets of the RootShard beside the snapshot, encrypted: its authorities and the keys of service accounts,
	// without which nobody has access to what is restored. Unset: they are not stored, and the condition SecretsIncluded is a warning.
	//
	// +optional
	IncludeSecrets *EtcdBackupSecretsSpec `json:"includeSecrets,omitempty"`
}

// EtcdBackupScheduleStatus is what became of a schedule.
type EtcdBackupScheduleStatus struct {
	// ObservedGeneration is the generation of the spec that the rest of the status is about.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions: Ready, Reconciling and Stalled. Ready is False after a snapshot that failed, until one succeeds.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// LastScheduled is the time of the schedule for which a snapshot was last begun, or given up.
	//
	// +optional
	LastScheduled *metav1.Time `json:"lastScheduled,omitempty"`
	// LastSuccess is when a snapshot was last stored.
	//
	// +optional
	LastSuccess *metav1.Time `json:"lastSuccess,omitempty"`
}

// EtcdBackupScheduleList is a list of EtcdBackupSchedules.
//
// +kubebuilder:object:root=true
type EtcdBackupScheduleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []EtcdBackupSchedule `json:"items"`
}
