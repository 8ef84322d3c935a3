package kcptest

import (
	"os"
	"strings"
	"testing"
)

// Block is a fenced code block of a page of documentation.
type Block struct {
	Line int
	// Section is the heading above it, without #.
	Section string
	// Info is the info string after the fence, for example "sh" for commands.
	Info, Text string
}

// Blocks returns the code blocks of a page.
func Blocks(t testing.TB, file string) []Block {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var found []Block
	inside, section := false, ""
	for i, line := range strings.Split(string(content), "\n") {
		switch fence, isFence := strings.CutPrefix(strings.TrimSpace(line), "```"); {
		case isFence && inside:
			inside = false
		case isFence:
			inside = true
			found = append(found, Block{Line: i + 1, Section: section, Info: fence})
		case inside:
			found[len(found)-1].Text += line + "\n"
		case strings.HasPrefix(line, "#"):
			section = strings.TrimLeft(line, "# ")
		}
	}
	return found
}
