package abuse

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

const mebibyte = 1 << 20

var allocated = regexp.MustCompile(`(?m)^# HeapAlloc = (\d+)$`)

// heap returns the bytes in use on the server's heap after a garbage collection. What is allocated during a collection survives it, which is
// hundreds of megabytes if the collection gets little processor time. The next collection frees that.
func heap(t *testing.T, server *kcptest.Server) int {
	t.Helper()
	return min(collected(t, server), collected(t, server))
}

// profiles is the environment variable with a directory in which the test stores the heap profile of the server during each attack.
const profiles = "KCP_ABUSE_PROFILES"

// saveProfile stores the heap profile of the server, if profiles are wanted.
func saveProfile(t *testing.T, server *kcptest.Server, attack string) {
	t.Helper()
	directory := os.Getenv(profiles)
	if directory == "" {
		return
	}
	code, body := server.Named("root").Raw(t, kcptest.Masters, http.MethodGet, "/debug/pprof/heap?gc=1", nil, "")
	if code != http.StatusOK {
		t.Errorf("reading the heap profile: %d: %.300s", code, body)
		return
	}
	if err := os.WriteFile(filepath.Join(directory, strings.ReplaceAll(attack, " ", "-")+".pprof"), body, 0o600); err != nil {
		t.Error(err)
	}
}

func collected(t *testing.T, server *kcptest.Server) int {
	t.Helper()
	code, body := server.Named("root").Raw(t, kcptest.Masters, http.MethodGet, "/debug/pprof/heap?gc=1&debug=1", nil, "")
	found := allocated.FindSubmatch(body)
	if code != http.StatusOK || found == nil {
		t.Fatalf("reading the heap profile: %d: %.300s", code, body)
	}
	n, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// forgetPeak resets the peak memory of the process in the kernel. peak returns it.
func forgetPeak(server *kcptest.Server) {
	_ = write(fmt.Sprintf("/proc/%d/clear_refs", server.PID()), "5")
}

func peak(server *kcptest.Server) int {
	content, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", server.PID()))
	for line := range strings.Lines(string(content)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "VmHWM:" {
			kib, _ := strconv.Atoi(fields[1])
			return kib * 1024
		}
	}
	return 0
}

// quantile returns a quantile of sorted durations.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// latencies are the latencies of the victim in one phase.
type latencies struct{ p50, p99 time.Duration }

func summarize(samples []time.Duration) latencies {
	sorted := slices.Sorted(slices.Values(samples))
	return latencies{quantile(sorted, 0.50), quantile(sorted, 0.99)}
}

// row is the measurements of one attack.
type row struct {
	attack                string
	before, during, after latencies
	// The heap sizes are from before the attack, from after it with its connections open, and from after these are closed. peak is
	// resident memory.
	heapBefore, heapHeld, heapAfter, peak int
	codes                                 map[int]int
}

// table returns a Markdown table of all attacks.
func table(rows ...row) string {
	var b strings.Builder
	fmt.Fprintln(&b, "| attack | p50 before, during, after (ms) | p99 before, during, after (ms) | p99 during / before | live heap before, during, after (MiB) | peak RSS (MiB) | answers to the attacker |")
	fmt.Fprintln(&b, "|---|---|---|---|---|---|---|")
	ms := func(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d)/float64(time.Millisecond)) }
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s, %s, %s | %s, %s, %s | %.1f | %d, %d, %d | %d | %s |\n", r.attack,
			ms(r.before.p50), ms(r.during.p50), ms(r.after.p50), ms(r.before.p99), ms(r.during.p99), ms(r.after.p99),
			float64(r.during.p99)/float64(max(r.before.p99, 1)), r.heapBefore/mebibyte, r.heapHeld/mebibyte, r.heapAfter/mebibyte, r.peak/mebibyte, answers(r.codes))
	}
	return b.String()
}

// answers lists the number of responses with each code.
func answers(codes map[int]int) string {
	var all []string
	for _, code := range slices.Sorted(maps.Keys(codes)) {
		name := strconv.Itoa(code)
		if code == noAnswer {
			name = "none"
		}
		all = append(all, fmt.Sprintf("%s × %d", name, codes[code]))
	}
	return strings.Join(all, ", ")
}

var panics = regexp.MustCompile(`(?i)panicked: true|panic:|a panic|panic serving|recovered|fatal error:|^goroutine \d+ \[`)

// newPanics fails the test for every panic in the log after offset, and returns the length of the log.
func newPanics(t *testing.T, log string, offset int) int {
	t.Helper()
	content, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for line := range bytes.Lines(content[min(offset, len(content)):]) {
		if panics.Match(line) {
			if found++; found <= 3 {
				t.Errorf("the server panicked: %.1000s", line)
			}
		}
	}
	return len(content)
}

// waitFor waits for a duration or until the context ends.
func waitFor(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
