// Command bench measures kcp beside a vanilla kube-apiserver of the same version, both on an etcd of the same version, in
// one run on one machine. It prints a table of ratios; timings fail nothing.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// scale is how much is measured.
type scale struct {
	// seconds of each load, rounds of each pair of loads
	seconds, rounds int
	// clusters and namespaces whose memory is measured; clusters around the one whose latency is measured
	tenants, crowd int
	// clusters that install the same ten definitions
	definitionClusters int
}

func main() {
	short := flag.Bool("short", false, "measure for less than three minutes")
	crowd := flag.Int("crowd", 0, "number of logical clusters around the one whose latency is measured")
	definitions := flag.Int("definitions", 0, "number of logical clusters that install the same ten definitions")
	asJSON := flag.Bool("json", false, "print JSON")
	flag.Parse()
	s := scale{seconds: 5, rounds: 3, tenants: 1000, crowd: 10_000, definitionClusters: 300}
	if *short {
		s = scale{seconds: 2, rounds: 1, tenants: 300, crowd: 1000, definitionClusters: 50}
	}
	if *crowd > 0 {
		s.crowd = *crowd
	}
	if *definitions > 0 {
		s.definitionClusters = *definitions
	}
	rows, err := run(context.Background(), s)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if *asJSON {
		encoder := json.NewEncoder(os.Stdout)
		encoder.SetIndent("", "  ")
		_ = encoder.Encode(rows)
		return
	}
	printTable(os.Stdout, rows)
}

// run starts both servers and measures everything.
func run(ctx context.Context, s scale) ([]row, error) {
	dir, err := os.MkdirTemp("", "kcp-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	bin, err := build(dir)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	kcp, err := startKCP(ctx, bin, filepath.Join(dir, "kcp"))
	if err != nil {
		return nil, err
	}
	defer kcp.stop()
	ours := time.Since(begin)
	begin = time.Now()
	vanilla, err := startVanilla(ctx, bin, filepath.Join(dir, "vanilla"))
	if err != nil {
		return nil, err
	}
	defer vanilla.stop()
	theirs := time.Since(begin)
	rows := []row{
		{What: "cold start until ready", Unit: "s", Ours: ours.Seconds(), Vanilla: theirs.Seconds(), Budget: "≤ 5 s", Met: ours <= 5*time.Second},
		{What: "resident memory after the start, with etcd", Unit: "MiB", Ours: kcp.resident() / (1 << 20), Vanilla: vanilla.resident() / (1 << 20),
			Budget: "≤ 300 MiB", Met: kcp.resident() <= 300<<20},
	}
	for _, measure := range []func(context.Context, *process, *process, scale) ([]row, error){
		throughput, events, tenants, definitions, crowd,
	} {
		more, err := measure(ctx, kcp, vanilla, s)
		if err != nil {
			return nil, err
		}
		rows = append(rows, more...)
		for _, r := range more {
			fmt.Fprintln(os.Stderr, r)
		}
	}
	return rows, nil
}

// build compiles the programs from the modules that this repository requires.
func build(dir string) (string, error) {
	bin := filepath.Join(dir, "bin") + "/"
	fmt.Fprintln(os.Stderr, "building kcp, kube-apiserver and etcd …")
	for _, program := range []string{"github.com/kcplane/kcp/server/cmd/kcp", "k8s.io/kubernetes/cmd/kube-apiserver", "github.com/kcplane/kcp/test/bench/etcd"} {
		if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", bin, program).CombinedOutput(); err != nil {
			return "", fmt.Errorf("building %s: %w\n%s", program, err, out)
		}
	}
	return bin, nil
}
