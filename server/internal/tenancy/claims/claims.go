package claims

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
)

// Key identifies a claim within an export or a binding.
type Key struct {
	schema.GroupResource
	IdentityHash string
}

// KeyOf returns the key of a claim.
func KeyOf(claim *apisv1alpha2.PermissionClaim) Key {
	return Key{schema.GroupResource{Group: claim.Group, Resource: claim.Resource}, claim.IdentityHash}
}

// String returns the name of the claim in messages.
func (k Key) String() string {
	if k.IdentityHash == "" {
		return k.GroupResource.String()
	}
	return k.GroupResource.String() + ":" + k.IdentityHash
}

// Comparison contains the differences between the claims of an export, those that a binding accepts and those that are in
// effect. All claims have the form and order of the binding.
type Comparison struct {
	// Expected are accepted and exported: they must be in effect.
	Expected []apisv1alpha2.ScopedPermissionClaim
	// Unexpected are accepted, and the export does not have them.
	Unexpected []apisv1alpha2.ScopedPermissionClaim
	// Apply are expected and not in effect.
	Apply []apisv1alpha2.ScopedPermissionClaim
	// Reselect are expected, and in effect for another selector or with another label.
	Reselect []apisv1alpha2.ScopedPermissionClaim
	// Remove are in effect and no longer accepted.
	Remove []apisv1alpha2.ScopedPermissionClaim
}

// Compare returns the required changes for the claims of a binding.
func Compare(exported []apisv1alpha2.PermissionClaim, binding *apisv1alpha2.APIBinding) Comparison {
	exports := sets.New[Key]()
	for i := range exported {
		exports.Insert(KeyOf(&exported[i]))
	}
	applied := map[Key]*apisv1alpha2.ScopedPermissionClaim{}
	for i := range binding.Status.AppliedPermissionClaims {
		claim := &binding.Status.AppliedPermissionClaims[i]
		applied[KeyOf(&claim.PermissionClaim)] = claim
	}
	var c Comparison
	accepted := sets.New[Key]()
	for _, claim := range Accepted(binding) {
		key := KeyOf(&claim.PermissionClaim)
		accepted.Insert(key)
		if !exports.Has(key) {
			c.Unexpected = append(c.Unexpected, claim)
			continue
		}
		c.Expected = append(c.Expected, claim)
		if before := applied[key]; before == nil {
			c.Apply = append(c.Apply, claim)
		} else if !equality.Semantic.DeepEqual(before.Selector, claim.Selector) || Listed(before.Verbs) != Listed(claim.Verbs) {
			c.Reselect = append(c.Reselect, claim)
		}
	}
	for _, claim := range binding.Status.AppliedPermissionClaims {
		if !accepted.Has(KeyOf(&claim.PermissionClaim)) {
			c.Remove = append(c.Remove, claim)
		}
	}
	return c
}

// Accepted returns the claims that a binding accepts.
func Accepted(binding *apisv1alpha2.APIBinding) []apisv1alpha2.ScopedPermissionClaim {
	var accepted []apisv1alpha2.ScopedPermissionClaim
	for _, claim := range binding.Spec.PermissionClaims {
		if claim.State == apisv1alpha2.ClaimAccepted {
			accepted = append(accepted, claim.ScopedPermissionClaim)
		}
	}
	return accepted
}

// Applied returns the claims that are in effect after the objects of all changed claims are labeled, except for the
// objects of some claims.
func (c *Comparison) Applied(failed sets.Set[Key]) []apisv1alpha2.ScopedPermissionClaim {
	var applied []apisv1alpha2.ScopedPermissionClaim
	for _, claim := range c.Expected {
		if !failed.Has(KeyOf(&claim.PermissionClaim)) {
			applied = append(applied, claim)
		}
	}
	return applied
}

// EffectiveVerbs returns the verbs on both sides of a claim. "*" is an ordinary verb here: all verbs are allowed only if
// both sides have it.
func EffectiveVerbs(exported, accepted []string) sets.Set[string] {
	return sets.New(exported...).Intersection(sets.New(accepted...))
}

// Allows reports whether effective verbs include a verb.
func Allows(effective sets.Set[string], verb string) bool { return effective.HasAny(verb, "*") }

// Mismatch is the difference between a claim that a binding accepts and the claim of the export.
type Mismatch struct {
	Key Key
	// Verbs are on one side only, sorted; never "*".
	Verbs []string
	// Selector means that the binding's selector is not the export's default.
	Selector bool
}

// String returns the difference for messages to users of the binding.
func (m Mismatch) String() string {
	var about []string
	if len(m.Verbs) > 0 {
		about = append(about, "verbs "+strings.Join(m.Verbs, ", "))
	}
	if m.Selector {
		about = append(about, "selector")
	}
	return fmt.Sprintf("%s (%s)", m.Key, strings.Join(about, "; "))
}

// Mismatches returns the mismatches of expected claims.
func Mismatches(exported []apisv1alpha2.PermissionClaim, expected []apisv1alpha2.ScopedPermissionClaim) []Mismatch {
	var mismatches []Mismatch
	for i := range expected {
		claim := &expected[i]
		at := slices.IndexFunc(exported, func(e apisv1alpha2.PermissionClaim) bool { return KeyOf(&e) == KeyOf(&claim.PermissionClaim) })
		if at < 0 {
			continue
		}
		m := Mismatch{
			Key:   KeyOf(&claim.PermissionClaim),
			Verbs: sets.List(sets.New(exported[at].Verbs...).SymmetricDifference(sets.New(claim.Verbs...)).Delete("*")),
		}
		if selector := exported[at].DefaultSelector; selector != nil {
			m.Selector = !equality.Semantic.DeepEqual(*selector, claim.Selector)
		}
		if len(m.Verbs) > 0 || m.Selector {
			mismatches = append(mismatches, m)
		}
	}
	return mismatches
}

// List returns the first items in one line, for messages of conditions, and the number of further items.
func List[T fmt.Stringer](items []T, most int) string {
	var texts []string
	for _, item := range items[:min(most, len(items))] {
		texts = append(texts, item.String())
	}
	text := strings.Join(texts, ", ")
	if more := len(items) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
