package runner

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/server/logicalcluster"
)

func TestErrorsOfCreatingObjectsInDeletedPlacesAreIgnored(t *testing.T) {
	resource := schema.GroupResource{Resource: "configmaps"}
	because := func(cause metav1.CauseType) error {
		err := apierrors.NewForbidden(resource, "kube-root-ca.crt", errors.New("refused"))
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: cause}}
		return err
	}
	for name, test := range map[string]struct {
		err    error
		ignore bool
	}{
		"no error":                             {nil, true},
		"the object exists":                    {apierrors.NewAlreadyExists(resource, "a"), true},
		"the namespace does not exist":         {apierrors.NewNotFound(resource, "a"), true},
		"the namespace is being deleted":       {because(corev1.NamespaceTerminatingCause), true},
		"the logical cluster is being deleted": {because(logicalcluster.TerminatingCause), true},
		"a policy refuses the object":          {because(metav1.CauseTypeForbidden), false},
		"the object has changed":               {apierrors.NewConflict(resource, "a", nil), false},
	} {
		if got := IgnoreExistsOrTerminating(test.err); (got == nil) != test.ignore {
			t.Errorf("%s: %v", name, got)
		}
	}
}
