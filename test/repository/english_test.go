package repository

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// unedited are the paths whose text does not follow the rules for English yet. Remove a path once its text does.
var unedited = []string{
	".ci/", "api/operator/", "bundle/", "charts/", "client/", "config/", "operator/", "server/", "test/", "tools/",
	"CONTRIBUTING.md", "LICENSE", "Makefile", "PROJECT", "SECURITY.md", "CHANGELOG.md",
	"docs/",
}

// edited are the paths within the unedited ones whose text follows the rules.
var edited = []string{
	"docs/definitions.md", "docs/kubectl.md", "docs/quickstart.md", "docs/workspaces.md", "docs/apis.md",
	"docs/performance.md", "docs/virtual-workspaces.md", "docs/reference/apis.md", "docs/reference/cache.md", "docs/reference/core.md",
	"docs/reference/tenancy.md", "docs/reference/topology.md", "test/repository/english_test.go",
}

// outdated are phrases that are archaic, ambiguous or not idiomatic in technical English. CONTRIBUTING.md says what to write instead.
var outdated = regexp.MustCompile(`(?i)\b(no` + `body|some` + `body|an` + `ew|mean` + `while|who` + `m|who` + `ever|by ch` + `ance|(is|are|was|were) to` + `ld|` +
	`te` + `lls? (of|that|whether|what)|of one'` + `s own|le` + `ads nowhere|as it is as` + `ked|(is|are) as as` + `ked)\b`)

func TestTextIsPlainEnglish(t *testing.T) {
	hasPrefix := func(file string, prefixes []string) bool {
		for _, prefix := range prefixes {
			if strings.HasPrefix(file, prefix) {
				return true
			}
		}
		return false
	}
	checked := 0
	for _, file := range files(t, "*") {
		switch filepath.Ext(file) {
		case ".go", ".md", ".yaml", ".txt", ".tpl", "":
		default:
			continue
		}
		if hasPrefix(file, unedited) && !hasPrefix(file, edited) || strings.Contains(file, "/testdata/") {
			continue
		}
		content, err := os.ReadFile(filepath.Join(root, file))
		if os.IsNotExist(err) {
			continue // deleted, not yet committed
		}
		if err != nil {
			t.Fatal(err)
		}
		checked++
		for i, line := range strings.Split(string(content), "\n") {
			if found := outdated.FindString(line); found != "" {
				t.Errorf("%s:%d: %q: use plain, present-day English, see CONTRIBUTING.md", file, i+1, found)
			}
		}
	}
	if checked < 50 {
		t.Errorf("only %d files checked", checked)
	}
}
