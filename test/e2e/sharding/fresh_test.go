package sharding

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// freshLag is the age of an index that follows a shard: bookmarks arrive every second. A shard takes longer to start.
const freshLag = 2 * time.Second

// fresh waits until each front proxy follows all shards, also those that a test before has stopped and started.
func fresh(t *testing.T) {
	t.Helper()
	for _, proxy := range installation.Proxies {
		kcptest.Eventually(t, proxy.Name+" follows all shards", func(context.Context) error {
			code, metrics := proxy.Server().Get(t, kcptest.Masters, "/metrics")
			if code != http.StatusOK {
				return fmt.Errorf("/metrics returns %d %.200s", code, metrics)
			}
			for _, s := range installation.Shards {
				lag, err := lagOf(metrics, s.Name)
				if err == nil && lag > freshLag {
					err = fmt.Errorf("the index has the state of shard %s of %s ago", s.Name, lag)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// lagOf returns the age of what a front proxy has of a shard.
func lagOf(metrics, shard string) (time.Duration, error) {
	name := `kcp_front_proxy_index_lag_seconds{shard="` + shard + `"} `
	_, after, found := strings.Cut(metrics, name)
	if !found {
		return 0, fmt.Errorf("no metric %s", name)
	}
	value, _, _ := strings.Cut(after, "\n")
	seconds, err := strconv.ParseFloat(value, 64)
	return time.Duration(seconds * float64(time.Second)), err
}
