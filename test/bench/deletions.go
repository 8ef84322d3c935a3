package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// kinds are what is deleted: workspaces that a request has entered, and others.
var kinds = []struct {
	name    string
	entered bool
}{{"entered", true}, {"never-entered", false}}

// runDeletions creates n workspaces in one, enters them and deletes that one, and likewise without entering them. It alternates between kcp
// and another kcp, if there is one.
func runDeletions(ctx context.Context, n int, s scale) error {
	bin, dir, err := prepareWith("kcp")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var servers []*process
	for i, from := range []string{bin, s.against} {
		if from == "" {
			break
		}
		p, err := startKCP(ctx, from, filepath.Join(dir, strconv.Itoa(i)))
		if err != nil {
			return err
		}
		defer p.stop()
		servers = append(servers, p)
	}
	if len(servers) > 1 {
		servers[1].name = "other"
	}
	loads := map[string]*[2][]load{}
	var order []string
	for round := range s.rounds {
		for _, kind := range kinds {
			for i, p := range servers {
				steps, err := p.deletions(ctx, n, fmt.Sprintf("%s%d", kind.name, round), kind.entered, s.profiles)
				if err != nil {
					return fmt.Errorf("%s: %w", p.name, err)
				}
				for _, step := range steps {
					what := fmt.Sprintf("%s %d workspaces (%s)", step.verb, n, kind.name)
					if loads[what] == nil {
						loads[what], order = &[2][]load{}, append(order, what)
					}
					loads[what][i] = append(loads[what][i], step.load)
				}
			}
		}
	}
	var rows []row
	for _, what := range order {
		var both [2]load
		for i := range servers {
			both[i] = median(loads[what][i])
		}
		rows = append(rows, throughputRow(what, "1/s", both[0], both[1], 0))
	}
	printTable(os.Stdout, s.named(rows))
	return nil
}

// step is a load of deletions.
type step struct {
	verb string
	load load
}

// deletions creates n workspaces in a new one, enters them, and deletes that one.
func (p *process) deletions(ctx context.Context, n int, parent string, entered bool, profiles string) ([]step, error) {
	r := &workspacesRun{kcp: p}
	if err := r.create(ctx, 0, "root", parent); err != nil {
		return nil, err
	}
	var steps []step
	run := func(verb string, do func() (load, error)) error {
		l, err := p.reported(ctx, fmt.Sprintf("%s %d of %s", verb, n, parent), n, profiles, do)
		steps = append(steps, step{verb, l})
		return err
	}
	err := run("create", func() (load, error) {
		return count(ctx, creators, n, func(ctx context.Context, client, i int) error {
			return r.create(ctx, client, "root:"+parent, fmt.Sprintf("w%d", i))
		})
	})
	if err == nil && entered {
		err = run("enter", func() (load, error) {
			return count(ctx, creators, n, func(ctx context.Context, client, i int) error {
				path := fmt.Sprintf("/clusters/root:%s:w%d/api/v1/namespaces/default", parent, i)
				status, answer, err := p.do(ctx, client, http.MethodGet, path, "")
				if err == nil && status != http.StatusOK {
					err = fmt.Errorf("%s: %d %s", path, status, answer)
				}
				return err
			})
		})
	}
	if err == nil {
		err = run("delete", func() (load, error) {
			begin := time.Now()
			err := r.remove(ctx, "root", parent)
			return load{n: n, perSecond: float64(n) / time.Since(begin).Seconds()}, err
		})
	}
	return steps, err
}

// reported is measured, and reports the requests of all kinds for each of n operations.
func (p *process) reported(ctx context.Context, what string, n int, profiles string, do func() (load, error)) (l load, err error) {
	before, err := p.requests(ctx)
	if err != nil {
		return l, err
	}
	run := func() error {
		l, err = measured(p, do)
		return err
	}
	if profiles == "" {
		err = run()
	} else {
		err = p.profile(ctx, profiles, what, profiled, run)
	}
	if err != nil {
		return l, err
	}
	after, err := p.requests(ctx)
	progress("%s: %s: %.0f/s, %.2f ms CPU each", p.name, what, l.perSecond, milliseconds(l.cpu))
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if each := (after[name] - before[name]) / float64(n); each >= 0.1 {
			progress("    %.2f %s", each, name)
		}
	}
	return l, err
}

// requests returns the numbers of requests to etcd and to the server so far.
func (p *process) requests(ctx context.Context) (map[string]float64, error) {
	metrics, err := p.download(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	sums := map[string]float64{}
	for lines := bufio.NewScanner(bytes.NewReader(metrics)); lines.Scan(); {
		name, labels, _ := strings.Cut(lines.Text(), "{")
		if name != "etcd_requests_total" && name != "apiserver_request_total" {
			continue
		}
		kind := []string{name}
		for _, label := range []string{"operation", "verb", "resource", "subresource", "code"} {
			if _, rest, found := strings.Cut(labels, label+`="`); found {
				value, _, _ := strings.Cut(rest, `"`)
				kind = append(kind, value)
			}
		}
		value, _ := strconv.ParseFloat(lines.Text()[strings.LastIndex(lines.Text(), " ")+1:], 64)
		sums[strings.Join(kind, " ")] += value
	}
	return sums, nil
}
