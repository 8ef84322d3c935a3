package conversion

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
)

// kept returns the list in an annotation.
func kept[T any](annotations map[string]string, key string) ([]T, error) {
	text, ok := annotations[key]
	if !ok {
		return nil, nil
	}
	var list []T
	err := json.Unmarshal([]byte(text), &list)
	return list, err
}

// taken removes an annotation and returns its list. An invalid annotation counts as missing.
func taken[T any](annotations map[string]string, key string) []T {
	list, err := kept[T](annotations, key)
	delete(annotations, key)
	if err != nil {
		return nil
	}
	return list
}

// keep returns annotations with a list in one of them, or without that annotation if the list is empty.
func keep[T any](annotations map[string]string, key string, list []T) map[string]string {
	if len(list) == 0 {
		delete(annotations, key)
		if len(annotations) == 0 {
			return nil
		}
		return annotations
	}
	text, err := json.Marshal(list)
	utilruntime.Must(err) // it contains only strings
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = string(text)
	return annotations
}

// ValidateExport returns an error for each part of the annotations of an export that conversion would drop.
func ValidateExport(in *apisv1alpha1.APIExport) field.ErrorList {
	var errs field.ErrorList
	if _, err := kept[apisv1alpha2.ResourceSchema](in.Annotations, apisv1alpha2.ResourceSchemasAnnotation); err != nil {
		errs = append(errs, unreadable(in.Annotations, apisv1alpha2.ResourceSchemasAnnotation, err))
	}
	return append(errs, validateClaims(in.Annotations, apisv1alpha2.PermissionClaimsAnnotation, in.Spec.PermissionClaims)...)
}

// ValidateBinding returns an error for each part of the annotations of a binding's spec that conversion would drop.
func ValidateBinding(in *apisv1alpha1.APIBinding) field.ErrorList {
	return validateClaims(in.Annotations, apisv1alpha2.AcceptablePermissionClaimsAnnotation, each(in.Spec.PermissionClaims, unanswered))
}

// validateClaims compares the claims in an annotation with the claims of the object.
func validateClaims(annotations map[string]string, key string, claims []apisv1alpha1.PermissionClaim) field.ErrorList {
	list, err := kept[apisv1alpha2.PermissionClaim](annotations, key)
	if err != nil {
		return field.ErrorList{unreadable(annotations, key, err)}
	}
	known := byKey(claims, keyOfV1alpha1)
	var errs field.ErrorList
	for _, claim := range list {
		if _, ok := known[keyOfV1alpha2(everywhere(claim))]; !ok {
			resource := schema.GroupResource{Group: claim.Group, Resource: claim.Resource}
			errs = append(errs, field.Invalid(annotationPath(key), resource.String(),
				"spec.permissionClaims has no claim with this group, resource and identityHash: remove it from this annotation as well, "+
					"or use v1alpha2"))
		}
	}
	return errs
}

func unreadable(annotations map[string]string, key string, err error) *field.Error {
	return field.Invalid(annotationPath(key), annotations[key], fmt.Sprintf("must be a JSON list of v1alpha2 objects: %v", err))
}

func annotationPath(key string) *field.Path { return field.NewPath("metadata", "annotations").Key(key) }
