// Package idle tests that unused logical clusters only cost storage and memory, but no goroutines, watches or metric series, and that
// deleted ones leave nothing in memory and in etcd.
package idle

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// number returns the value of an environment variable, or fallback if it is not set.
func number(t *testing.T, variable string, fallback int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return fallback
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

// target is a server with its etcd, and measures both.
type target struct {
	*kcptest.Server
	etcd *clientv3.Client
}

// start starts a server for one test.
func start(t *testing.T) *target {
	t.Helper()
	port, err := kcptest.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBE_CACHE_MUTATION_DETECTOR", "false")
	server, err := kcptest.Start(t.TempDir(), fmt.Sprintf("--embedded-etcd-client-port=%d", port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(server.Stop(), server.Panics()); err != nil {
			t.Error(err)
		}
	})
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{fmt.Sprintf("http://127.0.0.1:%d", port)}, DialTimeout: kcptest.Timeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { etcd.Close() })
	return &target{server, etcd}
}

// read returns the response of the server for a path outside of clusters.
func (s *target) read(t *testing.T, path string) []byte {
	t.Helper()
	code, body := s.Named("root").Raw(t, kcptest.Masters, http.MethodGet, path, nil, "")
	if code != http.StatusOK {
		t.Fatalf("%s returned %d: %.300s", path, code, body)
	}
	return body
}

// goroutines returns the number of goroutines, by the function that each started with.
func (s *target) goroutines(t *testing.T) map[string]int {
	t.Helper()
	began := map[string]int{}
	count, outermost := 0, ""
	flush := func() {
		if count > 0 {
			began[outermost] += count
		}
	}
	for line := range bytes.Lines(s.read(t, "/debug/pprof/goroutine?debug=1")) {
		if head := regexp.MustCompile(`^(\d+) @`).FindSubmatch(line); head != nil {
			flush()
			count, _ = strconv.Atoi(string(head[1]))
		} else if fields := bytes.Fields(line); len(fields) > 2 && string(fields[0]) == "#" {
			outermost = string(fields[2])
		}
	}
	flush()
	return began
}

func total(of map[string]int) int {
	sum := 0
	for n := range maps.Values(of) {
		sum += n
	}
	return sum
}

// growth describes what has increased.
func growth(before, now map[string]int) string {
	var grown []string
	for name, n := range now {
		if more := n - before[name]; more > 0 {
			grown = append(grown, fmt.Sprintf("%d more %s", more, name))
		}
	}
	slices.Sort(grown)
	return strings.Join(grown, "; ")
}

// series returns the values of all metrics, by name and labels.
func (s *target) series(t *testing.T) map[string]float64 {
	t.Helper()
	series := map[string]float64{}
	lines := bufio.NewScanner(bytes.NewReader(s.read(t, "/metrics")))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if i := strings.LastIndexByte(line, ' '); i > 0 && line[0] != '#' {
			series[line[:i]], _ = strconv.ParseFloat(line[i+1:], 64)
		}
	}
	if err := lines.Err(); err != nil || series["go_goroutines"] == 0 {
		t.Fatalf("the metrics do not contain the number of goroutines; %v", err)
	}
	return series
}

// watches returns the number of open watches, by resource.
func watches(series map[string]float64) map[string]int {
	found := map[string]int{}
	for name, value := range series {
		if strings.HasPrefix(name, "apiserver_longrunning_requests{") && strings.Contains(name, `verb="WATCH"`) {
			found[name] = int(value)
		}
	}
	return found
}

var allocated = regexp.MustCompile(`(?m)^# HeapAlloc = (\d+)$`)

// heap returns the bytes in use after a garbage collection.
func (s *target) heap(t *testing.T) int {
	t.Helper()
	s.read(t, "/debug/pprof/heap?gc=1&debug=1") // objects with finalizers are freed by the second collection
	found := allocated.FindSubmatch(s.read(t, "/debug/pprof/heap?gc=1&debug=1"))
	if found == nil {
		t.Fatal("the heap profile does not contain its size")
	}
	n, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// settled waits until the number of goroutines is at most by more higher than before, and returns the goroutines. Connections and the
// work of controllers end shortly after the requests.
func (s *target) settled(t *testing.T, before map[string]int, more int) map[string]int {
	t.Helper()
	var now map[string]int
	kcptest.Eventually(t, "the goroutines are as many as before", func(context.Context) error {
		now = s.goroutines(t)
		if total(now) > total(before)+more {
			return fmt.Errorf("got %d, before %d: %s", total(now), total(before), growth(before, now))
		}
		return nil
	})
	return now
}

// quiet waits until the number of goroutines does not fall any more, and returns the goroutines for later comparison.
func (s *target) quiet(t *testing.T) map[string]int {
	t.Helper()
	least := s.goroutines(t)
	for same := 0; same < 10; time.Sleep(100 * time.Millisecond) {
		now := s.goroutines(t)
		if total(now) < total(least) {
			least, same = now, 0
		} else {
			same++
		}
	}
	return least
}
