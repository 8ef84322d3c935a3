package fairqueue

import (
	"testing"
	"testing/synctest"
)

func TestReleasedMemoryIsForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Config{Seats: 2, Bytes: 9 << 20})
		a, b := entered(t, q, "a/u/c", Read), entered(t, q, "a/u/c", Read)
		if err := a.Take(3 << 20); err != nil {
			t.Fatal(err)
		}
		taken := make(chan error)
		go func() { taken <- b.Take(3 << 20) }()
		synctest.Wait()
		if q.hungry.first != b {
			t.Fatal("the request does not wait for memory")
		}
		a.Release(1) // Take has not counted it
		if a.Taken() != 3<<20 {
			t.Errorf("%d bytes are left", a.Taken())
		}
		a.Release(3 << 20)
		if err := <-taken; err != nil || a.Taken() != 0 || b.Taken() != 3<<20 {
			t.Errorf("they have %d and %d bytes, %v", a.Taken(), b.Taken(), err)
		}
		b.Release(30 << 20)
		(*Ticket)(nil).Release(3 << 20)
		a.Leave()
		b.Leave()
		b.Release(3 << 20)
		if q.root.bytes != 0 {
			t.Errorf("%d bytes are in use", q.root.bytes)
		}
	})
}
