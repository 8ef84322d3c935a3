package lifecycle

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/internal/objecttest"
	"github.com/kcplane/kcp/server/internal/tenancy/pathindex"
	"github.com/kcplane/kcp/server/internal/tenancy/references"
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

// holder is the shard that holds the logical cluster far, with the type stepped.
type holder struct {
	arrive func()
	err    error
}

func (holder) Locate(context.Context, string) (logicalcluster.Name, bool, error) {
	return "", false, nil
}

func (h holder) Has(_ context.Context, cluster logicalcluster.Name, _ schema.GroupResource, name string) (bool, error) {
	exists := cluster == "far" && name == "stepped" && h.err == nil
	if exists {
		h.arrive()
	}
	return exists, h.err
}

func TestAViewFindsTheTypeOfAnotherShard(t *testing.T) {
	late := references.Unavailable("late")
	for name, c := range map[string]struct {
		id    string
		err   error
		found bool
	}{
		"of another shard": {"far:stepped", nil, true},
		"absent":           {"far:none", nil, false},
		"no response":      {"far:stepped", late, false},
	} {
		o := objecttest.New(t)
		o.Share(func(logicalcluster.Name) (string, []logicalcluster.Name) { return "us", nil })
		r := references.New(o.Set, pathindex.New(o.Set))
		r.Share(holder{err: c.err, arrive: func() {
			o.Offer("us", objecttest.In("far", &tenancyv1alpha1.WorkspaceType{ObjectMeta: metav1.ObjectMeta{Name: "stepped"}}))
		}})
		cluster, typeName, _ := strings.Cut(c.id, ":")
		v := &view{Config: Config{Set: o.Set, References: r}, typeCluster: logicalcluster.Name(cluster), typeName: typeName}
		if found, err := v.find(t.Context()); (found != nil) != c.found || !errors.Is(err, c.err) {
			t.Errorf("%s: got %v, %v", name, found, err)
		}
	}
}
