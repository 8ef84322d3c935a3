package main

import (
	"fmt"
	"io"
)

// row is one figure of both servers.
type row struct {
	What, Unit    string
	Ours, Vanilla float64
	// Budget in words; Met tells whether it holds.
	Budget string
	Met    bool
}

// ratio of ours to vanilla's, as text.
func (r row) ratio() string {
	if r.Vanilla == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", r.Ours/r.Vanilla)
}

func (r row) met() string {
	switch {
	case r.Budget == "":
		return ""
	case r.Met:
		return "yes"
	}
	return "no"
}

func (r row) String() string {
	return fmt.Sprintf("%s: %s %s, vanilla %s", r.What, number(r.Ours), r.Unit, number(r.Vanilla))
}

func number(f float64) string {
	switch {
	case f == 0:
		return "–"
	case f >= 100:
		return fmt.Sprintf("%.0f", f)
	case f >= 10:
		return fmt.Sprintf("%.1f", f)
	}
	return fmt.Sprintf("%.2f", f)
}

// printTable writes rows as Markdown.
func printTable(w io.Writer, rows []row) {
	fmt.Fprintln(w, "| what | unit | kcp | vanilla | ratio | budget | met |")
	fmt.Fprintln(w, "|---|---|---:|---:|---:|---|---|")
	for _, r := range rows {
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %s |\n", r.What, r.Unit, number(r.Ours), number(r.Vanilla), r.ratio(), r.Budget, r.met())
	}
}
