package feed

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/component-base/metrics/testutil"
)

func expectReadMetrics(t *testing.T, k *keeping, lag, remote, kept int) {
	t.Helper()
	want := fmt.Sprintf(`
# HELP kcp_feed_kept_objects [ALPHA] Number of stored objects of other shards, on which this shard depends.
# TYPE kcp_feed_kept_objects gauge
kcp_feed_kept_objects{shard="west"} %d
# HELP kcp_feed_read_lag_seconds [ALPHA] Time since the last list, event or bookmark of the cache server, of the most silent kind.
# TYPE kcp_feed_read_lag_seconds gauge
kcp_feed_read_lag_seconds{shard="west"} %d
# HELP kcp_feed_remote_objects [ALPHA] Number of objects of other shards in memory.
# TYPE kcp_feed_remote_objects gauge
kcp_feed_remote_objects{shard="west"} %d
`, kept, lag, remote)
	if err := testutil.CustomCollectAndCompare(NewReadMetrics("west", k.Reader, k.Kept), strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestTheMetricsOfReadingShowTheKindThatIsSilentTheLongest(t *testing.T) {
	k := newKeeping(t, unused, bindingToOrg())
	k.clock.Step(10 * time.Second)
	expectReadMetrics(t, k, 10, 0, 0) // since the start
	for _, s := range k.sources[1:] {
		s.UpdateResourceVersion("1") // an event or a bookmark
	}
	k.clock.Step(5 * time.Second)
	expectReadMetrics(t, k, 15, 0, 0)
	if err := k.sources[0].Replace(nil, "1"); err != nil {
		t.Fatal(err)
	}
	expectReadMetrics(t, k, 5, 0, 0)
}

func TestTheMetricsOfReadingCountObjects(t *testing.T) {
	k := newKeeping(t, unused, bindingToOrg())
	k.offerOrg()
	if err := k.settle(t); err != nil {
		t.Fatal(err)
	}
	offered := 0
	for _, i := range k.elsewhere.Informers() {
		offered += len(k.elsewhere.AllOffered(i))
	}
	stored := len(k.names(t))
	if offered <= 1 || stored <= 1 {
		t.Fatalf("%d objects are offered, and %d are stored", offered, stored)
	}
	expectReadMetrics(t, k, 0, offered, stored)
	k.Withdraw("east", webhooks())
	if err := k.settle(t); err != nil {
		t.Fatal(err)
	}
	expectReadMetrics(t, k, 0, offered-1, stored-1)
}
