package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestOnlyDescriptionsBelowNamedPropertiesAreRemoved(t *testing.T) {
	const before = `---
properties:
  ours:
    description: stays
  resources:
    description: stays too
    items:
      description: goes
      properties:
        description:
          description: goes as well
          type: string
        resources:
          description: goes, too
          type: object
`
	const after = `---
properties:
  ours:
    description: stays
  resources:
    description: stays too
    items:
      properties:
        description:
          type: string
        resources:
          type: object
`
	file := filepath.Join(t.TempDir(), "crd.yaml")
	if err := os.WriteFile(file, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := trimFile(file, []string{"resources"}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != after {
		t.Errorf("got:\n%s\nwant:\n%s", got, after)
	}
}
