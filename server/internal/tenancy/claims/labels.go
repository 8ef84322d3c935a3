package claims

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/internal/tenancy/exports"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// reflexive is the value of the label of bindings for the export to which they refer, unless a claim on bindings
// applies: providers always see the bindings to their exports.
const reflexive = "reflexive"

// unlisted is the suffix of label values of objects that an export may not list.
const unlisted = "-unlisted"

// Export names an export among those of all clusters.
type Export struct {
	Cluster logicalcluster.Name
	Name    string
}

// label is the key of the label for objects that the export may access.
func (e Export) label() string {
	return apisv1alpha2.ClaimedLabelPrefix + exports.Hash(string(e.Cluster)+":"+e.Name)
}

// Label returns the label that objects have if the export may access them by the claim.
func (e Export) Label(claim *apisv1alpha2.PermissionClaim) (key, value string) {
	return e.label(), Hash(claim)
}

// UnlistedLabel returns the label that objects have instead if their cluster allows the export some verbs, but neither list nor
// watch: lists and watches across all clusters select objects only by the label.
func (e Export) UnlistedLabel(claim *apisv1alpha2.PermissionClaim) (key, value string) {
	return e.label(), Hash(claim) + unlisted
}

// Listed reports whether accepted verbs allow listing or watching the objects of a claim.
func Listed(accepted []string) bool {
	return slices.ContainsFunc(accepted, func(verb string) bool { return verb == "list" || verb == "watch" || verb == "*" })
}

// ReflexiveLabel returns the label that bindings to the export have.
func (e Export) ReflexiveLabel() (key, value string) { return e.label(), reflexive }

// Hash returns the base 62 SHA-224 of the JSON of a claim: of the resource and identity, which determine the claimed
// objects. Verbs and the default selector can change without a change of labels. Both groups of events have the same
// hash, because an object has one label for each export, and a provider that claims both groups must find it by either.
func Hash(claim *apisv1alpha2.PermissionClaim) string {
	resource := Normalize(schema.GroupResource{Group: claim.Group, Resource: claim.Resource})
	text, _ := json.Marshal(struct { // of strings
		Group        string `json:"group,omitempty"`
		Resource     string `json:"resource"`
		IdentityHash string `json:"identityHash,omitempty"`
	}{resource.Group, resource.Resource, claim.IdentityHash})
	return exports.Hash(string(text))
}

// Normalize returns the resource under which objects are stored: events have two groups but one storage.
func Normalize(resource schema.GroupResource) schema.GroupResource {
	if resource.Group == "events.k8s.io" && resource.Resource == "events" {
		resource.Group = ""
	}
	return resource
}

// ExportOf returns the export to which a binding refers, or false while it is not known. It is an argument of Labels
// because the cluster in the status of a binding can be older than the cluster at the path of its reference.
type ExportOf func(*apisv1alpha2.APIBinding) (Export, bool)

// Labels returns the labels that an object must have for the claims that the bindings of its cluster accept. The inputs are the resource of
// the object, the identity under which the cluster has the resource, or an empty one, and the labels of the object. A binding that is being
// deleted accepts no claims. Claims with an invalid selector select nothing and are reported in the error; the labels are valid
// nevertheless.
func Labels(resource schema.GroupResource, identity string, object map[string]string, bindings []*apisv1alpha2.APIBinding,
	exportOf ExportOf) (map[string]string, error) {
	resource = Normalize(resource)
	result := map[string]string{}
	var errs []error
	// In a fixed order, so that a second binding to the same export does not make labels alternate.
	byName := func(a, b *apisv1alpha2.APIBinding) int { return strings.Compare(a.Name, b.Name) }
	for _, binding := range slices.SortedFunc(slices.Values(bindings), byName) {
		if binding.DeletionTimestamp != nil {
			continue // the consumer no longer accepts it
		}
		export, found := Export{}, false
		for i := range binding.Spec.PermissionClaims {
			claim := &binding.Spec.PermissionClaims[i]
			claimed := Normalize(schema.GroupResource{Group: claim.Group, Resource: claim.Resource})
			if claim.State != apisv1alpha2.ClaimAccepted || claimed != resource || claim.IdentityHash != identity {
				continue
			}
			selects, err := Selects(&claim.Selector, object)
			if err != nil {
				errs = append(errs, fmt.Errorf("binding %s, claim on %s: %w", binding.Name, KeyOf(&claim.PermissionClaim), err))
			}
			if !selects {
				continue
			}
			if !found {
				if export, found = exportOf(binding); !found {
					break
				}
			}
			key, value := export.Label(&claim.PermissionClaim)
			if !Listed(claim.Verbs) {
				key, value = export.UnlistedLabel(&claim.PermissionClaim)
			}
			if _, labelled := result[key]; !labelled {
				result[key] = value
			}
		}
	}
	return result, errors.Join(errs...)
}

// LabelsOfBinding is Labels for a binding among those of its cluster. The result includes the reflexive label, with which the export always
// finds the binding, unless a claim of the export allows listing it.
func LabelsOfBinding(binding *apisv1alpha2.APIBinding, bindings []*apisv1alpha2.APIBinding, exportOf ExportOf) (map[string]string, error) {
	result, err := Labels(apisv1alpha2.Resource("apibindings"), "", binding.Labels, bindings, exportOf)
	if export, found := exportOf(binding); found {
		key, value := export.ReflexiveLabel()
		if claim, claimed := result[key]; !claimed || strings.HasSuffix(claim, unlisted) {
			result[key] = value
		}
	}
	return result, err
}

// Relabel returns the labels of an object with the labels of claims replaced by the required ones.
func Relabel(object, claimed map[string]string) map[string]string {
	result := maps.Clone(object)
	maps.DeleteFunc(result, func(key, _ string) bool { return strings.HasPrefix(key, apisv1alpha2.ClaimedLabelPrefix) })
	if result == nil && len(claimed) > 0 {
		result = map[string]string{}
	}
	maps.Copy(result, claimed)
	return result
}
