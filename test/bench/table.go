package main

import (
	"fmt"
	"io"
)

// row is a figure of both servers.
type row struct {
	What, Unit    string
	Ours, Vanilla float64
	// OursLoad and VanillaLoad are details of a throughput.
	OursLoad, VanillaLoad *latency `json:",omitempty"`
	// Budget is a text. Met is whether the figure is within the budget.
	Budget string
	Met    bool
	// Pair names both sides, if they are not kcp and vanilla.
	Pair *pair `json:",omitempty"`
}

// pair names what is compared: what is measured, and the baseline.
type pair struct{ Ours, Baseline string }

var withVanilla = pair{"kcp", "vanilla"}

func (r row) pair() pair {
	if r.Pair == nil {
		return withVanilla
	}
	return *r.Pair
}

// latency is the latency of the requests of a load, and the processor time of the server for each, in milliseconds.
type latency struct{ P50, P99, CPU float64 }

func latencyOf(l load) *latency {
	if l == (load{}) {
		return nil // it was not measured
	}
	return &latency{milliseconds(l.p50), milliseconds(l.p99), milliseconds(l.cpu)}
}

// throughputRow compares two loads.
func throughputRow(what, unit string, ours, vanilla load, budget float64) row {
	r := row{
		What:        what,
		Unit:        unit,
		Ours:        ours.perSecond,
		Vanilla:     vanilla.perSecond,
		OursLoad:    latencyOf(ours),
		VanillaLoad: latencyOf(vanilla),
	}
	if budget > 0 {
		r.Budget, r.Met = fmt.Sprintf("≥ %g ×", budget), r.Ours >= budget*r.Vanilla
	}
	return r
}

// ratio returns the ratio of kcp to vanilla as text.
func (r row) ratio() string {
	if r.Vanilla == 0 {
		return ""
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
	return "**no**"
}

func (l *latency) String() string {
	if l == nil {
		return ""
	}
	return fmt.Sprintf("%s / %s / %s", number(l.P50), number(l.P99), number(l.CPU))
}

func (r row) String() string {
	return fmt.Sprintf("%s: %s %s (%s), %s %s (%s)",
		r.What, number(r.Ours), r.Unit, r.OursLoad, r.pair().Baseline, number(r.Vanilla), r.VanillaLoad)
}

func number(f float64) string {
	switch {
	case f == 0:
		return ""
	case f >= 100 || f <= -100:
		return fmt.Sprintf("%.0f", f)
	case f >= 10 || f <= -10:
		return fmt.Sprintf("%.1f", f)
	}
	return fmt.Sprintf("%.2f", f)
}

// printTable writes rows as Markdown.
func printTable(w io.Writer, rows []row) {
	sides := withVanilla
	if len(rows) > 0 {
		sides = rows[0].pair()
	}
	fmt.Fprintf(w, "| what | unit | %[1]s | %[2]s | ratio | budget | met | %[1]s: p50 / p99 / CPU ms | %[2]s: p50 / p99 / CPU ms |\n",
		sides.Ours, sides.Baseline)
	fmt.Fprintln(w, "|---|---|---:|---:|---:|---|---|---|---|")
	for _, r := range rows {
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n",
			r.What, r.Unit, number(r.Ours), number(r.Vanilla), r.ratio(), r.Budget, r.met(), r.OursLoad, r.VanillaLoad)
	}
}
