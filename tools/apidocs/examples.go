package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

var kindLine = regexp.MustCompile(`^kind: (\w+)$`)

// findExamples returns links from a directory to the first manifest of each kind: a file, or a section of a page.
func findExamples(directory string, files []string) map[string]string {
	found := map[string]string{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			continue // a pattern matched it, so it is a directory
		}
		link, err := filepath.Rel(directory, file)
		if err != nil {
			continue
		}
		section, inCode := "", false
		for _, line := range strings.Split(string(content), "\n") {
			if strings.HasPrefix(line, "```") {
				inCode = !inCode
			}
			if heading, is := strings.CutPrefix(line, "## "); is && !inCode && filepath.Ext(file) == ".md" {
				section = "#" + anchorOf(heading)
			}
			if kind := kindLine.FindStringSubmatch(line); kind != nil && found[kind[1]] == "" {
				found[kind[1]] = link + section
			}
		}
	}
	return found
}
