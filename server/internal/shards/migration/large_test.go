package migration

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// measured is an origin that measures its responses.
type measured struct {
	Remote
	// largest is the largest response in bytes, pages the number of responses before the fence, and behind the entries after it.
	largest, pages, behind int
	fenced                 bool
	// all is the number of digests of all objects behind the fence, changes that of digests of changes.
	all, changes int
}

func (m *measured) add(a Answer, err error) (Answer, error) {
	size := 0
	for _, entry := range a.Entries {
		size += len(entry.Key) + len(entry.Value)
	}
	m.largest = max(m.largest, size)
	if m.pages++; m.fenced {
		m.behind += len(a.Entries)
	}
	return a, err
}

func (m *measured) Page(ctx context.Context, in Read) (Answer, error) {
	return m.add(m.Remote.Page(ctx, in))
}

func (m *measured) Changes(ctx context.Context, in Read) (Answer, error) {
	return m.add(m.Remote.Changes(ctx, in))
}

func (m *measured) Digest(ctx context.Context, in Read) (Answer, error) {
	switch {
	case m.fenced && in.Since == 0:
		m.all++
	case m.fenced:
		m.changes++
	}
	return m.Remote.Digest(ctx, in)
}

func (m *measured) Do(ctx context.Context, migration Migration, step Step) (State, error) {
	m.fenced = m.fenced || step == StepLeave
	return m.Remote.Do(ctx, migration, step)
}

// put stores objects of the moving cluster at shard west, in few transactions.
func put(t *testing.T, c *contest, collection string, number, size int) {
	t.Helper()
	const perTransaction = 100
	client := servers["west"].Client()
	defer client.Close()
	value := strings.Repeat("x", size)
	var ops []clientv3.Op
	for n := range number {
		ops = append(ops, clientv3.OpPut(fmt.Sprintf("/%s%s/%s/default/object-%d", t.Name(), collection, moving, n), value))
		if len(ops) == perTransaction || size*(len(ops)+1) > 1<<20 || n == number-1 {
			if _, err := client.Txn(t.Context()).Then(ops...).Commit(); err != nil {
				t.Fatal(err)
			}
			ops = nil
		}
	}
}

// A cluster with many objects, and with objects at the limit of a request, moves in bounded responses. What is copied and compared behind
// the fence does not depend on its size. It has 100,000 objects with KCP_LARGE, and fewer otherwise, which makes no difference to the
// responses.
func TestAVeryLargeClusterMoves(t *testing.T) {
	const big, bigSize = 6, 1_400_000
	many := 10_000
	if os.Getenv("KCP_LARGE") != "" {
		many = 100_000
	}
	c := newContest(t, "east")
	put(t, c, "/core/configmaps", many, 100)
	put(t, c, "/core/secrets", big, bigSize)
	r := c.rivals[0]
	origin := &measured{Remote: r.mover.Origin}
	r.mover.Origin = origin
	r.until(t, "")
	if r.end != StepDone {
		t.Fatalf("the migration ends with %s", r.end)
	}
	if got, want := c.shards["east"].keys(t, moving), many+big+objects+1; got != want {
		t.Errorf("the destination has %d keys, want %d", got, want)
	}
	if limit := 2<<20 + bigSize + 1000; origin.largest > limit || origin.pages < many*100/limit {
		t.Errorf("%d responses, the largest has %d bytes, want at most %d", origin.pages, origin.largest, limit)
	}
	if origin.behind != 0 {
		t.Errorf("%d entries were copied behind the fence, although nothing has changed", origin.behind)
	}
	if origin.all != 0 || origin.changes != 1 {
		t.Errorf("behind the fence, all objects were compared %d times, and changes %d times", origin.all, origin.changes)
	}
}
