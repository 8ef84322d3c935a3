// Package compat compares two definitions of a resource. It finds values that the existing definition accepts and the new one rejects
// or interprets in another way. It computes their least common denominator: the widest definition that it can find whose objects are
// valid, unchanged and not pruned under both.
//
// What cannot be compared is a conflict, never silently equal. All functions are pure.
package compat

import (
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/kcplane/kcp/internal/crd"
)

// Finding is an incompatibility of the new definition with the existing one.
type Finding struct {
	// Version of the resource; empty if the finding applies to all versions.
	Version string
	// Field is the path of a field of objects, such as spec.containers[*].image, or of the definition if Version is empty.
	Field string
	// Message describes the difference.
	Message string
	// Conflict means that no least common denominator exists or can be computed.
	Conflict bool
}

// String returns the finding in one line.
func (f Finding) String() string {
	text := f.Message
	if f.Field != "" {
		text = f.Field + ": " + text
	}
	if f.Version != "" {
		text = f.Version + ": " + text
	}
	return text
}

// Options select what is compared.
type Options struct {
	// ExistingVersion and NewVersion, if set, are the only versions to compare. Otherwise versions are compared by name.
	ExistingVersion, NewVersion string
}

// Result of a comparison.
type Result struct {
	// Findings are empty if all objects of the existing definition are valid under the new one and mean the same.
	Findings []Finding
	// LCD is the least common denominator, nil if some finding is a conflict.
	LCD *apiextensionsv1.CustomResourceDefinition
}

// Conflicts returns the findings that prevent a least common denominator.
func (r Result) Conflicts() []Finding {
	return slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool { return !f.Conflict })
}

// Compare compares two definitions. It fails if one of them is invalid or has no structural schema.
func Compare(existing, updated *apiextensionsv1.CustomResourceDefinition, options Options) (Result, error) {
	existing, err := prepare(existing, options.ExistingVersion, options.ExistingVersion)
	if err != nil {
		return Result{}, fmt.Errorf("existing definition: %w", err)
	}
	name := options.NewVersion
	if options.ExistingVersion != "" {
		name = options.ExistingVersion // two versions of different names are compared as one
	}
	if updated, err = prepare(updated, options.NewVersion, name); err != nil {
		return Result{}, fmt.Errorf("new definition: %w", err)
	}
	c := &comparison{typed: hasRules(existing) || hasRules(updated)}
	lcd := c.definition(existing, updated)
	result := Result{Findings: c.findings}
	if len(result.Conflicts()) > 0 {
		return result, nil
	}
	for _, problem := range crd.Problems(lcd) {
		result.Findings = append(result.Findings, Finding{
			Message: "the least common denominator is invalid: " + problem.Field + ": " + problem.Detail, Conflict: true})
	}
	if len(result.Conflicts()) == 0 {
		result.LCD = lcd
	}
	return result, nil
}

// prepare returns a copy with defaults. If a version is given, it is the only one in the copy and is renamed to as.
func prepare(given *apiextensionsv1.CustomResourceDefinition, version, as string) (*apiextensionsv1.CustomResourceDefinition, error) {
	d := crd.Clean(given)
	if version != "" {
		i := slices.IndexFunc(d.Spec.Versions, named(version))
		if i < 0 {
			return nil, fmt.Errorf("%s has no version %q", d.Name, version)
		}
		d.Spec.Versions = d.Spec.Versions[i : i+1]
		d.Spec.Versions[0].Name, d.Spec.Versions[0].Storage, d.Spec.Conversion = as, true, nil
	}
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&d.Spec)
	if found := crd.Problems(d); len(found) > 0 {
		return nil, found.ToAggregate()
	}
	return d, nil
}

func named(version string) func(apiextensionsv1.CustomResourceDefinitionVersion) bool {
	return func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == version }
}

// comparison collects the findings of one comparison.
type comparison struct {
	version  string
	findings []Finding
	// typed is true if there are CEL rules. Formats that change the CEL type of a value must then be equal.
	typed bool
}

// narrowed records a difference that the least common denominator resolves.
func (c *comparison) narrowed(field, format string, args ...any) {
	c.findings = append(c.findings, Finding{Version: c.version, Field: field, Message: fmt.Sprintf(format, args...)})
}

// conflict records a difference that no least common denominator resolves.
func (c *comparison) conflict(field, format string, args ...any) {
	c.findings = append(c.findings, Finding{Version: c.version, Field: field, Message: fmt.Sprintf(format, args...), Conflict: true})
}
