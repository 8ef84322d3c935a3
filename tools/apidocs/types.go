package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/controller-tools/pkg/crd"
	crdmarkers "sigs.k8s.io/controller-tools/pkg/crd/markers"
	"sigs.k8s.io/controller-tools/pkg/loader"
	"sigs.k8s.io/controller-tools/pkg/markers"
)

// reference is all types of the packages.
type reference struct {
	parser *crd.Parser
	// roots are the packages that the reference describes.
	roots map[string]*loader.Package
	// groups are the packages of each group, the newest version first.
	groups map[string][]*loader.Package
	kinds  []schema.GroupKind

	kubernetes string
	// examples are links to examples, by group/kind.
	examples map[string]string
}

// object is a type with fields.
type object struct {
	crd.TypeIdent
	description string
	rules       []apiextensionsv1.ValidationRule
	fields      []field
}

type field struct {
	name     string
	required bool
	// of is the package of the schema.
	of     *loader.Package
	schema apiextensionsv1.JSONSchemaProps
}

func read(roots []*loader.Package) (*reference, error) {
	registry := &markers.Registry{}
	if err := crdmarkers.Register(registry); err != nil {
		return nil, err
	}
	parser := &crd.Parser{Collector: &markers.Collector{Registry: registry}, Checker: &loader.TypeChecker{}}
	crd.AddKnownTypes(parser)
	r := &reference{parser: parser, roots: map[string]*loader.Package{}, groups: map[string][]*loader.Package{}}
	for _, root := range roots {
		parser.NeedPackage(root)
		if group := parser.GroupVersions[root].Group; group != "" {
			r.roots[root.PkgPath] = root
			r.groups[group] = append(r.groups[group], root)
		}
	}
	for _, packages := range r.groups {
		slices.SortFunc(packages, func(a, b *loader.Package) int {
			return version.CompareKubeAwareVersionStrings(parser.GroupVersions[b].Version, parser.GroupVersions[a].Version)
		})
	}
	meta := crd.FindMetav1(roots)
	if meta == nil {
		return nil, fmt.Errorf("the packages have no kinds")
	}
	r.kinds = crd.FindKubeKinds(parser, meta)
	slices.SortFunc(r.kinds, func(a, b schema.GroupKind) int { return cmp.Compare(a.Kind, b.Kind) })
	for _, kind := range r.kinds {
		parser.NeedCRDFor(kind, nil)
	}
	return r, nil
}

// refersTo returns the type to which a schema of a package refers.
func (r *reference) refersTo(from *loader.Package, ref string) crd.TypeIdent {
	name, path, err := crd.RefParts(ref)
	if err != nil || path == "" {
		return crd.TypeIdent{Package: from, Name: name}
	}
	for ident := range r.parser.Schemata {
		if loader.NonVendorPath(ident.Package.PkgPath) == path && ident.Name == name {
			return ident
		}
	}
	return crd.TypeIdent{Package: from.Imports()[path], Name: name}
}

// object returns a type as an object, and false if the type is not an object.
func (r *reference) object(ident crd.TypeIdent) (object, bool) {
	info, known := r.parser.Types[ident]
	schema := r.parser.Schemata[ident]
	if !known || len(info.Fields) == 0 || schema.Type != "object" {
		return object{}, false
	}
	o := object{TypeIdent: ident, description: info.Doc, rules: schema.XValidations}
	embedded := schema.AllOf
	for _, f := range info.Fields {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || strings.Contains(options, "inline") {
			if len(embedded) > 0 && embedded[0].Ref != nil {
				if inner, ok := r.object(r.refersTo(ident.Package, *embedded[0].Ref)); ok {
					o.fields, o.rules = append(o.fields, inner.fields...), append(o.rules, inner.rules...)
				}
				embedded = embedded[1:]
			}
		} else if property, ok := schema.Properties[name]; ok {
			o.fields = append(o.fields, field{name, slices.Contains(schema.Required, name), ident.Package, property})
		}
	}
	return o, true
}

// below returns the type of a field's values, or of the items in its lists and maps.
func (r *reference) below(of *loader.Package, s *apiextensionsv1.JSONSchemaProps) (crd.TypeIdent, bool) {
	switch {
	case s.Ref != nil:
		ident := r.refersTo(of, *s.Ref)
		named, known := r.parser.Schemata[ident]
		if _, is := r.object(ident); !is && known && (named.Items != nil || named.AdditionalProperties != nil) {
			return r.below(ident.Package, &named)
		}
		return ident, true
	case s.Items != nil && s.Items.Schema != nil:
		return r.below(of, s.Items.Schema)
	case s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
		return r.below(of, s.AdditionalProperties.Schema)
	}
	return crd.TypeIdent{}, false
}

// ours reports whether the reference has a section for a type.
func (r *reference) ours(ident crd.TypeIdent) bool {
	if ident.Package == nil || r.roots[ident.Package.PkgPath] == nil {
		return false
	}
	_, is := r.object(ident)
	return is
}

// inside returns the types of the fields of an object, recursively, in the order of first use. It omits types of other groups, and those
// in seen.
func (r *reference) inside(o object, seen map[crd.TypeIdent]bool) []object {
	var found []object
	for i := range o.fields {
		f := &o.fields[i]
		ident, ok := r.below(f.of, &f.schema)
		if !ok || seen[ident] || !r.ours(ident) || r.group(ident) != r.group(o.TypeIdent) {
			continue
		}
		seen[ident] = true
		inner, _ := r.object(ident)
		found = append(append(found, inner), r.inside(inner, seen)...)
	}
	return found
}

func (r *reference) group(ident crd.TypeIdent) string {
	return r.parser.GroupVersions[ident.Package].Group
}
