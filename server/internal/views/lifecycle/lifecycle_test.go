package lifecycle

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/logicalcluster"
)

func TestTheOwnerIsLimitedToTheWorkspace(t *testing.T) {
	lc := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{logicalcluster.AnnotationKey: "theirs"}}}
	lc.Spec.CreatedBy = &corev1alpha1.UserInfo{
		Username: "alice", Groups: []string{"team-a", "system:masters"},
		Extra: map[string]corev1alpha1.ExtraValue{authorization.WarrantKey: {`{"user":"admin","groups":["system:kcp:admin"]}`}},
	}
	owner := ownerOf(lc)
	if groups := authorization.EffectiveGroups(owner, "theirs"); !slices.Contains(groups, "team-a") || slices.Contains(groups, "system:masters") {
		t.Errorf("in their workspace the groups are %v", groups)
	}
	for _, identity := range authorization.EffectiveIdentities(owner, "other") {
		if identity.GetName() != "system:anonymous" || slices.Contains(identity.GetGroups(), "system:kcp:admin") {
			t.Errorf("elsewhere the owner is %s of %v", identity.GetName(), identity.GetGroups())
		}
	}
}
