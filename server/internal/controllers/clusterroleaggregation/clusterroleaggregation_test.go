package clusterroleaggregation

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func selecting(label string) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "all"}, AggregationRule: &rbacv1.AggregationRule{
		ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{label: "true"}}},
	}}
}

func part(name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"part": "true"}}, Rules: rules}
}

func reading(resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: resources}
}

func TestEachDistinctRuleIsAggregatedOnce(t *testing.T) {
	empty := reading("a")
	empty.ResourceNames = []string{}
	rules, err := aggregate(selecting("part"), []*rbacv1.ClusterRole{
		part("z", reading("b", "c"), reading("a")), part("y", reading("a"), reading("bc")), part("x", empty), {ObjectMeta: metav1.ObjectMeta{Name: "other"}, Rules: []rbacv1.PolicyRule{reading("d")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, rule := range rules {
		got = append(got, fmt.Sprint(rule.Resources))
	}
	if want := []string{"[a]", "[bc]", "[b c]"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// With a comparison of every two rules this takes minutes.
func TestManyRulesAreAggregatedUpToALimit(t *testing.T) {
	var parts []*rbacv1.ClusterRole
	for i := range 20 {
		var rules []rbacv1.PolicyRule
		for j := range maxRules / 20 {
			rules = append(rules, reading(fmt.Sprintf("r-%d-%d", i, j)))
		}
		parts = append(parts, part(fmt.Sprint(i), rules...))
	}
	if rules, err := aggregate(selecting("part"), parts); err != nil || len(rules) != maxRules {
		t.Fatalf("got %d rules, %v", len(rules), err)
	}
	if _, err := aggregate(selecting("part"), append(parts, part("more", reading("more")))); !errors.Is(err, errTooMany) {
		t.Errorf("got %v", err)
	}
}
