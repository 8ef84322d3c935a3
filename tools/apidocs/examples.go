package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

var (
	groupLine = regexp.MustCompile(`^apiVersion: ([\w.-]+)/\w+$`)
	kindLine  = regexp.MustCompile(`^kind: (\w+)$`)
)

// findExamples returns links from a directory to the first manifest of each kind, by group/kind: a file, or a section of a page. The line
// with the kind of a manifest follows that with its group.
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
		section, group, inCode := "", "", false
		for _, line := range strings.Split(string(content), "\n") {
			if strings.HasPrefix(line, "```") {
				inCode = !inCode
			}
			if heading, is := strings.CutPrefix(line, "## "); is && !inCode && filepath.Ext(file) == ".md" {
				section = "#" + anchorOf(heading)
			}
			if is := groupLine.FindStringSubmatch(line); is != nil {
				group = is[1]
			}
			if kind := kindLine.FindStringSubmatch(line); kind != nil && found[group+"/"+kind[1]] == "" {
				found[group+"/"+kind[1]] = link + section
			}
		}
	}
	return found
}
