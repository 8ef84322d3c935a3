package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/internal/apis/conversion"
)

// exportRules refuses exports with schemas of other resources, and claims that do not identify the provider of a resource.
type exportRules struct{ rules }

var _ admission.ValidationInterface = exportRules{}

// Validate implements admission.ValidationInterface.
func (r exportRules) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != apisv1alpha2.Resource("apiexports") || a.GetSubresource() != "" {
		return nil
	}
	var errs field.ErrorList
	shown := &apisv1alpha1.APIExport{}
	if isV1alpha1(a) {
		if err := decode(a.GetObject(), shown); err != nil {
			return err
		}
		errs = conversion.ValidateExport(shown)
	}
	export, old := &apisv1alpha2.APIExport{}, &apisv1alpha2.APIExport{}
	if err := decodeV1alpha2(a.GetObject(), export); err != nil {
		return err
	}
	if a.GetOperation() == admission.Update {
		if err := decodeV1alpha2(a.GetOldObject(), old); err != nil {
			return err
		}
	}
	if err := r.checkIdentity(ctx, a, export.Spec.Identity, old.Spec.Identity); err != nil {
		return err
	}
	errs = append(errs, validateResources(export.Spec.Resources, len(shown.Spec.LatestResourceSchemas))...)
	for i, claim := range export.Spec.PermissionClaims {
		path := claimsPath.Index(i)
		resource := schema.GroupResource{Group: claim.Group, Resource: claim.Resource}
		if claim.IdentityHash == "" && !r.config.OfServer(resource) {
			errs = append(errs, field.Required(path.Child("identityHash"),
				fmt.Sprintf("%s is not built in: set the status.identityHash of the APIExport that provides it", resource)))
		}
		if claim.DefaultSelector != nil {
			errs = append(errs, validateSelector(claim.DefaultSelector, path.Child("defaultSelector"))...)
		}
	}
	errs = append(errs, validateSize(export.Spec.PermissionClaims)...)
	errs = append(errs, apivalidation.ValidateAnnotations(conversion.ExportToV1alpha1(export).Annotations, annotationsPath)...)
	return invalid(a, errs)
}

// checkIdentity refuses an identity whose key is in a Secret that the user may not read: any holder of the key can use the identity.
func (r rules) checkIdentity(ctx context.Context, a admission.Attributes, now, old *apisv1alpha2.Identity) error {
	if now == nil || now.SecretRef == nil || (old != nil && old.SecretRef != nil && *old.SecretRef == *now.SecretRef) || isExempt(ctx, a) {
		return nil
	}
	key := authorizer.AttributesRecord{Verb: "get", APIVersion: "v1", Resource: "secrets", Namespace: now.SecretRef.Namespace,
		Name: now.SecretRef.Name}
	if !r.allows(ctx, a, key) {
		return forbidden(a, "spec.identity.secretRef: missing verb='get' permission on secret %s/%s", key.Namespace, key.Name)
	}
	return nil
}

// claimsLimit is the maximum size of the claims of an object, in bytes of JSON. In v1alpha1 a binding has up to three such lists in
// annotations: the accepted claims and, of its status, the claims of the export and those in effect. They must fit into the limit of
// annotations together with annotationsLimit: otherwise a list in v1alpha1 that includes the binding would fail.
const claimsLimit = 40 << 10

// annotationsLimit is the maximum size of the annotations of a binding, in bytes.
const annotationsLimit = 64 << 10

var (
	claimsPath      = field.NewPath("spec", "permissionClaims")
	annotationsPath = field.NewPath("metadata", "annotations")
)

func validateSize[T any](claims []T) field.ErrorList {
	if text, err := json.Marshal(claims); err != nil || len(text) > claimsLimit {
		return field.ErrorList{field.TooLong(claimsPath, "", claimsLimit)}
	}
	return nil
}

// validateResources checks the names of the schemas of resources. In v1alpha1 the first resources, as many as listed, have no other fields
// than these names.
func validateResources(resources []apisv1alpha2.ResourceSchema, listed int) field.ErrorList {
	var errs field.ErrorList
	seen := map[schema.GroupResource]bool{}
	for i, resource := range resources {
		path, want := field.NewPath("spec", "resources").Index(i).Child("schema"), "must end with "+schemaSuffix(resource.Name, resource.Group)
		if i < listed {
			path, want = field.NewPath("spec", "latestResourceSchemas").Index(i),
				"must be <prefix>.<resource>.<group>, with core for the empty group"
		}
		if !strings.HasSuffix(resource.Schema, schemaSuffix(resource.Name, resource.Group)) {
			errs = append(errs, field.Invalid(path, resource.Schema, want))
		}
		name := schema.GroupResource{Group: resource.Group, Resource: resource.Name}
		if seen[name] {
			errs = append(errs, field.Invalid(path, resource.Schema, fmt.Sprintf("another schema of %s is already in the list", name)))
		}
		seen[name] = true
	}
	return errs
}

// validateSelector requires that a selector is valid and selects either everything or by labels.
func validateSelector(s *apisv1alpha2.PermissionClaimSelector, path *field.Path) field.ErrorList {
	labels := len(s.MatchLabels) > 0 || len(s.MatchExpressions) > 0
	switch {
	case s.MatchAll && labels:
		return field.ErrorList{field.Forbidden(path, "matchAll excludes matchLabels and matchExpressions")}
	case !s.MatchAll && !labels:
		return field.ErrorList{field.Required(path, "set matchAll to true, or set matchLabels or matchExpressions")}
	}
	if _, err := metav1.LabelSelectorAsSelector(&s.LabelSelector); err != nil {
		return field.ErrorList{field.Invalid(path, s.LabelSelector, err.Error())}
	}
	return nil
}

func isV1alpha1(a admission.Attributes) bool {
	return a.GetKind().Version == apisv1alpha1.SchemeGroupVersion.Version
}

// decodeV1alpha2 converts an object of either version into its Go type in v1alpha2.
func decodeV1alpha2(obj runtime.Object, into any) error {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("%w: %T", errUnexpected, obj)
	}
	u, err := conversion.Convert(u, apisv1alpha2.SchemeGroupVersion)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnexpected, err)
	}
	return decode(u, into)
}
