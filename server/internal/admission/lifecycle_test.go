package admission

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kcplane/kcp/server/logicalcluster"
)

func TestARefusalHasItsCause(t *testing.T) {
	a := admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, "default", "a", schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "",
		admission.Create, &metav1.CreateOptions{}, false, nil)
	err := withCause(forbidden(a, "the logical cluster %q is being deleted", "c"), metav1.StatusCause{Type: logicalcluster.TerminatingCause})
	if !apierrors.IsForbidden(err) || !apierrors.HasStatusCause(err, logicalcluster.TerminatingCause) {
		t.Errorf("%#v", err)
	}
}
