// Package decisionlog logs what the server decides about logical clusters, with the same keys everywhere.
//
// State changes, waits and refusals because of a limit of the installation are logged at level 2, each decision about a request, with other
// refusals, at level 4. The entries of a logical cluster are
// limited: tenants cause them, and a tenant must not hide the entries of others.
package decisionlog

import (
	"context"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/kcplane/kcp/server/logicalcluster"
)

const (
	// changes is the level of state changes, waits and refusals, decisions that of each decision about a request.
	changes, decisions = 2, 4

	// In each window, a logical cluster gets perCluster entries. At most maxClusters logical clusters are counted separately; the others
	// share one count.
	window      = 10 * time.Second
	perCluster  = 20
	maxClusters = 4096
	// maxReports is the number of logical clusters whose suppressed entries are reported separately after a window.
	maxReports = 10
)

// ForChange returns a logger for a state change, a wait or a refusal. tenant is the logical cluster whose users can cause the entry, and
// whose limit it counts against. The logger is disabled at lower verbosity, and while tenant is over its limit.
func ForChange(ctx context.Context, tenant logicalcluster.Name) klog.Logger {
	logger := klog.FromContext(ctx).V(changes)
	if !logger.Enabled() || !entries.take(tenant, time.Now()) {
		return klog.Logger{}
	}
	return logger
}

// LogsChanges reports whether ForChange can return an enabled logger.
func LogsChanges(ctx context.Context) bool { return klog.FromContext(ctx).V(changes).Enabled() }

// ForFailure returns a logger for an error that users of tenant can cause, with the limit of ForChange.
func ForFailure(ctx context.Context, tenant logicalcluster.Name) klog.Logger {
	if !entries.take(tenant, time.Now()) {
		return klog.Logger{}
	}
	return klog.FromContext(ctx)
}

// ForDecision returns a logger for a decision about a request. Check whether it is enabled before computing arguments.
func ForDecision(ctx context.Context) klog.Logger {
	return klog.FromContext(ctx).V(decisions)
}

// entries limits the entries of this process.
var entries = limiter{report: reportSuppressed}

// limiter counts entries by logical cluster, in one window after the other. maxClusters bounds its memory.
type limiter struct {
	report func(counts map[logicalcluster.Name]int, suppressed int)

	mu     sync.Mutex
	began  time.Time
	counts map[logicalcluster.Name]int
	// suppressed is the number of entries that the window has left out. The timer reports them when the window ends; it exists only
	// while there are any.
	suppressed int
	timer      *time.Timer
}

// take reports whether an entry of a logical cluster may be written now.
func (l *limiter) take(cluster logicalcluster.Name, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.counts == nil || now.Sub(l.began) >= window {
		l.end()
		l.began, l.counts = now, map[logicalcluster.Name]int{}
	}
	n, known := l.counts[cluster]
	if !known && len(l.counts) >= maxClusters {
		cluster = ""
		n = l.counts[cluster]
	}
	l.counts[cluster] = n + 1
	if n < perCluster {
		return true
	}
	l.suppressed++
	if l.timer == nil {
		l.timer = time.AfterFunc(l.began.Add(window).Sub(now), l.flush)
	}
	return false
}

// flush ends a window.
func (l *limiter) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end()
}

func (l *limiter) end() {
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	if l.suppressed > 0 {
		l.report(l.counts, l.suppressed)
	}
	l.counts, l.suppressed = nil, 0
}

// reportSuppressed logs how many entries were suppressed, by logical cluster for some of them.
func reportSuppressed(counts map[logicalcluster.Name]int, suppressed int) {
	logger, reports := klog.Background(), 0
	for cluster, n := range counts {
		if n <= perCluster || cluster == "" {
			continue
		}
		if reports++; reports > maxReports {
			break
		}
		logger.Info("Log entries of a logical cluster were suppressed", Cluster, cluster, Suppressed, n-perCluster, Limit, perCluster)
		suppressed -= n - perCluster
	}
	if suppressed > 0 {
		logger.Info("Log entries of other logical clusters were suppressed", Suppressed, suppressed, Limit, perCluster)
	}
}
