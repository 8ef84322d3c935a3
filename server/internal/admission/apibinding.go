package admission

import (
	"context"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/internal/apis/conversion"
)

// bindingRules refuses bindings with invalid selectors of claims, and protects the phase of a binding and the parts of its status that are
// in annotations.
type bindingRules struct{ rules }

var (
	_ admission.MutationInterface   = bindingRules{}
	_ admission.ValidationInterface = bindingRules{}
)

// statusAnnotations hold parts of the status that one of the versions has no fields for.
var statusAnnotations = []string{
	apisv1alpha2.StatusExportPermissionClaimsAnnotation, apisv1alpha2.V1alpha1StatusExportPermissionClaimsAnnotation,
	apisv1alpha2.StatusAppliedPermissionClaimsAnnotation, apisv1alpha2.V1alpha1StatusAppliedPermissionClaimsAnnotation,
}

// Admit implements admission.MutationInterface. It keeps the annotations in which the conversion stores parts of the status: users who may
// write bindings may not be allowed to write their status.
func (bindingRules) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !isAPIBinding(a) {
		return nil
	}
	m, err := meta.Accessor(a.GetObject())
	if err != nil {
		return fmt.Errorf("%w: %w", errUnexpected, err)
	}
	var before map[string]string
	if a.GetOperation() == admission.Update {
		before = annotations(a.GetOldObject())
	}
	now := m.GetAnnotations()
	for _, key := range statusAnnotations {
		if value, ok := before[key]; ok {
			if now == nil {
				now = map[string]string{}
			}
			now[key] = value
		} else {
			delete(now, key)
		}
	}
	m.SetAnnotations(now)
	return nil
}

// Validate implements admission.ValidationInterface.
func (bindingRules) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != apisv1alpha2.Resource("apibindings") {
		return nil
	}
	binding, before := &apisv1alpha2.APIBinding{}, &apisv1alpha2.APIBinding{}
	if err := decodeV1alpha2(a.GetObject(), binding); err != nil {
		return err
	}
	if a.GetOperation() == admission.Update {
		if err := decodeV1alpha2(a.GetOldObject(), before); err != nil {
			return err
		}
	}
	var errs field.ErrorList
	if binding.Status.Phase == apisv1alpha2.APIBindingPhaseNew && before.Status.Phase != apisv1alpha2.APIBindingPhaseNew {
		errs = append(errs, field.Invalid(field.NewPath("status", "phase"), binding.Status.Phase,
			fmt.Sprintf("the binding is %s already: its phase cannot be unset", before.Status.Phase)))
	}
	if a.GetSubresource() != "" {
		return invalid(a, errs)
	}
	if isV1alpha1(a) {
		shown := &apisv1alpha1.APIBinding{}
		if err := decode(a.GetObject(), shown); err != nil {
			return err
		}
		errs = append(errs, conversion.ValidateBinding(shown)...)
		errs = append(errs, validateHiddenClaims(binding.Spec.PermissionClaims, before.Spec.PermissionClaims)...)
	}
	for i, claim := range binding.Spec.PermissionClaims {
		errs = append(errs, validateSelector(&claim.Selector, claimsPath.Index(i).Child("selector"))...)
	}
	errs = append(errs, validateSize(binding.Spec.PermissionClaims)...)
	size := 0
	for key, value := range binding.Annotations {
		size += len(key) + len(value)
	}
	if size > annotationsLimit {
		errs = append(errs, field.TooLong(annotationsPath, "", annotationsLimit))
	}
	return invalid(a, errs)
}

// validateHiddenClaims checks the rules of the schema of v1alpha2 that the schema of v1alpha1 cannot express.
func validateHiddenClaims(claims, before []apisv1alpha2.AcceptablePermissionClaim) field.ErrorList {
	type key struct{ group, resource, identityHash string }
	keyOf := func(c apisv1alpha2.AcceptablePermissionClaim) key { return key{c.Group, c.Resource, c.IdentityHash} }
	selectors := map[key]apisv1alpha2.PermissionClaimSelector{}
	for _, claim := range before {
		selectors[keyOf(claim)] = claim.Selector
	}
	var errs field.ErrorList
	seen := map[key]bool{}
	for i, claim := range claims {
		if seen[keyOf(claim)] {
			errs = append(errs, field.Duplicate(claimsPath.Index(i), claim.Resource))
		}
		seen[keyOf(claim)] = true
		if selector, ok := selectors[keyOf(claim)]; ok && !reflect.DeepEqual(selector, claim.Selector) {
			errs = append(errs, field.Forbidden(claimsPath.Index(i), fmt.Sprintf(
				"v1alpha1 cannot change the selector, which the annotation %s keeps: leave the annotation as it is, or use v1alpha2",
				apisv1alpha2.AcceptablePermissionClaimsAnnotation)))
		}
	}
	return errs
}
