package main

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Descriptors that select how consoles show a field.
const (
	asNumber     = "urn:alm:descriptor:com.tectonic.ui:number"
	asPods       = "urn:alm:descriptor:com.tectonic.ui:podCount"
	asResources  = "urn:alm:descriptor:com.tectonic.ui:resourceRequirements"
	asSwitch     = "urn:alm:descriptor:com.tectonic.ui:booleanSwitch"
	asText       = "urn:alm:descriptor:com.tectonic.ui:text"
	asConditions = "urn:alm:descriptor:io.kubernetes.conditions"
	asPhase      = "urn:alm:descriptor:io.kubernetes.phase"
	asSecret     = "urn:alm:descriptor:io.kubernetes:Secret"
)

// describe completes the description of a kind with that of its definition.
func describe(d v1alpha1.CRDDescription, definition *definition) v1alpha1.CRDDescription {
	version := definition.Spec.Versions[0]
	schema := version.Schema.OpenAPIV3Schema
	d.Name, d.Version = definition.Name, version.Name
	d.DisplayName, d.Description = words(d.Kind), line(schema.Description)
	for _, f := range fields(schema.Properties["spec"]) {
		d.SpecDescriptors = append(d.SpecDescriptors, v1alpha1.SpecDescriptor(f))
	}
	d.StatusDescriptors = fields(schema.Properties["status"])
	return d
}

// fields returns descriptions of the fields of a spec or a status. For a field that refers to an object, it describes the name in it.
func fields(schema apiextensionsv1.JSONSchemaProps) []v1alpha1.StatusDescriptor {
	var all []v1alpha1.StatusDescriptor
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		field := schema.Properties[name]
		d := v1alpha1.StatusDescriptor{Path: name, DisplayName: words(strings.ToUpper(name[:1]) + name[1:]), Description: line(field.Description)}
		if reference, ok := strings.CutSuffix(name, "Ref"); ok && field.Type == "object" {
			d.Path, d.DisplayName = name+".name", words(strings.ToUpper(reference[:1])+reference[1:])
		}
		if as := shown(name, field); as != "" {
			d.XDescriptors = []string{as}
		}
		all = append(all, d)
	}
	return all
}

func shown(name string, field apiextensionsv1.JSONSchemaProps) string {
	switch {
	case name == "replicas":
		return asPods
	case name == "resources":
		return asResources
	case name == "conditions":
		return asConditions
	case name == "phase":
		return asPhase
	case strings.HasSuffix(name, "SecretName") || strings.HasSuffix(strings.ToLower(name), "secretref"):
		return asSecret
	}
	return map[string]string{"boolean": asSwitch, "integer": asNumber, "string": asText}[field.Type]
}

var wordEnd = regexp.MustCompile(`([a-z0-9])([A-Z])`)

// words splits the name of a Go type or field into words.
func words(name string) string { return wordEnd.ReplaceAllString(name, "$1 $2") }

// line joins the lines of a text.
func line(text string) string { return strings.Join(strings.Fields(text), " ") }
