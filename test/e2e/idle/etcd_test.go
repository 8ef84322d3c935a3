package idle

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// scan calls f for every key in etcd.
func (s *target) scan(t *testing.T, f func(key string, value []byte)) {
	t.Helper()
	ctx := kcptest.Context(t)
	for from := "\x00"; ; {
		page, err := s.etcd.Get(ctx, from, clientv3.WithFromKey(), clientv3.WithLimit(2000))
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range page.Kvs {
			f(string(kv.Key), kv.Value)
		}
		if !page.More {
			return
		}
		from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
}

// compact removes the history of etcd, which etcd would otherwise keep for some minutes.
func (s *target) compact(t *testing.T) {
	t.Helper()
	ctx := kcptest.Context(t)
	now, err := s.etcd.Get(ctx, "\x00")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.etcd.Compact(ctx, now.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
}
