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
	"LICENSE", "server/",
}

// edited are paths within the unedited ones whose text follows the rules.
var edited = []string{
	"server/cmd/", "server/internal/admission/", "server/internal/apis/", "server/internal/auth/", "server/internal/bootstrap/",
	"server/internal/controllers/transitions/", "server/internal/process/", "server/internal/request/", "server/internal/storage/",
	"server/internal/tenancy/", "server/internal/views/", "server/logicalcluster/", "server/options/", "server/virtual/",
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
			if found := outdated.FindString(strings.ReplaceAll(line, "http.No"+"Body", "")); found != "" {
				t.Errorf("%s:%d: %q: use plain, present-day English, see CONTRIBUTING.md", file, i+1, found)
			}
		}
	}
	if checked < 50 {
		t.Errorf("only %d files checked", checked)
	}
}
