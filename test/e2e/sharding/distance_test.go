package sharding

import (
	"testing"
	"time"

	"github.com/kcplane/kcp/test/e2e/kcptest"
	"github.com/kcplane/kcp/test/sharded"
)

const (
	// far is the time by which a round trip between distant processes takes longer.
	far = 150 * time.Millisecond
	// steps is the number of steps of which the median is compared. Each is a write and a read.
	steps = 20
)

// farAway compares the durations of settled requests with and without a distance between the processes of an installation. A request that
// called another process would take longer by the whole distance, whatever else the machine does.
func farAway(t *testing.T, i *sharded.Installation) {
	other := i.Shards[1]
	_, cluster := on(t, i, other)
	direct := begin(t, cluster, kcptest.Alice)
	name, _ := on(t, i, other)
	proxied := begin(t, i.Proxies[0].Server().Named("root:"+name), kcptest.Alice)
	move := func(distance time.Duration) {
		for _, p := range i.Processes() {
			p.Relay.Delay(distance / 2)
		}
	}
	move(0)
	nearDirect, nearProxied := direct.median(steps), proxied.median(steps)
	move(far)
	farDirect, farProxied := direct.median(steps), proxied.median(steps)
	move(distance)
	t.Logf("median of a write and a read: at the shard %s, with %s between the processes %s; through a front proxy %s and %s",
		nearDirect, far, farDirect, nearProxied, farProxied)
	if farDirect > nearDirect+far/2 {
		t.Errorf("requests at the shard depend on other processes")
	}
	if hops := 2 * far; farProxied > nearProxied+hops+far/2 {
		t.Errorf("a request through a front proxy takes more than one round trip to the shard")
	}
	direct.undisturbed("other processes far away")
	proxied.undisturbed("shard far away from the front proxy")
}
