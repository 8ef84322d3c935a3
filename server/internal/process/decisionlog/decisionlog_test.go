package decisionlog

import (
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kcplane/kcp/server/logicalcluster"
)

func TestALogicalClusterIsLimitedAndOthersAreNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reported map[logicalcluster.Name]int
		l := limiter{report: func(counts map[logicalcluster.Name]int, suppressed int) {
			reported = maps.Clone(counts)
			reported["all"] = suppressed
		}}
		written := 0
		for range 1000 {
			if l.take("busy", time.Now()) {
				written++
			}
		}
		if written != perCluster {
			t.Errorf("a busy logical cluster wrote %d entries, want %d", written, perCluster)
		}
		if !l.take("quiet", time.Now()) {
			t.Error("the entry of another logical cluster was suppressed")
		}
		time.Sleep(window)
		synctest.Wait()
		if reported["busy"] != 1000 || reported["all"] != 1000-perCluster {
			t.Errorf("after the window, %v was reported", reported)
		}
		if l.counts != nil || l.timer != nil {
			t.Error("the limiter uses memory after the report")
		}
		if !l.take("busy", time.Now()) {
			t.Error("the next window suppresses the first entry")
		}
	})
}

func TestTheMemoryOfTheLimitIsBounded(t *testing.T) {
	l, written := limiter{report: func(map[logicalcluster.Name]int, int) {}}, 0
	now := time.Now()
	for i := range 10 * maxClusters {
		if l.take(logicalcluster.Name(fmt.Sprint("c", i)), now) {
			written++
		}
	}
	if len(l.counts) > maxClusters+1 {
		t.Errorf("%d logical clusters are counted", len(l.counts))
	}
	if written != maxClusters+perCluster {
		t.Errorf("%d entries were written, want one for each of %d logical clusters and %d of all others", written, maxClusters, perCluster)
	}
	l.end()
}

func TestALoggerBelowItsVerbosityAllocatesNothing(t *testing.T) {
	ctx := t.Context()
	if n := testing.AllocsPerRun(1000, func() {
		if logger := ForChange(ctx, "root"); logger.Enabled() {
			t.Error("level 2 is enabled")
		}
		if logger := ForDecision(ctx); logger.Enabled() {
			t.Error("level 4 is enabled")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
