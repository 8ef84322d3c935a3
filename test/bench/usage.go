package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// pids returns the numbers of the processes.
func (p *process) pids() []int {
	pids := slices.Clone(p.others)
	for _, command := range p.commands {
		pids = append(pids, command.Process.Pid)
	}
	return pids
}

// resident returns the resident memory of the processes in bytes.
func (p *process) resident() float64 { return p.status("VmRSS:") }

// status returns the sum of a field of /proc/<pid>/status of the processes in bytes.
func (p *process) status(field string) float64 {
	var sum float64
	for _, pid := range p.pids() {
		content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(content)) {
			if fields := strings.Fields(line); len(fields) > 1 && fields[0] == field {
				kib, _ := strconv.ParseFloat(fields[1], 64)
				sum += kib * 1024
			}
		}
	}
	return sum
}

// settled returns the resident memory after garbage collection, when the Go runtime has returned free memory, which takes some time.
func (p *process) settled(ctx context.Context) (float64, error) {
	least := p.resident()
	for stable := 0; stable < 3; stable++ {
		if err := p.collectGarbage(ctx); err != nil {
			return 0, err
		}
		time.Sleep(time.Second)
		if now := p.resident(); now < least-(1<<20) {
			least, stable = now, 0
		}
	}
	return least, nil
}

// quiet returns when a server is idle: after a start its controllers process all objects once.
func (p *process) quiet(ctx context.Context) error {
	for before := p.cpu(); ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Second):
		}
		now := p.cpu()
		if now-before < time.Second {
			return nil
		}
		before = now
	}
}

func (p *process) collectGarbage(ctx context.Context) error {
	_, err := p.download(ctx, "/debug/pprof/heap?gc=1")
	return err
}

// memory is the memory of a server in bytes: the live heap of the server, the resident memory of the processes, and what of it is
// anonymous, which does not include the pages of the database.
type memory struct{ heap, resident, anonymous float64 }

var alive = regexp.MustCompile(`(?m)^# HeapAlloc = (\d+)$`)

func (p *process) memory(ctx context.Context) (memory, error) {
	var m memory
	var err error
	if m.resident, err = p.settled(ctx); err != nil {
		return m, err
	}
	m.anonymous = p.status("RssAnon:")
	profile, err := p.download(ctx, "/debug/pprof/heap?gc=1&debug=1")
	if err != nil {
		return m, err
	}
	found := alive.FindSubmatch(profile)
	if found == nil {
		return m, fmt.Errorf("%s: the heap profile does not contain its size", p.name)
	}
	m.heap, err = strconv.ParseFloat(string(found[1]), 64)
	return m, err
}

// heapProfile writes a heap profile, unless directory is empty.
func (p *process) heapProfile(ctx context.Context, directory, name string) error {
	if directory == "" {
		return nil
	}
	content, err := p.download(ctx, "/debug/pprof/heap?gc=1")
	if err != nil {
		return err
	}
	return write(directory, name+"."+p.name+".heap.pb.gz", content)
}

func write(directory, name string, content []byte) error {
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(directory, name), content, 0o644)
}

func (p *process) download(ctx context.Context, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.config.Host+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := p.connections[0].Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s: %s", p.name, path, response.Status, content)
	}
	return content, err
}

// cpu returns the processor time of the processes.
func (p *process) cpu() time.Duration { return cpuOf(p.pids()) }

// cpuOf returns the processor time of processes.
func cpuOf(pids []int) time.Duration {
	const ticksPerSecond = 100 // on every Linux that Go supports
	var ticks int64
	for _, pid := range pids {
		content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		// The second field is the name of the program in parentheses, which can contain spaces.
		_, rest, _ := strings.Cut(string(content), ") ")
		fields := strings.Fields(rest)
		for _, field := range fields[11:13] {
			n, _ := strconv.ParseInt(field, 10, 64)
			ticks += n
		}
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond
}

// profile writes a CPU profile of the server while do runs.
func (p *process) profile(ctx context.Context, directory, name string, duration time.Duration, do func() error) error {
	seconds := max(1, int(duration.Seconds()))
	type answer struct {
		content []byte
		err     error
	}
	done := make(chan answer, 1)
	go func() {
		content, err := p.download(ctx, fmt.Sprintf("/debug/pprof/profile?seconds=%d", seconds))
		done <- answer{content, err}
	}()
	if err := do(); err != nil {
		return err
	}
	a := <-done
	if a.err != nil {
		return a.err
	}
	return write(directory, strings.NewReplacer(" ", "-", ",", "").Replace(name)+"."+p.name+".pb.gz", a.content)
}
