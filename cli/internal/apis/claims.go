package apis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
)

// State is the state of a permission claim in a binding.
type State string

// A claim is Open if the binding neither accepts nor rejects it. It is NotClaimed if only the binding has it, and not its export.
const (
	Accepted   = State(apisv1alpha2.ClaimAccepted)
	Rejected   = State(apisv1alpha2.ClaimRejected)
	Open       = State("Open")
	NotClaimed = State("NotClaimed")
)

// Claim is a permission claim of an export together with its state in a binding.
type Claim struct {
	Binding      string `json:"binding"`
	Group        string `json:"group"`
	Resource     string `json:"resource"`
	IdentityHash string `json:"identityHash,omitempty"`
	// Verbs that the export claims.
	Verbs []string `json:"verbs,omitempty"`
	State State    `json:"state"`
	// AnsweredVerbs are the verbs that the binding accepts or rejects.
	AnsweredVerbs []string                              `json:"answeredVerbs,omitempty"`
	Selector      *apisv1alpha2.PermissionClaimSelector `json:"selector,omitempty"`
}

// Name returns <resource>.<group>, as flags refer to claims.
func (c Claim) Name() string { return nameOf(c.Group, c.Resource) }

// Differs reports whether the export claims other verbs than the binding accepts or rejects.
func (c Claim) Differs() bool {
	return (c.State == Accepted || c.State == Rejected) && !sets.New(c.Verbs...).Equal(sets.New(c.AnsweredVerbs...))
}

// ClaimName returns <resource>.<group> of a claim. The empty group is core.
func ClaimName(claim apisv1alpha2.PermissionClaim) string { return nameOf(claim.Group, claim.Resource) }

func nameOf(group, resource string) string { return resource + "." + cmp.Or(group, "core") }

// isNamed reports whether a name refers to a claim. The group core is optional.
func isNamed(claim apisv1alpha2.PermissionClaim, name string) bool {
	return name == ClaimName(claim) || (claim.Group == "" && name == claim.Resource)
}

func isSame(a, b apisv1alpha2.PermissionClaim) bool {
	return a.Group == b.Group && a.Resource == b.Resource && a.IdentityHash == b.IdentityHash
}

// ClaimsOf returns the claims of the export with their state in the binding, followed by claims that only the binding has.
func ClaimsOf(binding *apisv1alpha2.APIBinding) []Claim {
	var claims []Claim
	for _, exported := range binding.Status.ExportPermissionClaims {
		claim := Claim{Binding: binding.Name, Group: exported.Group, Resource: exported.Resource, IdentityHash: exported.IdentityHash,
			Verbs: exported.Verbs, State: Open}
		for _, entry := range binding.Spec.PermissionClaims {
			if isSame(entry.PermissionClaim, exported) {
				claim.State, claim.AnsweredVerbs, claim.Selector = cmp.Or(State(entry.State), Open), entry.Verbs, &entry.Selector
			}
		}
		claims = append(claims, claim)
	}
	for _, entry := range binding.Spec.PermissionClaims {
		if !slices.ContainsFunc(binding.Status.ExportPermissionClaims,
			func(c apisv1alpha2.PermissionClaim) bool { return isSame(c, entry.PermissionClaim) }) {
			claims = append(claims, Claim{Binding: binding.Name, Group: entry.Group, Resource: entry.Resource, IdentityHash: entry.IdentityHash,
				State: NotClaimed, AnsweredVerbs: entry.Verbs, Selector: &entry.Selector})
		}
	}
	return claims
}

// Decisions are the claims to accept and reject.
type Decisions struct {
	// Accepted and Rejected are names of claims.
	Accepted, Rejected []string
	// Others is the state of all other claims. They stay open if it is empty.
	Others State
}

// Any reports whether there is anything to accept or reject.
func (d Decisions) Any() bool { return len(d.Accepted)+len(d.Rejected) > 0 || d.Others != "" }

