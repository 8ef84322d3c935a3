package authorization

import (
	"fmt"
	"math"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Who writes a role, or binds one, without the right to escalate or bind must have all that it grants. Upstream checks that by taking the
// rules apart into combinations of one group, resource, verb and name, and compares each of these with every rule that applies to the user.
const (
	// MaxCombinations is how many combinations the rules of such a role may have.
	MaxCombinations = 10_000
	// maxRulesOfUser is how many rules of the user count.
	maxRulesOfUser = 10_000
	// namePerCombination is the length of the names in a combination that weigh as much as another one: the refusal lists them.
	namePerCombination = 256
)

// CheckCombinations returns an error if rules have more combinations than are compared.
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
		return fmt.Errorf("the rules have %.0f combinations of group, resource, verb and name; at most %d can be compared with the permissions of "+
			"the user who grants them: split the role, use \"*\", or let a user with the verbs escalate and bind write and bind it",
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
