// Command trimcrds removes the descriptions of Kubernetes types from CustomResourceDefinitions. They are most of such a definition, are
// available in the Kubernetes documentation, and beyond 256 kB kubectl apply cannot store the last applied configuration.
//
//	trimcrds -below=extraVolumes,resources config/crd/bases/*.yaml
package main

import (
	"flag"
	"log"
	"os"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

func main() {
	log.SetFlags(0)
	below := flag.String("below", "", "names of properties from whose content descriptions are removed")
	flag.Parse()
	for _, file := range flag.Args() {
		if err := trimFile(file, strings.Split(*below, ",")); err != nil {
			log.Fatalf("%s: %v", file, err)
		}
	}
}

func trimFile(file string, below []string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var crd any
	if err := yaml.Unmarshal(content, &crd); err != nil {
		return err
	}
	trim(crd, below)
	content, err = yaml.Marshal(crd)
	if err != nil {
		return err
	}
	return os.WriteFile(file, append([]byte("---\n"), content...), 0o644)
}

// trim removes descriptions below the named properties in a part of a definition.
func trim(part any, below []string) {
	switch part := part.(type) {
	case map[string]any:
		properties, _ := part["properties"].(map[string]any)
		for name, property := range properties {
			if slices.Contains(below, name) {
				own := property.(map[string]any)
				description, described := own["description"]
				undescribe(own)
				if described { // not below another one
					own["description"] = description
				}
			}
		}
		for _, value := range part {
			trim(value, below)
		}
	case []any:
		for _, value := range part {
			trim(value, below)
		}
	}
}

// undescribe removes all descriptions. A property with the name description has a schema, not a text.
func undescribe(part any) {
	switch part := part.(type) {
	case map[string]any:
		if _, text := part["description"].(string); text {
			delete(part, "description")
		}
		for _, value := range part {
			undescribe(value)
		}
	case []any:
		for _, value := range part {
			undescribe(value)
		}
	}
}
