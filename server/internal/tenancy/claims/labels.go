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

// reflexive is the value of the label that bindings themselves have for the export they refer to, unless a claim on
// bindings says more: providers always see who binds them.
const reflexive = "reflexive"

// unlisted is the end of the values of labels of objects that an export may not list.
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

// UnlistedLabel returns the label that objects have instead if their cluster lets the export do something to them, but not find
// them: who lists or watches all clusters at once tells by the label alone what to show.
func (e Export) UnlistedLabel(claim *apisv1alpha2.PermissionClaim) (key, value string) {
	return e.label(), Hash(claim) + unlisted
}

// Listed tells whether verbs that are accepted let the objects of a claim be found.
func Listed(accepted []string) bool {
	return slices.ContainsFunc(accepted, func(verb string) bool { return verb == "list" || verb == "watch" || verb == "*" })
}

// ReflexiveLabel returns the label that bindings to the export have.
func (e Export) ReflexiveLabel() (key, value string) { return e.label(), reflexive }

// Hash returns the base 62 SHA-224 of the JSON of a claim: of the resource and identity, which say what is claimed. The
// verbs and the default selector say how, and change without a change of labels. Both groups of events are hashed as one:
// an object has one label for each export, and a provider that claims both must find it by either.
func Hash(claim *apisv1alpha2.PermissionClaim) string {
	resource := Normalize(schema.GroupResource{Group: claim.Group, Resource: claim.Resource})
	text, _ := json.Marshal(struct { // of strings
		Group        string `json:"group,omitempty"`
		Resource     string `json:"resource"`
		IdentityHash string `json:"identityHash,omitempty"`
	}{resource.Group, resource.Resource, claim.IdentityHash})
	return exports.Hash(string(text))
}

// Normalize returns the resource under which objects are stored: events have two groups and one storage.
func Normalize(resource schema.GroupResource) schema.GroupResource {
	if resource.Group == "events.k8s.io" && resource.Resource == "events" {
		resource.Group = ""
	}
	return resource
}

// ExportOf returns the export that a binding refers to, or false while it is not known. Labels wants to be told, because
// the cluster in the status of a binding can be older than what path its reference now leads to.
type ExportOf func(*apisv1alpha2.APIBinding) (Export, bool)

// Labels returns the labels that an object of a resource, which its cluster has under an identity unless that is empty, with
// certain labels, has to have by the claims that the bindings of its cluster accept; one that is being deleted accepts nothing. Claims with
// an invalid selector select nothing, and are told of in the error; the labels are good nevertheless.
func Labels(resource schema.GroupResource, identity string, object map[string]string, bindings []*apisv1alpha2.APIBinding,
	exportOf ExportOf) (map[string]string, error) {
	resource = Normalize(resource)
	result := map[string]string{}
	var errs []error
	// In an order of their own, so that a second binding to the same export does not make labels change to and fro.
	byName := func(a, b *apisv1alpha2.APIBinding) int { return strings.Compare(a.Name, b.Name) }
	for _, binding := range slices.SortedFunc(slices.Values(bindings), byName) {
		if binding.DeletionTimestamp != nil {
			continue // its consumer has taken back what it has accepted
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

// LabelsOfBinding is Labels for a binding among those of its cluster. It also has the reflexive label, unless a claim of its export lets it
// be listed as well: that export always finds it.
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

// Relabel returns the labels of an object with those of claims as they have to be, whichever of these it had.
func Relabel(object, claimed map[string]string) map[string]string {
	result := maps.Clone(object)
	maps.DeleteFunc(result, func(key, _ string) bool { return strings.HasPrefix(key, apisv1alpha2.ClaimedLabelPrefix) })
	if result == nil && len(claimed) > 0 {
		result = map[string]string{}
	}
	maps.Copy(result, claimed)
	return result
}
