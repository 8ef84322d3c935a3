package main

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestEverySuiteIsListed(t *testing.T) {
	entries, err := os.ReadDir("../../e2e")
	if err != nil {
		t.Fatal(err)
	}
	var directories, listed []string
	for _, e := range entries {
		if e.IsDir() {
			directories = append(directories, e.Name())
		}
	}
	for _, s := range suites {
		listed = append(listed, s.name)
		if s.chosen && s.alone != "" {
			t.Errorf("%s is chosen, and runs with one shard only", s.name)
		}
	}
	if slices.Sort(listed); !slices.Equal(listed, directories) {
		t.Errorf("suites has %q, and test/e2e has %q", listed, directories)
	}
}

// An exception excludes tests of its name in all suites, and nothing if its test has another name now.
func TestExceptionsNameOneTest(t *testing.T) {
	for _, s := range suites {
		for name, why := range s.except {
			found, err := exec.Command("grep", "-rlE", "^func "+name+`\(`, "../../e2e", "--include=*_test.go").Output()
			files := strings.Fields(string(found))
			if err != nil || len(files) != 1 || !strings.HasPrefix(files[0], "../../e2e/"+s.name+"/") {
				t.Errorf("%s of %s is in %q (%v)", name, s.name, files, err)
			}
			if why == "" {
				t.Errorf("%s of %s has no reason", name, s.name)
			}
		}
	}
}

func TestSuitesAreSelected(t *testing.T) {
	for value, want := range map[string]string{
		"chosen": "admission apis controllers inactive isolation workspaces apisharing", "api": "api", "api,definitions": "api definitions",
		"crash": "", "api,absent": "", "": "",
	} {
		found, err := selected(value)
		var names []string
		for _, s := range found {
			names = append(names, s.name)
		}
		if got := strings.Join(names, " "); got != want || (err != nil) != (want == "") {
			t.Errorf("%q: got %q and %v, want %q", value, got, err, want)
		}
	}
}
