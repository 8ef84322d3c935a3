package objecttest

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Tests of controllers and admission find readers of trimmed fields only if the fields are missing in their informers, too.
func TestInformersDropTrimmedFieldsAndStorageKeepsThem(t *testing.T) {
	ws := In("root", &tenancyv1alpha1.Workspace{
		ObjectMeta: metav1.ObjectMeta{Name: "team", Annotations: map[string]string{tenancyv1alpha1.ClusterAnnotation: "c"}},
		Spec:       tenancyv1alpha1.WorkspaceSpec{Cluster: "c"},
		Status:     tenancyv1alpha1.WorkspaceStatus{Conditions: []corev1alpha1.Condition{{Type: tenancyv1alpha1.WorkspaceScheduled}}},
	})
	o := New(t, ws)
	stored := o.Stored(o.Set.Workspaces.Informer)
	ctx := logicalcluster.WithName(t.Context(), "root")
	for _, when := range []string{"after New", "after Update"} {
		seen, err := o.Set.Workspaces.Get("root", "", "team")
		if err != nil {
			t.Fatal(err)
		}
		if len(seen.Status.Conditions) > 0 || seen.Annotations[tenancyv1alpha1.ClusterAnnotation] != "" || seen.Spec.Cluster != "c" {
			t.Errorf("%s the informer has %+v", when, seen)
		}
		live := &tenancyv1alpha1.Workspace{}
		if err := stored.Update(ctx, "team", live, func(obj runtime.Object) error {
			obj.(*tenancyv1alpha1.Workspace).Spec.URL = "https://kcp.test"
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if len(live.Status.Conditions) == 0 || live.Annotations[tenancyv1alpha1.ClusterAnnotation] != "c" {
			t.Errorf("%s the storage has %+v", when, live)
		}
	}
}
