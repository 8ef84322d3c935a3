package conditions_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/apply"
	"github.com/kcplane/kcp/operator/internal/conditions"
	"github.com/kcplane/kcp/operator/internal/operatortest"
)

func TestResultsOfDependenciesBecomeConditions(t *testing.T) {
	failure := errors.New("connection refused")
	for _, test := range []struct {
		name  string
		found map[string]error
		want  map[string]string // status, reason and message of conditions
		retry bool
	}{
		{"all is well", map[string]error{"A": nil, "B": nil}, map[string]string{
			"A": "True AsExpected ", "B": "True AsExpected ", "Ready": "True Reconciled all resources match the spec",
			"Reconciling": "False Reconciled ", "Stalled": "False Reconciled "}, false},
		{"a dependency is in progress", map[string]error{"A": conditions.Wait("Slow", "waiting for %s", "x"), "B": nil}, map[string]string{
			"A": "False Slow waiting for x", "B": "True AsExpected ", "Ready": "False Slow waiting for x",
			"Reconciling": "True Slow waiting for x", "Stalled": "False Progressing "}, false},
		{"a stalled dependency has precedence", map[string]error{"A": conditions.Wait("Slow", "waiting"), "B": conditions.Stall("Wrong", "fix b")}, map[string]string{
			"A": "False Slow waiting", "B": "False Wrong fix b", "Ready": "False Wrong fix b",
			"Reconciling": "False Wrong action required, see condition Stalled", "Stalled": "True Wrong fix b"}, false},
		{"a name is taken", map[string]error{"A": fmt.Errorf("a: %w", &apply.TakenError{Kind: "Secret", Name: "s", By: "Pod p"}), "B": nil}, map[string]string{
			"A": "False NameConflict a: Secret s exists and belongs to Pod p: delete it, or choose another name", "B": "True AsExpected ",
			"Ready":       "False NameConflict a: Secret s exists and belongs to Pod p: delete it, or choose another name",
			"Reconciling": "False NameConflict action required, see condition Stalled",
			"Stalled":     "True NameConflict a: Secret s exists and belongs to Pod p: delete it, or choose another name"}, false},
		{"an error is tried again", map[string]error{"A": failure}, map[string]string{
			"A": "False ReconcileError connection refused", "B": "Unknown PrerequisiteNotMet a prerequisite is not met, see condition A",
			"Ready":       "False ReconcileError connection refused",
			"Reconciling": "True ReconcileError connection refused", "Stalled": "False Progressing "}, true},
		{"the rest has no condition", map[string]error{"A": nil, "B": nil, conditions.Rest: conditions.Wait("Rolling", "1 of 2")}, map[string]string{
			"A": "True AsExpected ", "B": "True AsExpected ", "Ready": "False Rolling 1 of 2",
			"Reconciling": "True Rolling 1 of 2", "Stalled": "False Progressing "}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			report := conditions.NewReport("A", "B", conditions.Rest)
			for dependency, err := range test.found {
				report.Set(dependency, err)
			}
			var written []metav1.Condition
			report.Write(&written, 7)
			got := map[string]string{}
			for _, c := range written {
				got[c.Type] = fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message)
				if c.ObservedGeneration != 7 {
					t.Errorf("%s is of generation %d", c.Type, c.ObservedGeneration)
				}
			}
			if diff := cmp.Diff(test.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
			if (report.Err() != nil) != test.retry {
				t.Errorf("error %v", report.Err())
			}
			if report.Ready() != (got["Ready"][:4] == "True") {
				t.Errorf("Ready() is %v", report.Ready())
			}
		})
	}
}

// Caches may be outdated.
func TestATransitionHasOneEvent(t *testing.T) {
	c := operatortest.New(&v1alpha1.RootShard{ObjectMeta: metav1.ObjectMeta{Name: "kcp"}})
	stale := operatortest.Read(t, c, "kcp", &v1alpha1.RootShard{})
	save := func(before *v1alpha1.RootShard, reason string) error {
		after := before.DeepCopy()
		report := conditions.NewReport(conditions.Rest)
		report.Set(conditions.Rest, conditions.Wait(reason, "waiting"))
		report.Write(&after.Status.Conditions, 1)
		return conditions.Save(t.Context(), c, c.Events, before, after, before.Status.Conditions, after.Status.Conditions)
	}
	if err := save(stale, "Slow"); err != nil || len(c.Events.Events) != 1 {
		t.Errorf("%v, %d events", err, len(c.Events.Events))
	}
	if err := save(stale, "Slow"); !apierrors.IsConflict(err) || len(c.Events.Events) != 1 {
		t.Errorf("with a copy that is out of date: %v, %d events", err, len(c.Events.Events))
	}
	for want, reason := range []string{"Slow", "Slower"} {
		if err := save(operatortest.Read(t, c, "kcp", &v1alpha1.RootShard{}), reason); err != nil || len(c.Events.Events) != 1+want {
			t.Errorf("%s: %v, %d events", reason, err, len(c.Events.Events))
		}
	}
}
