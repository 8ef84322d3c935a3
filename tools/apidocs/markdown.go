package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-tools/pkg/crd"
	"sigs.k8s.io/controller-tools/pkg/loader"
)

// pages returns the content of the files by their names: a page for each group, and an index.
func (r *reference) pages() map[string]string {
	pages := map[string]string{}
	var index strings.Builder
	index.WriteString(generated + "# API reference\n\nEvery kind, field by field, as the server enforces it.\n")
	for _, group := range slices.Sorted(maps.Keys(r.groups)) {
		pages[page(group)] = r.page(group)
		fmt.Fprintf(&index, "\n## [%s](%s)\n\n| kind | version | what it is |\n|---|---|---|\n", group, page(group))
		for _, kind := range r.kindsOf(group) {
			description, _, _ := strings.Cut(kind.description, "\n\n")
			fmt.Fprintf(&index, "| [%s](%s) | %s | %s |\n", kind.Name, r.link(kind.TypeIdent, ""), r.version(kind.TypeIdent), sentence(description))
		}
	}
	pages["README.md"] = index.String()
	return pages
}

const generated = "<!-- make generate writes this page from the types in api/. -->\n\n"

// page returns the file name of the page of a group: the first label of the group.
func page(group string) string {
	name, _, _ := strings.Cut(group, ".")
	return name + ".md"
}

func (r *reference) kindsOf(group string) []object {
	var found []object
	for _, pkg := range r.groups[group] {
		for _, kind := range r.kinds {
			if o, ok := r.object(crd.TypeIdent{Package: pkg, Name: kind.Kind}); ok && kind.Group == group {
				found = append(found, o)
			}
		}
	}
	return found
}

func (r *reference) page(group string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s# %s\n", generated, group)
	kinds := r.kindsOf(group)
	b.WriteString("\n| kind | version |\n|---|---|\n")
	seen := map[crd.TypeIdent]bool{}
	for _, kind := range kinds {
		seen[kind.TypeIdent] = true
		fmt.Fprintf(&b, "| [%s](%s) | %s |\n", kind.Name, r.link(kind.TypeIdent, group), r.version(kind.TypeIdent))
	}
	for _, kind := range kinds {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", r.title(kind.TypeIdent), paragraph(kind.description))
		r.about(&b, kind)
		r.body(&b, kind, true)
		for _, o := range r.inside(kind, seen) {
			fmt.Fprintf(&b, "\n### %s\n\n%s\n\n", r.title(o.TypeIdent), paragraph(o.description))
			r.body(&b, o, false)
		}
	}
	return b.String()
}

// about writes a table of the facts about a kind that its definition has besides the schema.
func (r *reference) about(b *strings.Builder, kind object) {
	definition := r.parser.CustomResourceDefinitions[schema.GroupKind{Group: r.group(kind.TypeIdent), Kind: kind.Name}].Spec
	names := definition.Names
	facts := [][2]string{
		{"resource", "`" + names.Plural + "." + definition.Group + "`, " + map[apiextensionsv1.ResourceScope]string{
			apiextensionsv1.NamespaceScoped: "in namespaces", apiextensionsv1.ClusterScoped: "cluster scoped"}[definition.Scope]},
		{"short names", code(names.ShortNames)},
		{"categories", code(names.Categories)},
	}
	for _, version := range definition.Versions {
		if version.Name != r.version(kind.TypeIdent) {
			continue
		}
		var always, wide []string
		for _, column := range version.AdditionalPrinterColumns {
			if column.Priority > 0 {
				wide = append(wide, column.Name)
			} else {
				always = append(always, column.Name)
			}
		}
		facts = append(facts, [2]string{"columns", strings.Join(always, ", ")}, [2]string{"with `-o wide`", strings.Join(wide, ", ")})
		if len(definition.Versions) > 1 && version.Storage {
			facts = append(facts, [2]string{"stored", "in this version"})
		}
	}
	if example := r.examples[definition.Group+"/"+kind.Name]; example != "" {
		facts = append(facts, [2]string{"example", "[" + strings.TrimPrefix(strings.TrimPrefix(example, "../"), "../") + "](" + example + ")"})
	}
	b.WriteString("| | |\n|---|---|\n")
	for _, fact := range facts {
		if fact[1] != "" {
			fmt.Fprintf(b, "| %s | %s |\n", fact[0], fact[1])
		}
	}
	b.WriteString("\n")
}

