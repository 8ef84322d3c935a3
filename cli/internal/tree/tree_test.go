package tree

import (
	"context"
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/cli/internal/location"
)

// reader returns children or errors by path.
type reader struct {
	children map[string][]tenancyv1alpha1.Workspace
	errors   map[string]error
}

func (r reader) Children(_ context.Context, l location.Location, _ int) ([]tenancyv1alpha1.Workspace, bool, error) {
	return r.children[l.Cluster()], false, r.errors[l.Cluster()]
}

func (r reader) LogicalCluster(_ context.Context, l location.Location) (*corev1alpha1.LogicalCluster, error) {
	return &corev1alpha1.LogicalCluster{Status: corev1alpha1.LogicalClusterStatus{Phase: "Ready"}}, nil
}

func workspace(name, cluster string, phase corev1alpha1.LogicalClusterPhase) tenancyv1alpha1.Workspace {
	ws := tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	ws.Spec.Cluster, ws.Status.Phase = cluster, phase
	return ws
}

func root(t *testing.T) location.Location {
	t.Helper()
	l, err := location.Parse("https://h/clusters/root")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestUnreadableWorkspacesHaveANote(t *testing.T) {
	mount := workspace("mount", "", "Ready")
	mount.Spec.Mount = &tenancyv1alpha1.Mount{Reference: tenancyv1alpha1.ObjectReference{Kind: "KubeCluster", Name: "prod"}}
	r := reader{
		children: map[string][]tenancyv1alpha1.Workspace{"root": {
			workspace("closed", "c1", "Ready"), workspace("down", "c2", "Unavailable"), workspace("gone", "c3", "Deleting"), mount,
			workspace("open", "c4", "Ready"), workspace("new", "", "Scheduling"),
		}, "root:open": {workspace("below", "c5", "Ready")}, "root:new": {workspace("never", "", "")}, "root:mount": {workspace("never", "", "")}},
		errors: map[string]error{
			"root:closed": apierrors.NewForbidden(tenancyv1alpha1.Resource("workspaces"), "", errors.New("no")),
			"root:down":   apierrors.NewServiceUnavailable("no"),
			"root:gone":   apierrors.NewNotFound(tenancyv1alpha1.Resource("workspaces"), "root:gone"),
		},
	}
	got, err := Read(t.Context(), r, root(t), true)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := Draw(&text, got, Style{Wide: true}); err != nil {
		t.Fatal(err)
	}
	want := `root  logical cluster: Ready
├── closed  workspace: Ready (no access)
├── down  workspace: Unavailable (unavailable)
├── gone  workspace: Deleting (gone)
├── mount  workspace: Ready (mount of KubeCluster prod)
├── open  workspace: Ready  logical cluster: Ready
│   └── below  workspace: Ready  logical cluster: Ready
└── new  workspace: Scheduling
`
	if text.String() != want {
		t.Errorf("got\n%swant\n%s", text.String(), want)
	}
}

func TestOtherErrorsAreReturned(t *testing.T) {
	broken := errors.New("broken")
	r := reader{children: map[string][]tenancyv1alpha1.Workspace{"root": {workspace("a", "c1", "Ready")}}, errors: map[string]error{"root:a": broken}}
	if _, err := Read(t.Context(), r, root(t), false); !errors.Is(err, broken) {
		t.Error(err)
	}
	forbidden := apierrors.NewForbidden(tenancyv1alpha1.Resource("workspaces"), "", errors.New("no"))
	if _, err := Read(t.Context(), reader{errors: map[string]error{"root": forbidden}}, root(t), false); !apierrors.IsForbidden(err) {
		t.Errorf("unreadable root: %v", err)
	}
}
