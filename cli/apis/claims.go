package apis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
)

// State is what became of a claim.
type State string

// Besides the answers of a binding there are the claims that it does not answer, and the answers to what is not claimed.
const (
	Accepted   = State(apisv1alpha2.ClaimAccepted)
	Rejected   = State(apisv1alpha2.ClaimRejected)
	Open       = State("Open")
	NotClaimed = State("NotClaimed")
)

// Claim is what an export claims in the workspaces that bind it, and the answer of one of them.
type Claim struct {
	Binding      string `json:"binding"`
	Group        string `json:"group"`
	Resource     string `json:"resource"`
	IdentityHash string `json:"identityHash,omitempty"`
	// Verbs that are claimed.
	Verbs []string `json:"verbs,omitempty"`
	State State    `json:"state"`
	// AnsweredVerbs are those that the answer is about.
	AnsweredVerbs []string                              `json:"answeredVerbs,omitempty"`
	Selector      *apisv1alpha2.PermissionClaimSelector `json:"selector,omitempty"`
}

// Name is the resource with its group, as flags name claims.
func (c Claim) Name() string { return nameOf(c.Group, c.Resource) }

// Differs tells that more or less is claimed than was answered.
func (c Claim) Differs() bool {
	return (c.State == Accepted || c.State == Rejected) && !sets.New(c.Verbs...).Equal(sets.New(c.AnsweredVerbs...))
}

// ClaimName is how people name what an export claims: the empty group is core.
func ClaimName(claim apisv1alpha2.PermissionClaim) string { return nameOf(claim.Group, claim.Resource) }

func nameOf(group, resource string) string { return resource + "." + cmp.Or(group, "core") }

// isNamed tells whether a claim has a name; the group core need not be told.
func isNamed(claim apisv1alpha2.PermissionClaim, name string) bool {
	return name == ClaimName(claim) || (claim.Group == "" && name == claim.Resource)
}

func isSame(a, b apisv1alpha2.PermissionClaim) bool {
	return a.Group == b.Group && a.Resource == b.Resource && a.IdentityHash == b.IdentityHash
}

// ClaimsOf returns what the export of a binding claims with its answers, and then the answers to what it does not claim.
func ClaimsOf(binding *apisv1alpha2.APIBinding) []Claim {
	var claims []Claim
	for _, exported := range binding.Status.ExportPermissionClaims {
		claim := Claim{Binding: binding.Name, Group: exported.Group, Resource: exported.Resource, IdentityHash: exported.IdentityHash,
			Verbs: exported.Verbs, State: Open}
		for _, answer := range binding.Spec.PermissionClaims {
			if isSame(answer.PermissionClaim, exported) {
				claim.State, claim.AnsweredVerbs, claim.Selector = cmp.Or(State(answer.State), Open), answer.Verbs, &answer.Selector
			}
		}
		claims = append(claims, claim)
	}
	for _, answer := range binding.Spec.PermissionClaims {
		if !slices.ContainsFunc(binding.Status.ExportPermissionClaims, func(c apisv1alpha2.PermissionClaim) bool { return isSame(c, answer.PermissionClaim) }) {
			claims = append(claims, Claim{Binding: binding.Name, Group: answer.Group, Resource: answer.Resource, IdentityHash: answer.IdentityHash,
				State: NotClaimed, AnsweredVerbs: answer.Verbs, Selector: &answer.Selector})
		}
	}
	return claims
}

// Answers are what somebody says to the claims of an export.
type Answers struct {
	// Accepted and Rejected are names of claims.
	Accepted, Rejected []string
	// Others is the answer to all other claims. Without one they stay open.
	Others State
}

// Any tells whether anything is said.
func (a Answers) Any() bool { return len(a.Accepted)+len(a.Rejected) > 0 || a.Others != "" }

// Give writes the answers to claims into a binding, and refuses answers to what is not claimed.
func (a Answers) Give(binding *apisv1alpha2.APIBinding, claims []apisv1alpha2.PermissionClaim) error {
	for _, name := range slices.Concat(a.Accepted, a.Rejected) {
		if _, err := Select(claims, []string{name}, ""); err != nil {
			return err
		}
	}
	for _, claim := range claims {
		named := func(name string) bool { return isNamed(claim, name) }
		accepted, rejected := slices.ContainsFunc(a.Accepted, named), slices.ContainsFunc(a.Rejected, named)
		switch {
		case accepted && rejected:
			return fmt.Errorf("the claim on %s is both accepted and rejected", ClaimName(claim))
		case accepted:
			Answer(binding, claim, Accepted)
		case rejected:
			Answer(binding, claim, Rejected)
		case a.Others != "":
			Answer(binding, claim, a.Others)
		}
	}
	return nil
}

