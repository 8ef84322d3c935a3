package authorization

import (
	"fmt"
	"math"

	rbacv1 "k8s.io/api/rbac/v1"
)

// A user who writes or binds a role without the verb escalate or bind must have all permissions that the role grants. Upstream checks this
// by splitting the rules into combinations of one group, resource, verb and name, and compares each combination with every rule that
// applies to the user.
const (
	// MaxCombinations limits the combinations in the rules of such a role.
	MaxCombinations = 10_000
	// maxRulesOfUser limits the rules of the user in the comparison.
	maxRulesOfUser = 10_000
	// namePerCombination is the length of names that counts as much as another combination, because the error lists the names.
	namePerCombination = 256
)

// CheckCombinations returns an error if rules have more than MaxCombinations combinations.
func CheckCombinations(rules []rbacv1.PolicyRule) error {
	total := 0.0
	for i := range rules {
		r := &rules[i]
		resources, urls := 1.0, 1.0
		length := 0
		for _, list := range [][]string{r.APIGroups, r.Resources, r.Verbs} {
			resources *= float64(len(list))
			length += longest(list)
		}
		resources *= float64(max(1, len(r.ResourceNames)))
		urls *= float64(len(r.NonResourceURLs) * len(r.Verbs))
		length += longest(r.ResourceNames) + longest(r.NonResourceURLs)
		total += (resources + urls) * float64(1+length/namePerCombination)
	}
	if total > MaxCombinations {
		return fmt.Errorf("the rules have %.0f combinations of group, resource, verb and name; at most %d can be compared with the "+
			"permissions of the user who grants them: split the role, use \"*\", or ask a user with the verbs escalate and bind to do it",
			math.Min(total, 1e12), MaxCombinations)
	}
	return nil
}

func longest(list []string) int {
	n := 0
	for _, text := range list {
		n = max(n, len(text))
	}
	return n
}