// body writes the rules and fields of an object; for a kind, without the fields that every kind has.
func (r *reference) body(b *strings.Builder, o object, isKind bool) {
	for _, rule := range o.rules {
		at := ""
		if rule.FieldPath != "" {
			at = "`" + strings.TrimPrefix(rule.FieldPath, ".") + "`: "
		}
		b.WriteString("- " + at + sayRule(rule) + "\n")
	}
	if len(o.rules) > 0 {
		b.WriteString("\n")
	}
	rows := 0
	for i := range o.fields {
		f := &o.fields[i]
		if isKind && slices.Contains([]string{"apiVersion", "kind", "metadata"}, f.name) {
			continue
		}
		if rows++; rows == 1 {
			b.WriteString("| field | type | meaning |\n|---|---|---|\n")
		}
		kind := r.typeOf(f.of, &f.schema, r.group(o.TypeIdent))
		if f.required {
			kind += ", required"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", f.name, kind, cell(r.meaning(f)))
	}
	if rows == 0 {
		b.WriteString("It has no fields.\n")
	}
}

// meaning returns the description of a field, followed by lines for its constraints.
func (r *reference) meaning(f *field) string {
	description, limits := f.schema.Description, constraints(&f.schema)
	for from, s := f.of, &f.schema; s.Ref != nil; {
		ident := r.refersTo(from, *s.Ref)
		if _, is := r.object(ident); is {
			if description == "" {
				description = r.parser.Types[ident].Doc
			}
			break
		}
		named, known := r.parser.Schemata[ident]
		if !known {
			break
		}
		for _, limit := range constraints(&named) {
			if !slices.Contains(limits, limit) {
				limits = append(limits, limit)
			}
		}
		from, s = ident.Package, &named
	}
	var each *apiextensionsv1.JSONSchemaProps
	if f.schema.Items != nil {
		each = f.schema.Items.Schema
	} else if f.schema.AdditionalProperties != nil {
		each = f.schema.AdditionalProperties.Schema
	}
	if each != nil {
		item := field{of: f.of, schema: *each}
		item.schema.Description = " " // only the description of the list is shown
		if said := strings.TrimSpace(strings.ReplaceAll(r.meaning(&item), "<br>", " ")); said != "" {
			limits = append(limits, "Each: "+said)
		}
	}
	return strings.TrimPrefix(strings.Join(append([]string{paragraph(description)}, limits...), "<br>"), "<br>")
}

// typeOf returns the type of a field's values, with a link to it.
func (r *reference) typeOf(of *loader.Package, s *apiextensionsv1.JSONSchemaProps, group string) string {
	switch {
	case s.Ref != nil:
		ident := r.refersTo(of, *s.Ref)
		if r.ours(ident) {
			return "[" + ident.Name + "](" + r.link(ident, group) + ")"
		}
		if known := plain[ident.Name]; known != "" && r.roots[ident.Package.PkgPath] == nil {
			return known
		}
		if r.roots[ident.Package.PkgPath] != nil && len(r.parser.Types[ident].Fields) == 0 && r.parser.Schemata[ident].Type == "object" {
			return "object" // without fields
		}
		if named := r.parser.Schemata[ident]; named.Type != "object" || named.AdditionalProperties != nil {
			return r.typeOf(ident.Package, &named, group)
		}
		return r.foreign(ident)
	case s.Items != nil && s.Items.Schema != nil:
		return "list of " + r.typeOf(of, s.Items.Schema, group)
	case s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
		return "map of " + r.typeOf(of, s.AdditionalProperties.Schema, group)
	case s.XIntOrString:
		return "integer or string"
	case s.Type == "":
		return "anything"
	}
	return s.Type
}

// plain are types of Kubernetes that manifests write as a word or a number.
var plain = map[string]string{
	"Time":         "time",
	"MicroTime":    "time",
	"Duration":     "duration",
	"Quantity":     "quantity",
	"RawExtension": "object",
	"JSON":         "anything",
}

// foreign returns a link to the reference of a type of Kubernetes.
func (r *reference) foreign(ident crd.TypeIdent) string {
	group := map[string]string{
		"k8s.io/api/core/v1": "core", "k8s.io/apimachinery/pkg/apis/meta/v1": "meta",
		"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1": "apiextensions-k8s-io",
	}[ident.Package.PkgPath]
	if group == "" || r.kubernetes == "" {
		return ident.Name
	}
	return fmt.Sprintf("[%s](https://kubernetes.io/docs/reference/generated/kubernetes-api/%s/#%s-v1-%s)",
		ident.Name, r.kubernetes, strings.ToLower(ident.Name), group)
}

// link returns a link to the section of a type, relative to the page of a group.
func (r *reference) link(ident crd.TypeIdent, from string) string {
	anchor := "#" + anchorOf(r.title(ident))
	if group := r.group(ident); group != from {
		return page(group) + anchor
	}
	return anchor
}

// title returns the title of a section: the name, with the version if other types have the same name.
func (r *reference) title(ident crd.TypeIdent) string {
	for _, other := range r.groups[r.group(ident)] {
		if other != ident.Package && r.parser.Types[crd.TypeIdent{Package: other, Name: ident.Name}] != nil {
			return ident.Name + " (" + r.version(ident) + ")"
		}
	}
	return ident.Name
}

func (r *reference) version(ident crd.TypeIdent) string {
	return r.parser.GroupVersions[ident.Package].Version
}

var notInAnchors = regexp.MustCompile(`[^a-z0-9 _-]`)

// anchorOf returns the anchor of a heading.
func anchorOf(heading string) string {
	return strings.ReplaceAll(notInAnchors.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}

func code(words []string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = "`" + word + "`"
	}
	return strings.Join(quoted, ", ")
}

// paragraph returns a text in one line.
func paragraph(text string) string { return strings.Join(strings.Fields(text), " ") }

// sentence returns the first sentence of a text.
func sentence(text string) string {
	if first, _, more := strings.Cut(paragraph(text), ". "); more {
		return first + "."
	}
	return paragraph(text)
}

// cell escapes a text for a cell of a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
