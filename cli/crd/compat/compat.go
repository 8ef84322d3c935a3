// Package compat compares two definitions of a resource. It finds where the new one refuses what the existing one accepts, or
// gives it another meaning, and computes their least common denominator: the widest definition that it can find whose objects
// are valid, unchanged and nowhere pruned under both.
//
// What cannot be compared is a conflict, never silently equal. Everything here is a pure function.
package compat

import (
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/kcplane/kcp/cli/crd"
)

// Finding is a place where the new definition is not compatible with the existing one.
type Finding struct {
	// Version of the resource; empty for what concerns all of them.
	Version string
	// Field is the path of a field of objects, such as spec.containers[*].image, or of the definition if Version is empty.
	Field string
	// Message says what is different.
	Message string
	// Conflict tells that nothing narrower than both exists, or that nobody knows how to compute it.
	Conflict bool
}

// String is the finding in one line.
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

// Options choose what is compared.
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

// Conflicts are the findings for which there is no least common denominator.
func (r Result) Conflicts() []Finding {
	return slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool { return !f.Conflict })
}

// Compare compares definitions. It fails if one of them is not a valid definition with structural schemas.
func Compare(existing, updated *apiextensionsv1.CustomResourceDefinition, options Options) (Result, error) {
	existing, err := prepare(existing, options.ExistingVersion, options.ExistingVersion)
	if err != nil {
		return Result{}, fmt.Errorf("the existing definition: %w", err)
	}
	name := options.NewVersion
	if options.ExistingVersion != "" {
		name = options.ExistingVersion // two versions of different names are compared as one
	}
	if updated, err = prepare(updated, options.NewVersion, name); err != nil {
		return Result{}, fmt.Errorf("the new definition: %w", err)
	}
	c := &comparison{typed: hasRules(existing) || hasRules(updated)}
	lcd := c.definition(existing, updated)
	result := Result{Findings: c.findings}
	if len(result.Conflicts()) > 0 {
		return result, nil
	}
	for _, problem := range crd.Problems(lcd) {
		result.Findings = append(result.Findings, Finding{
			Message: "the least common denominator would not be valid: " + problem.Field + ": " + problem.Detail, Conflict: true})
	}
	if len(result.Conflicts()) == 0 {
		result.LCD = lcd
	}
	return result, nil
}

// prepare returns a copy that has the defaults of the API, and only one version under the name as if a version is chosen.
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

// comparison collects findings while two definitions are walked through side by side.
type comparison struct {
	version  string
	findings []Finding
	// typed tells that there are CEL rules: then formats that change the type of a value in CEL cannot differ.
	typed bool
}

// narrowed records something that the least common denominator takes into account.
func (c *comparison) narrowed(field, format string, args ...any) {
	c.findings = append(c.findings, Finding{Version: c.version, Field: field, Message: fmt.Sprintf(format, args...)})
}

// conflict records something that no least common denominator takes into account.
func (c *comparison) conflict(field, format string, args ...any) {
	c.findings = append(c.findings, Finding{Version: c.version, Field: field, Message: fmt.Sprintf(format, args...), Conflict: true})
}
