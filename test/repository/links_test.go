package repository

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// document is a page with its links and anchors.
type document struct {
	links   []string
	anchors map[string]bool
}

var (
	code         = regexp.MustCompile("`[^`]*`")
	link         = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	notInAnchors = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// readDocument reads a page. It derives anchors from headings like GitHub.
func readDocument(t *testing.T, file string) document {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	page, inCode := document{anchors: map[string]bool{}}, false
	for _, line := range strings.Split(string(content), "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			inCode = !inCode
		}
		if inCode {
			continue
		}
		if heading := strings.TrimLeft(line, "#"); heading != line {
			heading = notInAnchors.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
			page.anchors[strings.ReplaceAll(heading, " ", "-")] = true
		}
		for _, found := range link.FindAllStringSubmatch(code.ReplaceAllString(line, "code"), -1) {
			page.links = append(page.links, found[1])
		}
	}
	return page
}

func TestLinksBetweenDocumentsResolve(t *testing.T) {
	pages := map[string]document{}
	for _, file := range files(t, "*.md") {
		path := filepath.Join(root, file)
		if _, err := os.Stat(path); err == nil {
			pages[path] = readDocument(t, path)
		}
	}
	checked := 0
	for path, page := range pages {
		for _, target := range page.links {
			if strings.Contains(target, "://") {
				continue
			}
			checked++
			name, anchor, _ := strings.Cut(target, "#")
			to := path
			if name != "" {
				to = filepath.Join(filepath.Dir(path), name)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s: %s does not exist", path, target)
			} else if other, isPage := pages[to]; isPage && anchor != "" && !other.anchors[anchor] {
				t.Errorf("%s: %s: no such heading", path, target)
			}
		}
	}
	if checked < 50 {
		t.Errorf("only %d links checked", checked)
	}
}

// Every page is reachable from README.md.
func TestEveryDocumentIsLinkedTo(t *testing.T) {
	linked := map[string]bool{filepath.Join(root, "README.md"): true}
	for _, file := range files(t, "*.md") {
		path := filepath.Join(root, file)
		if _, err := os.Stat(path); err != nil {
			continue
		}
		for _, target := range readDocument(t, path).links {
			name, _, _ := strings.Cut(target, "#")
			linked[filepath.Join(filepath.Dir(path), name)] = true
		}
	}
	for _, file := range files(t, "docs/*.md") {
		if !linked[filepath.Join(root, file)] {
			t.Errorf("nothing links to %s", file)
		}
	}
}
