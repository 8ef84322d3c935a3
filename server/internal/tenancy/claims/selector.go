package claims

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
)

// Selector returns the label selector of a claim's selector. It must have either matchAll or match criteria: an empty
// selector, which elsewhere selects everything, is an error.
func Selector(selector *apisv1alpha2.PermissionClaimSelector) (labels.Selector, error) {
	specific := len(selector.MatchLabels) > 0 || len(selector.MatchExpressions) > 0
	switch {
	case selector.MatchAll && specific:
		return nil, errors.New("a selector with matchAll must have neither matchLabels nor matchExpressions")
	case selector.MatchAll:
		return labels.Everything(), nil
	case !specific:
		return nil, errors.New("a selector must have matchAll, matchLabels or matchExpressions")
	}
	return metav1.LabelSelectorAsSelector(&selector.LabelSelector)
}

// Selects reports whether a selector selects an object with the labels. An invalid one selects nothing.
func Selects(selector *apisv1alpha2.PermissionClaimSelector, object map[string]string) (bool, error) {
	s, err := Selector(selector)
	return err == nil && s.Matches(labels.Set(object)), err
}

// Complete returns the labels that an object must have for a selector to select it: its labels, and missing ones from
// matchLabels, which define the required values. It returns an error if the selector does not select the result.
func Complete(selector *apisv1alpha2.PermissionClaimSelector, object map[string]string) (map[string]string, error) {
	s, err := Selector(selector)
	if err != nil {
		return nil, err
	}
	result := maps.Clone(object)
	for _, key := range slices.Sorted(maps.Keys(selector.MatchLabels)) {
		wanted := selector.MatchLabels[key]
		if value, found := result[key]; found && value != wanted {
			return nil, fmt.Errorf("protected label %s must have value %s", key, wanted)
		}
		if result == nil {
			result = map[string]string{}
		}
		result[key] = wanted
	}
	if !s.Matches(labels.Set(result)) {
		return nil, fmt.Errorf("the labels must match %s, the selector of the accepted permission claim", s)
	}
	return result, nil
}
