package authorization

import (
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kcplane/kcp/server/logicalcluster"
)

func names(n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprint(i))
	}
	return list
}

func TestTheCombinationsOfARoleAreLimited(t *testing.T) {
	for name, rule := range map[string]rbacv1.PolicyRule{
		"of groups, resources and verbs": {APIGroups: names(22), Resources: names(22), Verbs: names(22)},
		"of names":                       {APIGroups: names(1), Resources: names(10), Verbs: names(10), ResourceNames: names(101)},
		"of URLs":                        {NonResourceURLs: names(1001), Verbs: names(10)},
		"with long names":                {APIGroups: names(1), Resources: names(1), Verbs: names(100), ResourceNames: []string{strings.Repeat("x", 100_000)}},
		"that overflow":                  {APIGroups: names(100_000), Resources: names(100_000), Verbs: names(100_000), ResourceNames: names(100_000)},
	} {
		if err := CheckCombinations([]rbacv1.PolicyRule{rule}); err == nil || !strings.Contains(err.Error(), "at most 10000 can be compared") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	good := []rbacv1.PolicyRule{{APIGroups: names(10), Resources: names(100), Verbs: names(9)}, {NonResourceURLs: names(10), Verbs: names(10)}}
	if err := CheckCombinations(good); err != nil {
		t.Error(err)
	}
}

func TestTheCombinationsOfABoundRoleAreLimited(t *testing.T) {
	role := &rbacv1.ClusterRole{ObjectMeta: at("a", "large", nil), Rules: []rbacv1.PolicyRule{{APIGroups: names(100), Resources: names(1000), Verbs: names(1000)}}}
	rules := NewRules(setOf(t, role))
	got, err := rules.GetRoleReferenceRules(logicalcluster.WithName(t.Context(), "a"), rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "large"}, "")
	if got != nil || err == nil {
		t.Errorf("got %d rules, %v", len(got), err)
	}
}

func TestTheListedRulesOfAUserAreLimited(t *testing.T) {
	rules := NewRules(setOf(t, append(rolesWith(20, 1000), bindTo("b", "view", "u"))...))
	got, err := rules.RulesFor(logicalcluster.WithName(t.Context(), "a"), &user.DefaultInfo{Name: "u"}, "")
	if len(got) != maxRulesOfUser || err == nil {
		t.Errorf("got %d rules, %v", len(got), err)
	}
}
