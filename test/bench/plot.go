package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
)

// runWorkspaces measures with up to n workspaces, and prints a table.
func runWorkspaces(ctx context.Context, n int, directory, svg string) error {
	if directory == "" {
		temporary, err := os.MkdirTemp("", "kcp-bench-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(temporary)
		directory = temporary
	}
	r, err := measureWorkspaces(ctx, n, directory)
	if err != nil {
		return err
	}
	r.print(os.Stdout)
	if svg == "" {
		return nil
	}
	return os.WriteFile(svg, []byte(r.plot()), 0o644)
}

// enough is the number of workspaces from which the cost of each is significant beside that of the server.
const enough = 10_000

// each returns the bytes per workspace in KiB, without those of an empty server; or zero if there are too few workspaces.
func (r *workspacesRun) each(m mark, bytes float64) float64 {
	if m.Workspaces < enough {
		return 0
	}
	return max(0, bytes-r.Empty) / float64(m.Workspaces) / 1024
}

func (r *workspacesRun) print(w io.Writer) {
	fmt.Fprintln(
		w,
		"| workspaces | created, 1/s | p50 / p99 ms | resident MiB, peak / settled | KiB each, peak / settled | database MiB | goroutines "+
			"| series | restart s | one: get, update p50 ms | 1 % active: get, update p50 (p99) ms |",
	)
	fmt.Fprintln(w, "|---:|---:|---|---|---|---:|---:|---:|---:|---|---|")
	for _, m := range r.Marks {
		fmt.Fprintf(
			w,
			"| %d | %s | %s / %s | %s / %s | %s / %s | %s | %d | %d | %s | %s, %s | %s (%s), %s (%s) |\n",
			m.Workspaces,
			number(m.PerSecond),
			number(m.P50),
			number(m.P99),
			number(m.Peak/(1<<20)),
			number(m.Settled/(1<<20)),
			number(r.each(m, m.Peak)),
			number(r.each(m, m.Settled)),
			number(m.Database/(1<<20)),
			m.Goroutines,
			m.Series,
			number(m.Restart),
			number(
				m.One.Get,
			),
			number(m.One.Update),
			number(m.Active.Get),
			number(m.Active.Get99),
			number(m.Active.Update),
			number(m.Active.Update99),
		)
	}
	fmt.Fprintln(w)
	printTable(w, r.Rows)
}

const (
	panelWidth, panelHeight = 220, 150
	panelMargin             = 50
)

// plot draws the marks: one panel for each figure, over the number of workspaces in powers of ten.
func (r *workspacesRun) plot() string {
	panels := []struct {
		title string
		value func(mark) float64
	}{
		{"created a second", func(m mark) float64 { return m.PerSecond }},
		{"KiB resident for each, settled", func(m mark) float64 { return r.each(m, m.Settled) }},
		{"p50 ms: update among 1 % active", func(m mark) float64 { return m.Active.Update }},
		{"seconds to restart", func(m mark) float64 { return m.Restart }},
	}
	var b strings.Builder
	step := panelWidth + panelMargin
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">`+"\n",
		len(panels)*step+panelMargin, panelHeight+2*panelMargin)
	b.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	for i, panel := range panels {
		r.panel(&b, panelMargin+i*step, panel.title, panel.value)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func (r *workspacesRun) panel(b *strings.Builder, left int, title string, value func(mark) float64) {
	top, bottom := panelMargin, panelMargin+panelHeight
	highest, most, least := 0.0, 0.0, math.Inf(1)
	for _, m := range r.Marks {
		highest = max(highest, value(m))
		most, least = max(most, math.Log10(float64(m.Workspaces))), min(least, math.Log10(float64(m.Workspaces)))
	}
	x := func(m mark) float64 {
		if most == least {
			return float64(left)
		}
		return float64(left) + (math.Log10(float64(m.Workspaces))-least)/(most-least)*panelWidth
	}
	y := func(m mark) float64 {
		if highest == 0 {
			return float64(bottom)
		}
		return float64(bottom) - value(m)/(highest*1.1)*panelHeight
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" font-weight="bold">%s</text>`+"\n", left, top-12, title)
	fmt.Fprintf(b, `<path d="M%d %dV%dH%d" fill="none" stroke="black"/>`+"\n", left, top, bottom, left+panelWidth)
	var points []string
	for _, m := range r.Marks {
		points = append(points, fmt.Sprintf("%.1f,%.1f", x(m), y(m)))
	}
	fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="steelblue" stroke-width="2"/>`+"\n", strings.Join(points, " "))
	for _, m := range r.Marks {
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3" fill="steelblue"/>`, x(m), y(m))
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`, x(m), y(m)-7, number(value(m)))
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", x(m), bottom+16, thousands(m.Workspaces))
	}
}

func thousands(n int) string {
	switch {
	case n%1_000_000 == 0:
		return fmt.Sprintf("%dM", n/1_000_000)
	case n%1000 == 0:
		return fmt.Sprintf("%dk", n/1000)
	}
	return fmt.Sprint(n)
}
