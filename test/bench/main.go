// Command bench measures kcp and a vanilla kube-apiserver of the same version, both with the same version of etcd, in one run on one
// machine. The loads alternate between the two, so that other load on the machine affects both. It prints a table of ratios. Timings do
// not fail the run, but failed requests do.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

// scale is the size of a run.
type scale struct {
	// slice is the duration of one load. rounds is how often each server is measured.
	slice  time.Duration
	rounds int
	// number of tenants and namespaces for the measurement of memory
	tenants int
	// crowd is the number of logical clusters on the server whose latency is compared with that of a server with few.
	few, crowd int
	// exports is the number of exports on another shard, and moved that of objects in a logical cluster that moves.
	exports, moved int
	// number of clusters that install the same ten definitions
	definitionClusters int
	// only are the loads to run. If it is nil, all loads and all other measurements run.
	only *regexp.Regexp
	// parts selects the parts of a run with an installation of shards.
	parts *regexp.Regexp
	// profiles is the directory for CPU profiles of every load, or empty for none.
	profiles string
	// against is the directory of another kcp, with which kcp is compared instead of a vanilla server; empty for none.
	against string
}

// baseline starts the server with which kcp is compared.
func (s scale) baseline(ctx context.Context, bin, dir string) (*process, error) {
	if s.against == "" {
		return startVanilla(ctx, bin, dir)
	}
	p, err := startKCP(ctx, s.against, dir)
	if err == nil {
		p.name = "other"
	}
	return p, err
}

// programs are those that a run needs in the directory of programs.
func (s scale) programs() []string {
	if s.against == "" {
		return withVanillaServer
	}
	return []string{"kcp"}
}

// otherKCP names the sides of a comparison with another kcp.
var otherKCP = &pair{"kcp", "the other kcp"}

// named names the sides of rows.
func (s scale) named(rows []row) []row {
	for i := range rows {
		if s.against != "" {
			rows[i].Pair = otherKCP
		}
	}
	return rows
}

// measurement is what the flags select beside the standard one.
type measurement struct {
	tenants, crowd, definitions, workspaces, compare, deletions, sharing, standIns, exports, unread, entered int
	short, fairness, sharded                                                                                 bool
	only, profiles, output, against, noise, directory, svg, parts, hop                                       string
}

func parse() measurement {
	m := measurement{}
	flag.BoolVar(&m.short, "short", false, "measure for about two minutes")
	flag.IntVar(&m.crowd, "crowd", 0, "number of logical clusters around the one whose latency is measured")
	flag.IntVar(&m.definitions, "definitions", 0, "number of logical clusters that install the same ten definitions")
	flag.IntVar(&m.tenants, "tenants", 0, "number of logical clusters and namespaces whose memory is measured")
	flag.StringVar(&m.only, "only", "", "measure only the request loads whose name matches this regular expression")
	flag.StringVar(&m.profiles, "profiles", "", "directory to write profiles of both servers to")
	flag.StringVar(&m.output, "o", "table", "output format: table or json")
	flag.IntVar(&m.workspaces, "workspaces", 0, "only measure with up to this number of workspaces")
	flag.IntVar(&m.compare, "compare", 0, "only compare this number of workspaces with as many namespaces of a vanilla server")
	flag.IntVar(&m.deletions, "deletions", 0, "only create, enter and delete this number of workspaces, with the requests that each takes")
	flag.IntVar(&m.entered, "entered", 0, "only measure the first requests to this number of workspaces")
	flag.IntVar(&m.sharing, "sharing", 0, "only measure an API that this number of logical clusters have bound")
	flag.IntVar(&m.unread, "unread", 0, "only measure the memory of this number of Secrets and ConfigMaps that no controller reads")
	flag.BoolVar(&m.fairness, "fairness", false, "only measure a client of one tenant beside busy clients of another tenant")
	flag.BoolVar(&m.sharded, "sharded", false, "only measure an installation of three shards, beside requests to a shard itself")
	flag.StringVar(&m.parts, "parts", "", "with -sharded, measure only the parts whose name matches this regular expression")
	flag.IntVar(&m.exports, "exports", 0, "with -sharded, the number of exports on another shard")
	flag.IntVar(&m.standIns, "standins", 0, "only measure a front proxy and a cache server with this number of stand-ins of shards")
	flag.StringVar(&m.against, "against", "", "directory of another kcp, with which kcp is compared instead of a vanilla server")
	flag.StringVar(&m.noise, "noise", "", "used by -fairness for the process of the busy clients")
	flag.StringVar(&m.hop, "hop", "", "used by -sharded for the processes of a bare reverse proxy, and of a copy of the bytes")
	flag.StringVar(
		&m.directory,
		"directory",
		"",
		"directory for the state of a run with -workspaces, from which it can be resumed; empty: none",
	)
	flag.StringVar(&m.svg, "svg", "", "file for the plot of a run with -workspaces")
	flag.Parse()
	return m
}

