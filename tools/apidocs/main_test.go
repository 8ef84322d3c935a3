package main

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write the expected pages")

func TestPagesShowMarkersOfTypes(t *testing.T) {
	directory := t.TempDir()
	if err := write(directory, "v1.37", nil, []string{"./testdata/v1"}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"README.md", "example.md"} {
		got, err := os.ReadFile(filepath.Join(directory, name))
		if err != nil {
			t.Fatal(err)
		}
		golden := filepath.Join("testdata", name+".golden")
		if *update {
			if err := os.WriteFile(golden, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("%s has unexpected content:\n%s", name, got)
		}
	}
}

func TestExamplesAreFoundInManifestsAndInCodeBlocks(t *testing.T) {
	directory := t.TempDir()
	file := func(name, text string) string {
		t.Helper()
		path := filepath.Join(directory, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	found := findExamples(filepath.Join(directory, "reference"), []string{
		file("one.yaml", "apiVersion: a.io/v1\nkind: One\n"),
		file("page.md", "## How to\n```yaml\n## no heading\napiVersion: a.io/v1\nkind: One\n---\napiVersion: b.io/v1\nkind: One\n```\n"),
	})
	if len(found) != 2 || found["a.io/One"] != "../one.yaml" || found["b.io/One"] != "../page.md#how-to" {
		t.Errorf("found %v", found)
	}
}
