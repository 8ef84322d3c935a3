package compat

import (
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// CompareObjects compares only what stored objects may be in one version. It ignores names, columns, subresources, and the status of
// objects. It returns no findings if each object that is stored by the existing definition is valid by the other one, and means the same.
// Stored objects have their default values, so that other defaults for the same fields change nothing.
func CompareObjects(existing, other *apiextensionsv1.CustomResourceDefinition, version string) ([]Finding, error) {
	existing, err := prepare(existing, version, version)
	if err != nil {
		return nil, fmt.Errorf("existing definition: %w", err)
	}
	if other, err = prepare(other, version, version); err != nil {
		return nil, fmt.Errorf("other definition: %w", err)
	}
	c := &comparison{version: version, typed: hasRules(existing) || hasRules(other)}
	if existing.Spec.Scope != other.Spec.Scope {
		c.conflict("", "scope changes from %q to %q", existing.Spec.Scope, other.Spec.Scope)
		return c.findings, nil
	}
	c.schema(place{root: true}, withoutStatus(existing), withoutStatus(other))
	return slices.DeleteFunc(c.findings, func(f Finding) bool {
		return strings.HasPrefix(f.Message, "default ") && !strings.HasSuffix(f.Message, " is added")
	}), nil
}

// withoutStatus returns the schema of the only version, without the status if that is a subresource.
func withoutStatus(d *apiextensionsv1.CustomResourceDefinition) *schema {
	v := d.Spec.Versions[0]
	s := v.Schema.OpenAPIV3Schema
	if v.Subresources != nil && v.Subresources.Status != nil {
		delete(s.Properties, "status")
	}
	return s
}