// scale returns how much is measured.
func (m measurement) scale() scale {
	s := scale{slice: time.Second, rounds: 5, tenants: 1000, few: 100, crowd: 10_000, definitionClusters: 300, profiles: m.profiles,
		exports: 10_000, moved: 10_000, against: m.against}
	if m.short {
		s.slice, s.rounds, s.tenants, s.crowd, s.definitionClusters = 500*time.Millisecond, 2, 200, 1000, 30
		s.exports, s.moved = 1000, 1000
	}
	for field, given := range map[*int]int{
		&s.crowd: m.crowd, &s.definitionClusters: m.definitions, &s.tenants: m.tenants, &s.exports: m.exports,
	} {
		if given > 0 {
			*field = given
		}
	}
	if m.only != "" {
		s.only = regexp.MustCompile(m.only)
	}
	s.parts = regexp.MustCompile(m.parts)
	return s
}

// run runs what the flags select.
func (m measurement) run(ctx context.Context, s scale) error {
	switch {
	case m.noise != "":
		return makeNoise(ctx, m.noise)
	case m.hop != "":
		return serveHop(ctx, m.hop)
	case m.fairness:
		return runFairness(ctx, s)
	case m.standIns > 0:
		return runStandins(ctx, m.standIns, s)
	case m.sharded:
		return runSharded(ctx, s)
	case m.workspaces > 0:
		return runWorkspaces(ctx, m.workspaces, m.directory, m.svg)
	case m.compare > 0:
		return compareWorkspaces(ctx, m.compare, s)
	case m.deletions > 0:
		return runDeletions(ctx, m.deletions, s)
	case m.unread > 0:
		return runUnread(ctx, m.unread, s)
	case m.entered > 0:
		return runEntered(ctx, m.entered, s)
	case m.sharing > 0:
		return runSharing(ctx, m.sharing, m.profiles)
	}
	rows, err := run(ctx, s)
	if err != nil {
		return err
	}
	if m.output == "json" {
		encoder := json.NewEncoder(os.Stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(rows)
	}
	printTable(os.Stdout, rows)
	return nil
}

func main() {
	m := parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := m.run(ctx, m.scale()); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run runs all measurements.
func run(ctx context.Context, s scale) ([]row, error) {
	bin, dir, err := prepareWith(s.programs()...)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	kcp, vanilla, rows, err := coldStart(ctx, bin, dir, s)
	if err != nil {
		return nil, err
	}
	defer kcp.stop()
	defer vanilla.stop()
	measures := []func() ([]row, error){
		func() ([]row, error) { return throughput(ctx, kcp, vanilla, s) },
		func() ([]row, error) { return events(ctx, []*process{kcp}, vanilla, s) },
		func() ([]row, error) { return many(ctx, bin, filepath.Join(dir, "many"), kcp, s) },
	}
	if s.only != nil {
		measures = measures[:2]
	}
	for _, measure := range measures {
		more, err := measure()
		if err != nil {
			return nil, err
		}
		rows = append(rows, more...)
	}
	return s.named(rows), nil
}

// coldStart repeatedly starts both servers with empty directories, and leaves the last ones running.
func coldStart(ctx context.Context, bin, dir string, s scale) (kcp, vanilla *process, rows []row, err error) {
	var took, memory [2][]float64
	for round := range s.rounds {
		var servers [2]*process
		for i, start := range []func(context.Context, string, string) (*process, error){startKCP, s.baseline} {
			begin := time.Now()
			servers[i], err = start(ctx, bin, filepath.Join(dir, fmt.Sprintf("%d-%d", round, i)))
			if err != nil {
				if i == 1 {
					servers[0].stop()
				}
				return nil, nil, nil, err
			}
			took[i] = append(took[i], time.Since(begin).Seconds())
			memory[i] = append(memory[i], servers[i].resident()/(1<<20))
			if round < s.rounds-1 {
				servers[i].stop()
			}
		}
		kcp, vanilla = servers[0], servers[1]
	}
	start := row{What: "cold start until ready", Unit: "s", Ours: middle(took[0]), Vanilla: middle(took[1]), Budget: "≤ 5 s"}
	start.Met = start.Ours <= 5
	rss := row{
		What:    "resident memory when ready, with etcd",
		Unit:    "MiB",
		Ours:    middle(memory[0]),
		Vanilla: middle(memory[1]),
		Budget:  "≤ 300 MiB",
	}
	rss.Met = rss.Ours <= 300
	return kcp, vanilla, report([]row{start, rss}), nil
}

// report prints the figures while the run continues.
func report(rows []row) []row {
	for _, r := range rows {
		fmt.Fprintln(os.Stderr, r)
	}
	return rows
}
