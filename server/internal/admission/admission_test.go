package admission

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kcplane/kcp/server/internal/admission/objectlimit"
)

func TestTheChainHasEveryPlugin(t *testing.T) {
	config := newConfig(t, nil)
	config.Limits = objectlimit.New(objectlimit.Config{})
	chain, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	for operation, want := range map[admission.Operation]bool{
		admission.Create: true, admission.Update: true, admission.Delete: true, admission.Connect: true,
	} {
		if got := chain.Handles(operation); got != want {
			t.Errorf("the chain handles %s: %t, want %t", operation, got, want)
		}
	}
}

func TestReviewsAreTheRequestsOfTwoGroups(t *testing.T) {
	for group, want := range map[string]bool{"authorization.k8s.io": true, "authentication.k8s.io": true, "": false, "rbac.authorization.k8s.io": false} {
		resource := schema.GroupVersionResource{Group: group, Version: "v1", Resource: "subjectaccessreviews"}
		if got := isReview(deletion(resource, "SubjectAccessReview", "x")); got != want {
			t.Errorf("group %q is one of reviews: %t, want %t", group, got, want)
		}
	}
}