// Apply accepts and rejects claims in a binding. It refuses names that are not claimed.
func (d Decisions) Apply(binding *apisv1alpha2.APIBinding, claims []apisv1alpha2.PermissionClaim) error {
	for _, name := range slices.Concat(d.Accepted, d.Rejected) {
		if _, err := Select(claims, []string{name}, ""); err != nil {
			return err
		}
	}
	for _, claim := range claims {
		named := func(name string) bool { return isNamed(claim, name) }
		accepted, rejected := slices.ContainsFunc(d.Accepted, named), slices.ContainsFunc(d.Rejected, named)
		switch {
		case accepted && rejected:
			return fmt.Errorf("permission claim on %s is both accepted and rejected", ClaimName(claim))
		case accepted:
			SetState(binding, claim, Accepted)
		case rejected:
			SetState(binding, claim, Rejected)
		case d.Others != "":
			SetState(binding, claim, d.Others)
		}
	}
	return nil
}

// Select returns the claims with the given names and identity hash. Empty names or an empty hash match all.
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
		return fmt.Errorf("the APIExport does not claim %s: it has no permission claims", what)
	}
	return fmt.Errorf("the APIExport does not claim %s; it claims %s", what, strings.Join(ClaimNames(claims), ", "))
}

// ClaimNames returns the names of claims in the given order.
func ClaimNames(claims []apisv1alpha2.PermissionClaim) []string {
	names := make([]string, len(claims))
	for i, claim := range claims {
		names[i] = ClaimName(claim)
	}
	return names
}

// SetState accepts or rejects a claim in a binding with the verbs that are claimed now, and reports whether that changes the binding. The
// selector of an existing entry is immutable; a new entry selects the default of the export, or all objects.
func SetState(binding *apisv1alpha2.APIBinding, claim apisv1alpha2.PermissionClaim, state State) bool {
	for i := range binding.Spec.PermissionClaims {
		entry := &binding.Spec.PermissionClaims[i]
		if isSame(entry.PermissionClaim, claim) {
			if State(entry.State) == state && sets.New(entry.Verbs...).Equal(sets.New(claim.Verbs...)) {
				return false
			}
			entry.State, entry.Verbs = apisv1alpha2.AcceptablePermissionClaimState(state), claim.Verbs
			return true
		}
	}
	entry := apisv1alpha2.AcceptablePermissionClaim{State: apisv1alpha2.AcceptablePermissionClaimState(state)}
	entry.PermissionClaim = claim
	entry.DefaultSelector = nil
	entry.Selector.MatchAll = true
	if claim.DefaultSelector != nil {
		entry.Selector = *claim.DefaultSelector
	}
	binding.Spec.PermissionClaims = append(binding.Spec.PermissionClaims, entry)
	return true
}

// UpdateClaims updates the verbs of accepted and rejected claims to what is claimed now, and removes claims that the export no longer
// makes. It returns the changed claims.
func UpdateClaims(binding *apisv1alpha2.APIBinding) []Claim {
	var changed []Claim
	for _, claim := range ClaimsOf(binding) {
		if claim.Differs() || claim.State == NotClaimed {
			changed = append(changed, claim)
		}
	}
	exported := binding.Status.ExportPermissionClaims
	binding.Spec.PermissionClaims = slices.DeleteFunc(binding.Spec.PermissionClaims, func(entry apisv1alpha2.AcceptablePermissionClaim) bool {
		return !slices.ContainsFunc(exported, func(c apisv1alpha2.PermissionClaim) bool { return isSame(c, entry.PermissionClaim) })
	})
	for i := range binding.Spec.PermissionClaims {
		for _, claim := range exported {
			if entry := &binding.Spec.PermissionClaims[i]; isSame(entry.PermissionClaim, claim) {
				entry.Verbs = claim.Verbs
			}
		}
	}
	return changed
}

// Warnings returns a sentence for each claim that is open or outdated in a binding.
func Warnings(binding *apisv1alpha2.APIBinding) []string {
	about := fmt.Sprintf("APIBinding %q to %s", binding.Name, Export(binding))
	var warnings []string
	for _, claim := range ClaimsOf(binding) {
		verbs := strings.Join(claim.Verbs, ", ")
		switch {
		case claim.State == Open:
			warnings = append(warnings, fmt.Sprintf("%s neither accepts nor rejects the permission claim on %s (%s)", about, claim.Name(), verbs))
		case claim.Differs():
			warnings = append(warnings, fmt.Sprintf("%s accepts or rejects the permission claim on %s for %s, but the APIExport now claims %s",
				about, claim.Name(), strings.Join(claim.AnsweredVerbs, ", "), verbs))
		}
	}
	return warnings
}
