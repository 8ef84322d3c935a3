package workload

import (
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
)

// StatefulSet builds the StatefulSet of the pods. They have no state, but stable names for logs and metrics, and are replaced one after
// the other.
func StatefulSet(c *Component) (*appsv1.StatefulSet, error) {
	pod, err := Pod(c)
	if err != nil {
		return nil, err
	}
	var extra *v1alpha1.Metadata
	if c.Template != nil {
		extra = c.Template.Metadata
	}
	return &appsv1.StatefulSet{
		ObjectMeta: c.metaWith(extra),
		Spec: appsv1.StatefulSetSpec{
			Replicas: c.Replicas, ServiceName: c.Name, Template: pod,
			Selector:             &metav1.LabelSelector{MatchLabels: c.Labels()},
			PodManagementPolicy:  appsv1.ParallelPodManagement,
			UpdateStrategy:       appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType},
			RevisionHistoryLimit: new(int32(3)),
		},
	}, nil
}

// Input returns the hash of an input in the template of a StatefulSet.
func Input(set *appsv1.StatefulSet, name string) string {
	return set.Spec.Template.Annotations[InputAnnotation+name]
}

// Wanted returns the desired number of pods of a StatefulSet.
func Wanted(set *appsv1.StatefulSet) int32 {
	if set.Spec.Replicas == nil {
		return 1
	}
	return *set.Spec.Replicas
}

// RolledOut reports whether exactly the desired pods of a StatefulSet exist, are ready, and have the current template.
func RolledOut(set *appsv1.StatefulSet) bool {
	wanted, status := Wanted(set), set.Status
	return status.ObservedGeneration >= set.Generation && status.Replicas == wanted && status.ReadyReplicas == wanted &&
		status.UpdatedReplicas == wanted
}
