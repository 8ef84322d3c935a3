package agent

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
)

func TestASchemaThatCannotBeComparedKeepsItsFormerResult(t *testing.T) {
	exported, err := parse([]byte(`[{"metadata":{"name":"v1.a"},"spec":{"group":"x","versions":[{"name":"v1"},{"name":"v2","storage":true}]}},
		{"metadata":{"name":"v2.b"},"spec":{"versions":[{"name":"v1","storage":true}]}},{"metadata":{"name":"v1.c"}},{"metadata":{"name":"v1.d"}}]`))
	if err != nil {
		t.Fatal(err)
	}
	if paths := pathsOf(exported); !slices.Equal(paths, []string{"apis/x/v2", "api/v1"}) {
		t.Errorf("the paths are %v", paths)
	}
	result := func(name string, state v1alpha1.ResourceState) v1alpha1.ClusterResource {
		return v1alpha1.ClusterResource{Resource: name[3:], Schema: name, State: state}
	}
	bad, good := v1alpha1.ResourceIncompatible, v1alpha1.ResourceAccepted
	former := []v1alpha1.ClusterResource{result("v1.a", bad), result("v1.b", bad), result("v1.c", bad), result("v1.gone", bad)}
	compared := []v1alpha1.ClusterResource{result("v1.c", good)}
	want := []v1alpha1.ClusterResource{result("v1.a", bad), result("v1.c", good)} // b has another schema now, and d is new
	if diff := cmp.Diff(want, withFormer(exported, compared, former)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
