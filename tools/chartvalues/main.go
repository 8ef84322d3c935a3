// Command chartvalues generates the documentation of a chart's values from the comments in its values.yaml: the table in README.md, below
// the heading Values, and values.schema.json. The type of a value is the type of its default. The last line of a comment can add
// constraints in JSON Schema, as "schema: {…}".
//
//	chartvalues charts/kcp-operator
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

const heading = "## Values\n"

func main() {
	log.SetFlags(0)
	for _, chart := range os.Args[1:] {
		if err := write(chart); err != nil {
			log.Fatalf("%s: %v", chart, err)
		}
	}
}

func write(chart string) error {
	content, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
	if err != nil {
		return err
	}
	values, err := read(content)
	if err != nil {
		return err
	}
	schema, err := json.MarshalIndent(values.schema(), "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(chart, "values.schema.json"), append(schema, '\n'), 0o644); err != nil {
		return err
	}
	readme := filepath.Join(chart, "README.md")
	text, err := os.ReadFile(readme)
	if err != nil {
		return err
	}
	before, _, found := bytes.Cut(text, []byte(heading))
	if !found {
		return fmt.Errorf("README.md has no heading %q", strings.TrimSpace(heading))
	}
	return os.WriteFile(readme, append(before, (heading+"\n"+values.table())...), 0o644)
}

// value is a value, or a group of values.
type value struct {
	path        string
	description string
	// constraints are the part of the schema from the comment.
	constraints map[string]any
	node        *yaml.Node
	// children are the values of a group. A mapping whose keys have no comments is one value with any content.
	children []value
}

// read returns the group of all values. Each value must have a comment above it, or be a group of values with comments.
func read(content []byte) (value, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(content, &document); err != nil {
		return value{}, err
	}
	root := value{node: document.Content[0]}
	err := root.descend()
	return root, err
}

func (v *value) descend() error {
	for i := 0; i+1 < len(v.node.Content); i += 2 {
		key, node := v.node.Content[i], v.node.Content[i+1]
		child := value{path: strings.TrimPrefix(v.path+"."+key.Value, "."), node: node}
		if err := child.comment(key.HeadComment); err != nil {
			return fmt.Errorf("%s: %w", child.path, err)
		}
		if node.Kind == yaml.MappingNode && commented(node) {
			if err := child.descend(); err != nil {
				return err
			}
		} else if child.description == "" {
			return fmt.Errorf("%s has no comment", child.path)
		}
		v.children = append(v.children, child)
	}
	return nil
}

func commented(mapping *yaml.Node) bool {
	for i := 0; i < len(mapping.Content); i += 2 {
		if mapping.Content[i].HeadComment != "" {
			return true
		}
	}
	return false
}

// comment parses the comment above a value.
func (v *value) comment(text string) error {
	var words []string
	for _, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(strings.TrimPrefix(line, "#"))
		if constraints, ok := strings.CutPrefix(line, "schema: "); ok {
			if err := yaml.Unmarshal([]byte(constraints), &v.constraints); err != nil {
				return err
			}
			continue
		}
		words = append(words, line)
	}
	v.description = strings.Join(words, " ")
	return nil
}

// schema returns the JSON Schema of a value.
func (v *value) schema() map[string]any {
	s := map[string]any{}
	if v.path == "" {
		s["$schema"] = "http://json-schema.org/draft-07/schema#"
	}
	if v.description != "" {
		s["description"] = v.description
	}
	if len(v.children) > 0 {
		properties := map[string]any{}
		for i := range v.children {
			child := &v.children[i]
			properties[child.path[strings.LastIndexByte(child.path, '.')+1:]] = child.schema()
		}
		if v.path == "" {
			properties["global"] = map[string]any{"type": "object", "description": "Values that Helm passes to every chart of a release."}
		}
		s["type"], s["properties"], s["additionalProperties"] = "object", properties, false
		return s
	}
	switch {
	case v.node.Kind == yaml.MappingNode:
		s["type"] = "object"
	case v.node.Kind == yaml.SequenceNode:
		s["type"] = "array"
	default:
		s["type"] = map[string]string{"!!bool": "boolean", "!!int": "integer", "!!float": "number"}[v.node.Tag]
		if s["type"] == "" {
			s["type"] = "string"
		}
	}
	maps.Copy(s, v.constraints)
	return s
}

// table returns a table of the values and their defaults.
func (v *value) table() string {
	var b strings.Builder
	b.WriteString("| value | default | meaning |\n|---|---|---|\n")
	v.rows(&b)
	return b.String()
}

func (v *value) rows(b *strings.Builder) {
	for i := range v.children {
		child := &v.children[i]
		if len(child.children) > 0 {
			child.rows(b)
			continue
		}
		fmt.Fprintf(b, "| `%s` | `%s` | %s |\n", child.path, child.standard(), strings.ReplaceAll(child.description, "|", `\|`))
	}
}

func (v *value) standard() string {
	if v.node.Kind == yaml.ScalarNode && v.node.Tag == "!!str" {
		return fmt.Sprintf("%q", v.node.Value)
	}
	var decoded any
	if err := v.node.Decode(&decoded); err != nil {
		return v.node.Value
	}
	encoded, err := json.Marshal(decoded)
	if err != nil {
		return v.node.Value
	}
	return string(encoded)
}
