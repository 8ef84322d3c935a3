package storage

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	etcdkubernetes "go.etcd.io/etcd/client/v3/kubernetes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kcplane/kcp/server/internal/process/fairqueue"
)

// inQueue returns the context of a request in a queue with the given memory.
func inQueue(t *testing.T, q *fairqueue.Queue) (context.Context, *fairqueue.Ticket) {
	t.Helper()
	ticket := &fairqueue.Ticket{}
	if err := q.Enter(t.Context(), fairqueue.Holder{Cluster: "ours"}, fairqueue.Read, ticket); err != nil {
		t.Fatal(err)
	}
	return context.WithValue(t.Context(), fairqueue.Key, ticket), ticket
}

func queueOf(bytes int64) *fairqueue.Queue {
	return fairqueue.New(fairqueue.Config{Bytes: bytes, Patience: time.Second, Place: func(fairqueue.Holder) fairqueue.Place { return fairqueue.Place{} }})
}

func TestAListIsReadInTwoStepsUntilItsSizeIsKnown(t *testing.T) {
	for _, c := range []struct {
		objects      int
		limit        int64
		first, again int
	}{{5, 0, 1, 1}, {100, 0, 2, 1}, {100, 50, 2, 1}, {100, 5, 1, 1}, {0, 0, 1, 1}} {
		s, e := newSizes(), &numbered{n: c.objects, size: 10}
		q := queueOf(1 << 30)
		for round, reads := range []int{c.first, c.again} {
			ctx, ticket := inQueue(t, q)
			e.reads = 0
			got, err := s.list(ctx, e, "/p/", etcdkubernetes.ListOptions{Limit: c.limit})
			want := c.objects
			if c.limit > 0 {
				want = min(want, int(c.limit))
			}
			if err != nil || len(got.Kvs) != want || got.Count != int64(c.objects) || got.Revision != 7 || e.reads != reads {
				t.Errorf("%+v, round %d: %d of %d at %d in %d reads: %v", c, round, len(got.Kvs), got.Count, got.Revision, e.reads, err)
			}
			for i, kv := range got.Kvs {
				if string(kv.Key) != fmt.Sprintf("/p/%06d", i) {
					t.Errorf("%+v: number %d is %s", c, i, kv.Key)
				}
			}
			ticket.Leave()
		}
		// More objects than expected are also read, and those of a revision.
		e.n *= 3
		ctx, _ := inQueue(t, q)
		if got, err := s.list(ctx, e, "/p/", etcdkubernetes.ListOptions{Revision: 7}); err != nil || len(got.Kvs) != e.n {
			t.Errorf("%+v: %d of %d objects: %v", c, len(got.Kvs), e.n, err)
		}
		if got, err := s.list(t.Context(), e, "/p/", etcdkubernetes.ListOptions{}); err != nil || len(got.Kvs) != e.n {
			t.Errorf("%+v, in no queue: %d of %d objects: %v", c, len(got.Kvs), e.n, err)
		}
	}
}

func TestAListReservesMemoryBeforeItIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mib = 1 << 20
		s, e := newSizes(), &numbered{n: 100, size: mib / 16}
		q := queueOf(300 * mib)
		ctx, reader := inQueue(t, q)
		if _, err := s.list(ctx, e, "/p/", etcdkubernetes.ListOptions{}); err != nil || reader.Taken() < 10*mib {
			t.Fatalf("it has taken %d: %v", reader.Taken(), err)
		}
		e.most = 0
		waiting, other := inQueue(t, q)
		begin := time.Now()
		if _, err := s.list(waiting, e, "/p/", etcdkubernetes.ListOptions{}); !apierrors.IsTooManyRequests(err) || time.Since(begin) < time.Second || e.most > 0 {
			t.Errorf("while another has the memory: %d objects are read: %v", e.most, err)
		}
		reader.Leave()
		if _, err := s.list(waiting, e, "/p/", etcdkubernetes.ListOptions{}); err != nil {
			t.Error(err)
		}
		other.Leave()
		// A collection that has grown since then is read in two steps.
		s.written("/p/ns/name", 3*mib)
		s.written("/p/name", mib/32)
		if _, ok := s.get("/p/"); ok {
			t.Error("a larger object is not noticed")
		}
	})
}

func TestTheWeightOfStoredObjectsIsTheirMemory(t *testing.T) {
	for what, c := range map[string]struct {
		value string
		least int64
	}{
		"JSON":       {`{"a":"` + strings.Repeat("x", 1000) + `"}`, 2000},
		"deep JSON":  {strings.Repeat(`{"a":`, 1000) + "1" + strings.Repeat("}", 1000), 350_000},
		"a list":     {`{"a":[` + strings.Repeat("1,", 1000) + `1]}`, 60_000},
		"protobuf":   {"k8s\x00" + strings.Repeat("x", 1000), 2000},
		"encrypted":  {"k8s:enc:" + strings.Repeat("x", 1000), 6000},
		"compressed": {string(compressedMark) + strings.Repeat("x", 1000), 12000},
	} {
		if got := weightOf([]byte(c.value)); got < c.least || got > c.least*3/2 {
			t.Errorf("%s: got %d, want about %d", what, got, c.least)
		}
	}
}