// Select returns the claims with the given names and identity. No names, or no identity, select all.
func Select(claims []apisv1alpha2.PermissionClaim, names []string, identityHash string) ([]apisv1alpha2.PermissionClaim, error) {
	if len(names) == 0 {
		names = []string{""}
	}
	var selected []apisv1alpha2.PermissionClaim
	for _, name := range names {
		found := false
		for _, claim := range claims {
			if (name == "" || isNamed(claim, name)) && (identityHash == "" || identityHash == claim.IdentityHash) {
				selected, found = append(selected, claim), true
			}
		}
		if !found {
			return nil, notClaimed(claims, name, identityHash)
		}
	}
	return selected, nil
}

func notClaimed(claims []apisv1alpha2.PermissionClaim, name, identityHash string) error {
	what := "anything"
	if name != "" {
		what = name
	}
	if identityHash != "" {
		what += " with the identity hash " + identityHash
	}
	if len(claims) == 0 {
		return fmt.Errorf("the export does not claim %s: it has no claims", what)
	}
	return fmt.Errorf("the export does not claim %s; it claims %s", what, strings.Join(ClaimNames(claims), ", "))
}

// ClaimNames returns the names of claims, in their order.
func ClaimNames(claims []apisv1alpha2.PermissionClaim) []string {
	names := make([]string, len(claims))
	for i, claim := range claims {
		names[i] = ClaimName(claim)
	}
	return names
}

// Answer writes the answer to a claim into a binding, for the verbs that are claimed now, and tells whether that changes
// anything. What objects the answer is about cannot be changed: by default all, unless the export says otherwise.
func Answer(binding *apisv1alpha2.APIBinding, claim apisv1alpha2.PermissionClaim, state State) bool {
	for i := range binding.Spec.PermissionClaims {
		answer := &binding.Spec.PermissionClaims[i]
		if isSame(answer.PermissionClaim, claim) {
			if State(answer.State) == state && sets.New(answer.Verbs...).Equal(sets.New(claim.Verbs...)) {
				return false
			}
			answer.State, answer.Verbs = apisv1alpha2.AcceptablePermissionClaimState(state), claim.Verbs
			return true
		}
	}
	answer := apisv1alpha2.AcceptablePermissionClaim{State: apisv1alpha2.AcceptablePermissionClaimState(state)}
	answer.PermissionClaim = claim
	answer.DefaultSelector = nil
	answer.Selector.MatchAll = true
	if claim.DefaultSelector != nil {
		answer.Selector = *claim.DefaultSelector
	}
	binding.Spec.PermissionClaims = append(binding.Spec.PermissionClaims, answer)
	return true
}

// Renew makes the answers of a binding about what is claimed now: with the same verbs, and none to what is not claimed any more.
// It returns what changed.
func Renew(binding *apisv1alpha2.APIBinding) []Claim {
	var changed []Claim
	for _, claim := range ClaimsOf(binding) {
		if claim.Differs() || claim.State == NotClaimed {
			changed = append(changed, claim)
		}
	}
	exported := binding.Status.ExportPermissionClaims
	binding.Spec.PermissionClaims = slices.DeleteFunc(binding.Spec.PermissionClaims, func(answer apisv1alpha2.AcceptablePermissionClaim) bool {
		return !slices.ContainsFunc(exported, func(c apisv1alpha2.PermissionClaim) bool { return isSame(c, answer.PermissionClaim) })
	})
	for i := range binding.Spec.PermissionClaims {
		for _, claim := range exported {
			if answer := &binding.Spec.PermissionClaims[i]; isSame(answer.PermissionClaim, claim) {
				answer.Verbs = claim.Verbs
			}
		}
	}
	return changed
}

// Warnings says in sentences where a binding lacks an answer to what its export claims.
func Warnings(binding *apisv1alpha2.APIBinding) []string {
	about := fmt.Sprintf("the APIBinding %q to %s", binding.Name, Export(binding))
	var warnings []string
	for _, claim := range ClaimsOf(binding) {
		verbs := strings.Join(claim.Verbs, ", ")
		switch {
		case claim.State == Open:
			warnings = append(warnings, fmt.Sprintf("%s neither accepts nor rejects the claim on %s (%s)", about, claim.Name(), verbs))
		case claim.Differs():
			warnings = append(warnings, fmt.Sprintf("%s answers the claim on %s for %s, and the export claims %s",
				about, claim.Name(), strings.Join(claim.AnsweredVerbs, ", "), verbs))
		}
	}
	return warnings
}
