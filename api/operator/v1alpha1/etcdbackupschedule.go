package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// EtcdBackupSchedule creates an EtcdBackup at each time of a schedule.
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
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 40",message="the name of an EtcdBackupSchedule is part of the names of its EtcdBackups: at most 40 characters"
type EtcdBackupSchedule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec EtcdBackupScheduleSpec `json:"spec"`
	// +optional
	Status EtcdBackupScheduleStatus `json:"status,omitempty"`
}

// EtcdBackupScheduleSpec defines when snapshots of which cluster are taken, and how many are kept.
type EtcdBackupScheduleSpec struct {
	// Cluster is the name of the EtcdCluster.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=45
	Cluster string `json:"cluster"`
	// Store is where the snapshots are stored.
	Store EtcdStoreSpec `json:"store"`
	// Schedule in cron format.
	//
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^@(hourly|daily|weekly|monthly)$|^([0-9*,/A-Za-z-]+ +){4}[0-9*,/A-Za-z-]+$')",message="a schedule has five fields, as in \"0 3 * * *\", or is one of @hourly, @daily, @weekly and @monthly"
	Schedule string `json:"schedule"`
	// TimeZone of the schedule, such as Europe/Berlin. Unset: UTC.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	TimeZone string `json:"timeZone,omitempty"`
	// StartingDeadlineSeconds is the maximum delay of a snapshot that could not be started on time. After that, the snapshot is skipped,
	// and the next one is taken as scheduled. Unset: no maximum.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	StartingDeadlineSeconds *int64 `json:"startingDeadlineSeconds,omitempty"`
	// Suspend stops taking snapshots.
	//
	// +optional
	Suspend bool `json:"suspend,omitempty"`
	// KeepLast is the number of snapshots of the cluster to keep in the store. Unset: 7.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	KeepLast *int32 `json:"keepLast,omitempty"`
	// KeepDaily is the number of days for which the last snapshot of the day is also kept. Days without a snapshot do not count. Days are
	// in UTC.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	KeepDaily *int32 `json:"keepDaily,omitempty"`
	// KeepWeekly is the number of weeks for which the last snapshot of the week is also kept. Weeks without a snapshot do not count. Weeks
	// start on Monday.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	KeepWeekly *int32 `json:"keepWeekly,omitempty"`
	// IncludeSecrets stores the encrypted Secrets of the RootShard with the snapshot: its CAs and the keys of service accounts, without
	// which no client has access to the restored data. Unset: they are not stored, and the condition SecretsIncluded is False as a warning.
	//
	// +optional
	IncludeSecrets *EtcdBackupSecretsSpec `json:"includeSecrets,omitempty"`
}

// EtcdBackupScheduleStatus is the observed state of a schedule.
type EtcdBackupScheduleStatus struct {
	// ObservedGeneration is the generation of the spec that the status describes.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions: Ready, Reconciling and Stalled. Ready is False after a failed snapshot, until one succeeds.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// LastScheduled is the last time of the schedule for which a snapshot was started or skipped.
	//
	// +optional
	LastScheduled *metav1.Time `json:"lastScheduled,omitempty"`
	// LastSuccess is when the last snapshot was stored.
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
