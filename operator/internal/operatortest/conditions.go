package operatortest

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
)

// Conditions returns the conditions of a component.
func Conditions(t *testing.T, object client.Object) []metav1.Condition {
	t.Helper()
	switch o := object.(type) {
	case *v1alpha1.CacheServer:
		return o.Status.Conditions
	case *v1alpha1.RootShard:
		return o.Status.Conditions
	case *v1alpha1.Shard:
		return o.Status.Conditions
	case *v1alpha1.VirtualWorkspace:
		return o.Status.Conditions
	case *v1alpha1.FrontProxy:
		return o.Status.Conditions
	}
	t.Fatalf("%T has no conditions", object)
	return nil
}
