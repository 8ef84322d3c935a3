package trim

import (
	"fmt"
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

func same(a, b map[string]string) bool {
	return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer()
}

func TestSiblingsShareWhatTheyHaveInCommonAndNothingElse(t *testing.T) {
	trimmer := New()
	one, two, elsewhere := workspace("one", "p"), workspace("two", "p"), workspace("three", "q")
	for _, ws := range []*tenancyv1alpha1.Workspace{one, two, elsewhere} {
		trimmer.Workspace(ws)
	}
	if !same(one.Annotations, two.Annotations) || !same(one.Labels, elsewhere.Labels) || &one.Finalizers[0] != &elsewhere.Finalizers[0] {
		t.Error("equal values are not shared")
	}
	for ws, parent := range map[*tenancyv1alpha1.Workspace]string{one: "p", two: "p", elsewhere: "q"} {
		want := workspace(ws.Name, parent)
		delete(want.Annotations, tenancyv1alpha1.ClusterAnnotation)
		want.ManagedFields, want.Status.Conditions = nil, nil
		if !reflect.DeepEqual(ws, want) {
			t.Errorf("got %+v, want %+v", ws, want)
		}
	}
	unscheduled := workspace("four", "p")
	unscheduled.Spec.Cluster = ""
	trimmer.Workspace(unscheduled)
	if unscheduled.Annotations[tenancyv1alpha1.ClusterAnnotation] != "c-four" {
		t.Error("the logical cluster that a workspace is about to have is lost")
	}
}

func TestALogicalClusterKeepsWhatIsRead(t *testing.T) {
	trimmer := New()
	for i := range 3 * remembered { // as many creators as displace each other
		now := metav1.Now()
		whole := &corev1alpha1.LogicalCluster{
			ObjectMeta: metav1.ObjectMeta{Name: "cluster", UID: "u", Annotations: map[string]string{"kcp.io/cluster": fmt.Sprint("c", i), "kcp.io/path": "root:a"}},
			Spec: corev1alpha1.LogicalClusterSpec{
				Owner:     &corev1alpha1.LogicalClusterOwner{APIVersion: "tenancy.kcp.io/v1alpha1", Resource: "workspaces", Name: "a", Cluster: "root", UID: "w"},
				CreatedBy: &corev1alpha1.UserInfo{Username: fmt.Sprint("user", i%(2*remembered)), Groups: []string{fmt.Sprint(i % 2)}},
			},
			Status: corev1alpha1.LogicalClusterStatus{Phase: "Deleting", URL: "https://kcp", Conditions: []corev1alpha1.Condition{{Type: "x"}}},
		}
		if i%2 == 0 {
			whole.DeletionTimestamp = &now
		}
		trimmed := whole.DeepCopy()
		trimmer.LogicalCluster(trimmed)
		if i%2 == 1 {
			whole.Status.Conditions = nil
		}
		if !reflect.DeepEqual(trimmed, whole) {
			t.Fatalf("got %+v, want %+v", trimmed, whole)
		}
	}
}
