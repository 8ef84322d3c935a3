package transform

import (
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
)

func workspace(name, parent string) *tenancyv1alpha1.Workspace {
	return &tenancyv1alpha1.Workspace{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: "u", ResourceVersion: "7", Finalizers: []string{tenancyv1alpha1.LogicalClusterFinalizer},
			Annotations:   map[string]string{"kcp.io/cluster": parent, tenancyv1alpha1.ClusterAnnotation: "c-" + name},
			Labels:        map[string]string{corev1alpha1.PhaseLabel: "Ready"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
		},
		Spec:   tenancyv1alpha1.WorkspaceSpec{Cluster: "c-" + name, URL: "https://kcp/clusters/" + name},
		Status: tenancyv1alpha1.WorkspaceStatus{Phase: "Ready", Conditions: []corev1alpha1.Condition{{Type: "WorkspaceScheduled"}}},
	}
}

func TestAWorkspaceKeepsTheFieldsThatAreRead(t *testing.T) {
	trimmed, want := workspace("one", "p"), workspace("one", "p")
	Workspace(trimmed)
	delete(want.Annotations, tenancyv1alpha1.ClusterAnnotation)
	want.ManagedFields, want.Status.Conditions = nil, nil
	if !reflect.DeepEqual(trimmed, want) {
		t.Errorf("got %+v, want %+v", trimmed, want)
	}
	unscheduled := workspace("four", "p")
	unscheduled.Spec.Cluster = ""
	Workspace(unscheduled)
	if unscheduled.Annotations[tenancyv1alpha1.ClusterAnnotation] != "c-four" {
		t.Error("the logical cluster that a workspace is about to have is lost")
	}
}

func TestALogicalClusterKeepsTheFieldsThatAreRead(t *testing.T) {
	now := metav1.Now()
	for _, deleted := range []*metav1.Time{nil, &now} {
		trimmed := &corev1alpha1.LogicalCluster{
			TypeMeta:   metav1.TypeMeta{Kind: "LogicalCluster"},
			ObjectMeta: metav1.ObjectMeta{Name: "cluster", UID: "u", DeletionTimestamp: deleted, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}},
			Spec:       corev1alpha1.LogicalClusterSpec{Owner: &corev1alpha1.LogicalClusterOwner{Name: "a"}, CreatedBy: &corev1alpha1.UserInfo{Username: "me"}},
			Status:     corev1alpha1.LogicalClusterStatus{Phase: "Deleting", URL: "https://kcp", Conditions: []corev1alpha1.Condition{{Type: "x"}}},
		}
		want := trimmed.DeepCopy()
		want.TypeMeta, want.ManagedFields = metav1.TypeMeta{}, nil
		if deleted == nil {
			want.Status.Conditions = nil
		}
		LogicalCluster(trimmed)
		if !reflect.DeepEqual(trimmed, want) {
			t.Errorf("got %+v, want %+v", trimmed, want)
		}
	}
}
