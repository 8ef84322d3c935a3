package command

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"
)

func TestJoinWithUpdateDoesNotCreateACluster(t *testing.T) {
	objects := fake.NewSimpleDynamicClient(runtime.NewScheme())
	if err := (fleetJoin{update: true}).attach(t.Context(), objects, "east"); !errors.Is(err, errNoFleet) {
		t.Errorf("got %v", err)
	}
	if err := (fleetJoin{}).attach(t.Context(), objects, "east"); err != nil {
		t.Fatal(err)
	}
	if err := (fleetJoin{update: true}).attach(t.Context(), objects, "east"); err != nil {
		t.Errorf("of an attached cluster: %v", err)
	}
}

func TestJoinWithUpdateHasNoOtherChanges(t *testing.T) {
	u := at(t, forest(t), "/clusters/root:org")
	for _, other := range []string{"--replace", "--labels=a=b"} {
		u.fails("if any flags in the group [update", "kcp", "fleet", "join", "east", "--url", "https://fleet.example.com", "--update", other)
	}
}
