package idle

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// slack is for connections of the clients of the test.
const slack = 12

func TestIdleClustersAddNoGoroutinesWatchesOrMetrics(t *testing.T) {
	server := start(t)
	first := names(100) // to create everything that exists only once
	server.make(t, first)
	server.enter(t, first)
	server.createsAgain(t, first[0])
	goroutines, series := server.quiet(t), server.series(t)
	idle := names(number(t, "KCP_IDLE_CLUSTERS", 2000))
	heap := server.heap(t)
	for _, step := range []struct {
		name string
		do   func(*testing.T, []string)
	}{{"created", server.make}, {"entered", server.enter}} {
		began := time.Now()
		step.do(t, idle)
		took := time.Since(began)
		after := server.settled(t, goroutines, slack)
		now := server.series(t)
		if more := growth(watches(series), watches(now)); more != "" {
			t.Errorf("%s clusters add watches: %s", step.name, more)
		}
		wantNoLabel(t, now, idle)
		wantNoSeriesOfTheirOwn(t, series, now, len(idle))
		keys, bytes := server.stored(t, idle[0])
		if keys == 0 {
			t.Errorf("found no keys of the cluster %s in etcd", idle[0])
		}
		t.Logf("%d clusters %s in %s: goroutines %d, were %d; series %d, were %d; watches %d; heap %d bytes more, %d keys and %d bytes in etcd for each",
			len(idle), step.name, took.Round(time.Second), total(after), total(goroutines), len(now), len(series), total(watches(now)),
			(server.heap(t)-heap)/len(idle), keys, bytes)
	}
}

// wantNoSeriesOfTheirOwn fails the test if the number of series grows with the number of clusters.
func wantNoSeriesOfTheirOwn(t *testing.T, before, now map[string]float64, clusters int) {
	t.Helper()
	var added []string
	for name := range now {
		// Histograms and counters of responses have a series for each code and verb, which can appear late, and those of bookmarks have
		// one for each resource.
		if _, was := before[name]; !was && !strings.HasPrefix(name, "apiserver_") && !strings.HasPrefix(name, "rest_client_") && !strings.HasPrefix(name, "etcd_bookmark_") {
			added = append(added, name)
		}
	}
	if len(added) > 50 || len(now)-len(before) > max(200, clusters/4) {
		t.Errorf("got %d series, before %d; some of the new ones are %.1000s", len(now), len(before), strings.Join(added, "\n"))
	}
}

// stored returns the number of keys and bytes of a cluster in etcd.
func (s *target) stored(t *testing.T, cluster string) (keys, bytes int) {
	t.Helper()
	s.scan(t, func(key string, value []byte) {
		if strings.Contains(key, cluster) {
			keys++
			bytes += len(key) + len(value)
		}
	})
	return keys, bytes
}

// warmth is the number of clusters that fill the server's limited caches: lists, schemas and their documents.
const warmth = 450

func TestDeletedClustersLeaveNothingInMemoryAndEtcd(t *testing.T) {
	server := start(t)
	rounds, clusters := number(t, "KCP_IDLE_ROUNDS", 5), number(t, "KCP_IDLE_CHURN", 150)
	for warmed := clusters; warmed < warmth; warmed += clusters {
		server.churn(t, clusters)
	}
	server.churn(t, clusters)
	goroutines, first := server.quiet(t), server.heap(t)
	limit := first + first/10
	for round := 2; round <= rounds; round++ {
		server.churn(t, clusters)
		server.settled(t, goroutines, slack)
		kcptest.Eventually(t, "the heap is at most a tenth larger than after the first round", func(context.Context) error {
			if heap := server.heap(t); heap > limit {
				return fmt.Errorf("got %d KiB, before %d KiB", heap/1024, first/1024)
			}
			return nil
		})
	}
}

// churn creates, uses and deletes clusters, and checks that no data of them remains in etcd and in the metrics.
func (s *target) churn(t *testing.T, clusters int) {
	t.Helper()
	began := time.Now()
	churned := names(clusters)
	s.make(t, churned)
	s.enter(t, churned)
	s.fill(t, churned)
	made := time.Since(began)
	s.delete(t, churned)
	took := time.Since(began) - made
	s.wantGoneFromEtcd(t, churned)
	s.compact(t)
	wantNoLabel(t, s.series(t), churned)
	t.Logf("%d clusters created and filled in %s, deleted in %s; goroutines %d, heap %d KiB", clusters, made.Round(time.Second),
		took.Round(time.Second), total(s.goroutines(t)), s.heap(t)/1024)
}
