package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestTableAndSchemaAreGeneratedFromComments(t *testing.T) {
	values, err := read([]byte(`
image:
  # Repository of
  # the image.
  repository: example.com/image
# Number of pods | more.
# schema: {minimum: 0}
replicas: 1
# What a pod needs.
resources:
  requests: {cpu: 1m}
# Names.
names: []
`))
	if err != nil {
		t.Fatal(err)
	}
	want := "| `image.repository` | `\"example.com/image\"` | Repository of the image. |\n" +
		"| `replicas` | `1` | Number of pods \\| more. |\n" +
		"| `resources` | `{\"requests\":{\"cpu\":\"1m\"}}` | What a pod needs. |\n" +
		"| `names` | `[]` | Names. |\n"
	if got := values.table(); !strings.HasSuffix(got, want) {
		t.Errorf("got\n%s", got)
	}
	schema, err := json.Marshal(values.schema())
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		`"image":{"additionalProperties":false,"properties":{"repository":{"description":"Repository of the image.","type":"string"}},"type":"object"}`,
		`"replicas":{"description":"Number of pods | more.","minimum":0,"type":"integer"}`, `"type":"array"`,
	} {
		if !strings.Contains(string(schema), part) {
			t.Errorf("missing %s in\n%s", part, schema)
		}
	}
}

func TestValueWithoutCommentIsRefused(t *testing.T) {
	if _, err := read([]byte("group:\n  # described\n  a: 1\n  b: 2\n")); err == nil || !strings.Contains(err.Error(), "group.b") {
		t.Errorf("got %v", err)
	}
}

func TestInvalidConstraintsAreRefused(t *testing.T) {
	if _, err := read([]byte("# Described.\n# schema: {minimum\na: 1\n")); err == nil || !strings.Contains(err.Error(), "a: ") {
		t.Errorf("got %v", err)
	}
}
