package authorization

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/logicalcluster"
)

func bindTo(name, role string, users ...string) *rbacv1.ClusterRoleBinding {
	b := &rbacv1.ClusterRoleBinding{ObjectMeta: at("a", name, nil), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}}
	for _, u := range users {
		b.Subjects = append(b.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: u})
	}
	return b
}

// rolesWith returns ClusterRoles that are aggregated into view, each with so many rules.
func rolesWith(n, rules int) (roles []runtime.Object) {
	for i := range n {
		role := &rbacv1.ClusterRole{ObjectMeta: at("a", fmt.Sprintf("part-%d", i), map[string]string{"rbac.authorization.k8s.io/aggregate-to-view": "true"})}
		for j := range rules {
			role.Rules = append(role.Rules, rule([]string{"example.com"}, []string{fmt.Sprintf("r-%d-%d", i, j)}, "get"))
		}
		roles = append(roles, role)
	}
	return roles
}

func visits(t *testing.T, r *Rules, who string) (rules int, errs []error) {
	t.Helper()
	r.VisitRulesFor(logicalcluster.WithName(t.Context(), "a"), &user.DefaultInfo{Name: who}, "", func(_ fmt.Stringer, rule *rbacv1.PolicyRule, err error) bool {
		if rule != nil {
			rules++
		}
		if err != nil {
			errs = append(errs, err)
		}
		return true
	})
	return rules, errs
}

func TestTheRulesOfARoleAreVisitedOnce(t *testing.T) {
	objects := rolesWith(10, 10)
	one, _ := visits(t, NewRules(setOf(t, append(objects, bindTo("b", "view", "u"))...)), "u")
	for i := range 100 {
		objects = append(objects, bindTo(fmt.Sprintf("b-%d", i), "view", "u"), bindTo(fmt.Sprintf("gone-%d", i), "gone", "u"))
	}
	many, errs := visits(t, NewRules(setOf(t, objects...)), "u")
	if many != one || len(errs) != 1 {
		t.Errorf("100 bindings to a role have %d rules, and one has %d; errors: %v", many, one, errs)
	}
}

func TestTheWeightOfAnEvaluationIsLimited(t *testing.T) {
	objects := append(rolesWith(300, 1000), bindTo("b", "view", "u"), bindTo(OwnersBindingName, "cluster-admin", "owner"),
		logicalClusterIn("a", corev1alpha1.LogicalClusterPhaseReady, ""))
	crowd := make([]string, 10_000)
	for i := range 100 {
		objects = append(objects, bindTo(fmt.Sprintf("crowd-%d", i), "view", crowd...))
	}
	rules := NewRules(setOf(t, objects...))
	n, errs := visits(t, rules, "u")
	if n > maxWeight || len(errs) != 1 || !errors.Is(errs[0], errTooMuchRBAC) {
		t.Errorf("got %d rules, and errors %v", n, errs)
	}
	ctx := logicalcluster.WithName(t.Context(), "a")
	want := func(who string, want authorizer.Decision) {
		t.Helper()
		got, reason, err := rules.Authorize(ctx, authorizer.AttributesRecord{User: &user.DefaultInfo{Name: who}, Verb: "delete", APIGroup: "rbac.authorization.k8s.io", Resource: "clusterroles", ResourceRequest: true})
		if got != want || err != nil || (want != allow && !strings.Contains(reason, "too many roles, rules and role bindings to evaluate")) {
			t.Errorf("%s: got %v, %q, %v", who, got, reason, err)
		}
	}
	want("owner", allow) // who can delete roles
	want("u", noOpinion)
	if len(rules.lanes.clusters) > 0 || len(rules.lanes.all) > 0 {
		t.Error("a heavy evaluation is still in its lane")
	}
}

func TestHeavyEvaluationsOfAClusterTakeTurns(t *testing.T) {
	l := newLanes()
	l.all = make(chan struct{}, 2)
	if err := l.enter(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.enter(over, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("a second evaluation of a cluster got %v", err)
	}
	if err := l.enter(t.Context(), "b"); err != nil {
		t.Errorf("that of another cluster got %v", err)
	}
	if err := l.enter(over, "c"); !errors.Is(err, context.Canceled) {
		t.Errorf("one more than there are lanes got %v", err)
	}
	l.leave("a")
	l.leave("b")
	if len(l.clusters) > 0 || len(l.all) > 0 {
		t.Error("something is left")
	}
}
