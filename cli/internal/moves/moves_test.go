package moves

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/cli/internal/location"
)

// children are the workspaces below each path.
type children map[string][]tenancyv1alpha1.Workspace

func (c children) Children(_ context.Context, l location.Location, _ int) ([]tenancyv1alpha1.Workspace, bool, error) {
	return c[l.Cluster()], false, nil
}

func workspace(name, cluster string, mounted bool) tenancyv1alpha1.Workspace {
	ws := tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: tenancyv1alpha1.WorkspaceSpec{Cluster: cluster}}
	if mounted {
		ws.Spec.Mount = &tenancyv1alpha1.Mount{}
	}
	return ws
}

func TestWhatHasALogicalClusterMoves(t *testing.T) {
	at, err := location.Parse("https://kcp.test/clusters/root:org")
	if err != nil {
		t.Fatal(err)
	}
	below := children{"root:org": {workspace("team", "t", false), workspace("mount", "", true), workspace("new", "", false)}}
	for name, c := range map[string]struct {
		ws    tenancyv1alpha1.Workspace
		below bool
		want  []string
		err   error
	}{
		"a workspace":           {workspace("org", "o", false), false, []string{"root:org"}, nil},
		"with those below it":   {workspace("org", "o", false), true, []string{"root:org:team", "root:org"}, nil},
		"a mount":               {workspace("org", "", true), false, nil, ErrMount},
		"an unscheduled one":    {workspace("org", "", false), false, nil, ErrUnscheduled},
		"a mount, with --below": {workspace("org", "", true), true, nil, ErrMount},
	} {
		moves, err := Plan(t.Context(), below, at, &c.ws, "west", c.below)
		if !errors.Is(err, c.err) || len(moves) != len(c.want) {
			t.Errorf("%s: got %v, %v", name, moves, err)
			continue
		}
		for i, m := range moves {
			if m.Path != c.want[i] || m.To != "west" {
				t.Errorf("%s: move %d is %+v, want %s", name, i, m, c.want[i])
			}
		}
	}
}
