package boundschemas

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
)

func TestAnUnusedSchemaIsDeletedAfterTheGracePeriod(t *testing.T) {
	now := time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)
	ago := func(d time.Duration) string { return now.Add(-d).Format(time.RFC3339) }
	for name, tc := range map[string]struct {
		mark  string
		used  bool
		age   time.Duration
		do    int
		after time.Duration
	}{
		"used":                        {"", true, time.Hour, nothing, 0},
		"used again":                  {ago(time.Hour), true, time.Hour, markUsed, 0},
		"made for a binding":          {"", false, time.Second, wait, settling - time.Second},
		"not used any more":           {"", false, time.Hour, markUnused, grace},
		"not used for a moment":       {ago(time.Minute), false, time.Hour, wait, grace - time.Minute},
		"not used for long enough":    {ago(grace), false, time.Hour, remove, 0},
		"marked with an invalid time": {"long ago", false, time.Hour, markUnused, grace},
		"marked with a later clock":   {ago(-time.Minute), false, time.Hour, markUnused, grace},
	} {
		if do, after := decide(tc.mark, tc.used, tc.age, now); do != tc.do || after != tc.after {
			t.Errorf("%s: %d after %s, want %d after %s", name, do, after, tc.do, tc.after)
		}
	}
}

func TestUsesAreCountedWhenBindingsChange(t *testing.T) {
	r := &reconciler{uses: map[string]int{}, controller: runner.New("test", 1, nil)}
	binding := func(uids ...string) runtime.Object {
		b := &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"}}
		for _, uid := range uids {
			b.Status.BoundResources = append(b.Status.BoundResources, apisv1alpha2.BoundAPIResource{Schema: apisv1alpha2.BoundAPIResourceSchema{UID: uid}})
		}
		return b
	}
	check := func(uid string, want bool) {
		t.Helper()
		if r.used(uid) != want {
			t.Errorf("%s is used: %t", uid, !want)
		}
	}
	r.count(nil, binding("a", "b"))
	r.count(nil, binding("a"))
	r.count(binding("a", "b"), binding("a", "c")) // the export names another schema
	check("a", true)
	check("b", false)
	check("c", true)
	r.count(binding("a"), nil)
	check("a", true)
	r.count(binding("a", "c"), nil)
	check("a", false)
	if len(r.uses) > 0 {
		t.Errorf("unused schemas are counted: %v", r.uses)
	}
}
