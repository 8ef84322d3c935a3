package feed

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
)

var configMapsV1 = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

func configMap(name, value string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "uid": name}, "data": map[string]any{"v": value},
	}}
}

// filled returns an index with a namespace of some objects that runs on east.
func filled(objects int) *Index {
	x := newTestIndex()
	x.SetAssignment(assignment(home, "east"))
	for n := range objects {
		name := fmt.Sprint("d", n)
		x.SetObject(home, Key{deployments, name}, deployment(name, "used"))
	}
	return x
}

// operations are what happens often, once for each object.
func operations(tb testing.TB, x *Index) map[string]func() {
	n, key := 0, Key{configMapsV1, "changing"}
	change := func() {
		n++
		x.SetObject(home, key, configMap("changing", fmt.Sprint(n)))
	}
	change()
	a := assignment(home, "east")
	name := nameOf(a, key)
	return map[string]func(){
		"a change of an object": change,
		"a report of an agent": func() {
			n++
			u := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"message": fmt.Sprint(n)}}}
			u.SetName(name)
			if _, err := x.Feed("east").Update(tb.Context(), u, metav1.UpdateOptions{}, "status"); err != nil {
				tb.Fatal(err)
			}
		},
		"a new phase of the assignment": func() {
			n++
			next := assignment(home, "east", func(a *v1alpha1.Assignment) { a.Status.Message = fmt.Sprint(n) })
			if x.SetAssignment(next) {
				tb.Fatal("statuses may be others")
			}
		},
	}
}

func TestTheCostOfAChangeDoesNotDependOnTheOtherObjectsOfTheNamespace(t *testing.T) {
	few, many := operations(t, filled(10)), operations(t, filled(3000))
	for what := range few {
		small, large := testing.AllocsPerRun(100, few[what]), testing.AllocsPerRun(100, many[what])
		if large > 2*small+10 {
			t.Errorf("%s: %.0f allocations in a small namespace, and %.0f in a large one", what, small, large)
		}
	}
}

func TestASecretIsSeenUntilItsLastReferenceDisappears(t *testing.T) {
	x := filled(2)
	x.SetObject(home, Key{secretsV1, "used"}, secret("used"))
	x.SetObject(home, Key{deployments, "d0"}, deployment("d0", "other"))
	if got := strings.Join(seen(t, x, "east"), " "); !strings.Contains(got, "secrets/used") {
		t.Errorf("with one of two references, east sees %s", got)
	}
	x.SetObject(home, Key{deployments, "d1"}, deployment("d1", "other"))
	if got := strings.Join(seen(t, x, "east"), " "); strings.Contains(got, "secrets/used") {
		t.Errorf("without a reference, east sees %s", got)
	}
	x.SetObject(home, Key{deployments, "d0"}, nil)
	x.SetObject(home, Key{deployments, "d1"}, nil)
	if c := x.namespaces[home]; len(c.used) > 0 || len(c.refers) > 0 {
		t.Errorf("references are left: %v, %v", c.used, c.refers)
	}
}

func TestAListOfOneAssignmentHasNothingElse(t *testing.T) {
	x := filled(2)
	other := Namespace{home.Endpoint, "w2", "default"}
	x.SetAssignment(assignment(other, "east"))
	x.SetObject(other, Key{deployments, "d"}, deployment("d", ""))
	list, err := x.Feed("east").List(t.Context(), metav1.ListOptions{
		LabelSelector: assignmentLabel + "=" + AssignmentName(other.Workspace, other.Name, "east"),
	})
	if err != nil || len(list.Items) != 1 {
		t.Errorf("found %d workloads: %v", len(list.Items), err)
	}
}

func TestAClaimIsBoundWhileItHasAVolumeOfOneNode(t *testing.T) {
	x := newTestIndex()
	claim := func(phase, mode string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "PersistentVolumeClaim",
			"spec": map[string]any{"accessModes": []any{mode}}, "status": map[string]any{"phase": phase}}}
	}
	deleted := claim("Bound", "ReadWriteOnce")
	deleted.SetDeletionTimestamp(&metav1.Time{Time: time.Now()})
	key := Key{claims.WithVersion("v1"), "data"}
	for _, test := range []struct {
		claim *unstructured.Unstructured
		want  string
	}{
		{claim("Pending", "ReadWriteOnce"), ""}, {claim("Bound", "ReadWriteOnce"), "data"}, {claim("Bound", "ReadWriteOncePod"), "data"},
		{claim("Bound", "ReadWriteMany"), ""}, {claim("Bound", "ReadWriteOnce"), "data"}, {deleted, ""}, {nil, ""},
	} {
		x.SetObject(home, key, test.claim)
		if got := x.BoundClaim(home); got != test.want {
			t.Errorf("the bound claim is %q, want %q: %v", got, test.want, test.claim)
		}
	}
}

func BenchmarkChange(b *testing.B) {
	for what, do := range operations(b, filled(10000)) {
		b.Run(strings.ReplaceAll(what, " ", "-"), func(b *testing.B) {
			for b.Loop() {
				do()
			}
		})
	}
}
