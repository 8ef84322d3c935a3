// Package customresourcedefinition accepts the names and sets the conditions of the definitions of every logical cluster, and deletes all
// instances of a definition before the definition.
package customresourcedefinition

import (
	"fmt"
	"strings"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/internal/apis/customresources/limits"
)

// inUse are the names of a resource of the same group and cluster, and a description of its owner.
type inUse struct {
	names apiextensionsv1.CustomResourceDefinitionNames
	by    string
}

// acceptedNames returns the names that crd gets, which excludes those in use, and the conditions for them. The first definition for which a
// name was accepted keeps it.
func acceptedNames(crd *apiextensionsv1.CustomResourceDefinition, others []inUse) (
	apiextensionsv1.CustomResourceDefinitionNames, apiextensionsv1.CustomResourceDefinitionCondition,
	apiextensionsv1.CustomResourceDefinitionCondition,
) {
	resources, kinds := map[string]string{}, map[string]string{} // descriptions of the owners
	for _, other := range others {
		for _, name := range append([]string{other.names.Plural, other.names.Singular}, other.names.ShortNames...) {
			resources[name] = other.by
		}
		kinds[other.names.Kind], kinds[other.names.ListKind] = other.by, other.by
	}
	requested, accepted := crd.Spec.Names, crd.Status.AcceptedNames
	var problems []string
	take := func(taken map[string]string, field, name string, into *string) {
		if by, used := taken[name]; name != "" && used {
			problems = append(problems, fmt.Sprintf("%s: %q is already in use%s", field, name, by))
			return
		}
		*into = name
	}
	take(resources, "plural", requested.Plural, &accepted.Plural)
	take(resources, "singular", requested.Singular, &accepted.Singular)
	take(kinds, "kind", requested.Kind, &accepted.Kind)
	take(kinds, "listKind", requested.ListKind, &accepted.ListKind)
	if short := sets.New(requested.ShortNames...).Intersection(sets.KeySet(resources)); short.Len() > 0 {
		problems = append(problems, fmt.Sprintf("shortNames: %q are already in use", sets.List(short)))
	} else {
		accepted.ShortNames = requested.ShortNames
	}
	accepted.Categories = requested.Categories

	named := condition(apiextensionsv1.NamesAccepted, true, "NoConflicts", "no conflicts found")
	established := condition(apiextensionsv1.Established, true, "InitialNamesAccepted", "the initial names have been accepted")
	if len(problems) > 0 {
		named = condition(apiextensionsv1.NamesAccepted, false, "NameConflict", strings.Join(problems, "; "))
		established = condition(apiextensionsv1.Established, false, "NotAccepted", "not all names are accepted")
		if apiextensionshelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
			established = *apiextensionshelpers.FindCRDCondition(crd, apiextensionsv1.Established) // once established, always
		}
	}
	return accepted, named, established
}

func condition(kind apiextensionsv1.CustomResourceDefinitionConditionType, ok bool, reason,
	message string) apiextensionsv1.CustomResourceDefinitionCondition {
	status := apiextensionsv1.ConditionFalse
	if ok {
		status = apiextensionsv1.ConditionTrue
	}
	return apiextensionsv1.CustomResourceDefinitionCondition{Type: kind, Status: status, Reason: reason, Message: message}
}

// next returns a copy of crd with the status that it should have.
func next(crd *apiextensionsv1.CustomResourceDefinition, others []inUse) *apiextensionsv1.CustomResourceDefinition {
	out := crd.DeepCopy()
	names, named, established := acceptedNames(crd, others)
	out.Status.AcceptedNames = names
	apiextensionshelpers.SetCRDCondition(out, named)
	if apiextensionshelpers.IsCRDConditionTrue(out, apiextensionsv1.Established) {
		established.Reason, established.Message = apiextensionshelpers.FindCRDCondition(out, apiextensionsv1.Established).Reason,
			apiextensionshelpers.FindCRDCondition(out, apiextensionsv1.Established).Message
	}
	apiextensionshelpers.SetCRDCondition(out, established)
	if problem := structuralProblem(crd); problem != "" {
		apiextensionshelpers.SetCRDCondition(out, condition(apiextensionsv1.NonStructuralSchema, true, "Violations", problem))
	} else {
		apiextensionshelpers.RemoveCRDCondition(out, apiextensionsv1.NonStructuralSchema)
	}
	if errs := limits.Check(&crd.Spec, true); len(errs) > 0 {
		apiextensionshelpers.SetCRDCondition(out, condition(customresources.WithinLimits, false, "LimitExceeded",
			"what exceeds the limits of the server is not served, change it: "+errs.ToAggregate().Error()))
	} else {
		apiextensionshelpers.RemoveCRDCondition(out, customresources.WithinLimits)
	}
	if apiextensionshelpers.IsProtectedCommunityGroup(crd.Spec.Group) {
		apiextensionshelpers.SetCRDCondition(out, approval(crd))
	} else {
		apiextensionshelpers.RemoveCRDCondition(out, apiextensionsv1.KubernetesAPIApprovalPolicyConformant)
	}
	return out
}

func approval(crd *apiextensionsv1.CustomResourceDefinition) apiextensionsv1.CustomResourceDefinitionCondition {
	state, reason := apiextensionshelpers.GetAPIApprovalState(crd.Annotations)
	names := map[apiextensionshelpers.APIApprovalState]string{
		apiextensionshelpers.APIApprovalInvalid: "InvalidAnnotation", apiextensionshelpers.APIApprovalMissing: "MissingAnnotation",
		apiextensionshelpers.APIApproved: "ApprovedAnnotation", apiextensionshelpers.APIApprovalBypassed: "UnapprovedAnnotation",
	}
	return condition(apiextensionsv1.KubernetesAPIApprovalPolicyConformant, state == apiextensionshelpers.APIApproved, names[state], reason)
}

// structuralProblem returns why the schema of crd is not structural. Old definitions may have such a schema.
func structuralProblem(crd *apiextensionsv1.CustomResourceDefinition) string {
	for _, v := range crd.Spec.Versions {
		if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
			return fmt.Sprintf("version %s has no schema", v.Name)
		}
		s, err := customresources.Structural(v.Schema.OpenAPIV3Schema)
		if err != nil {
			return err.Error()
		}
		if errs := structuralschema.ValidateStructural(nil, s); len(errs) > 0 {
			return errs.ToAggregate().Error()
		}
	}
	return ""
}
