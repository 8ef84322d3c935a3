package repository

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// outdated are phrases that are archaic, ambiguous or not idiomatic in technical English. CONTRIBUTING.md says what to write instead.
var outdated = regexp.MustCompile(`(?i)\b(no` + `body|some` + `body|an` + `ew|mean` + `while|who` + `m|who` + `ever|by ch` + `ance|(is|are|was|were) to` + `ld|` +
	`te` + `lls? (of|that|whether|what)|of one'` + `s own|le` + `ads nowhere|(is|are|were) as` + `ked for|as` + `ks for|(is|are) of no u` + `se|nil sta` + `nds for|in who` + `se|of who` + `se|as it is as` + `ked|(is|are) as as` + `ked)\b`)

func TestTextIsPlainEnglish(t *testing.T) {
	checked := 0
	for _, file := range files(t, "*") {
		switch filepath.Ext(file) {
		case ".go", ".md", ".yaml", ".txt", ".tpl", "":
		default:
			continue
		}
		if file == "LICENSE" || file == "docs/dev/wording.md" || strings.Contains(file, "/testdata/") {
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
			if found := outdated.FindString(strings.ReplaceAll(line, "http.No"+"Body", "")); found != "" {
				t.Errorf("%s:%d: %q: use plain, present-day English, see CONTRIBUTING.md", file, i+1, found)
			}
		}
	}
	if checked < 500 {
		t.Errorf("only %d files checked", checked)
	}
}
