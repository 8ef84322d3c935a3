package storage

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// countingDecoder decodes any data to a ConfigMap, and counts.
type countingDecoder struct{ decoded int }

func (c *countingDecoder) Decode(data []byte, into runtime.Object, revision int64) error {
	c.decoded++
	into.(*corev1.ConfigMap).Data = map[string]string{"is": fmt.Sprint(revision, string(data))}
	return nil
}

func (c *countingDecoder) DecodeListItem(_ context.Context, data []byte, revision uint64, _ func() runtime.Object) (runtime.Object, error) {
	c.decoded++
	return &corev1.ConfigMap{Data: map[string]string{"is": fmt.Sprint(revision, string(data))}}, nil
}

func TestRepeatedlyListedObjectsAreCached(t *testing.T) {
	cache := newDecodeCache(16 * 100)
	inner := &countingDecoder{}
	one, other := &cachingDecoder{inner, cache}, &cachingDecoder{inner, cache}
	inCluster := logicalcluster.WithName(t.Context(), "a")
	decode := func(ctx context.Context, d *cachingDecoder, data string, revision uint64) {
		t.Helper()
		object, err := d.DecodeListItem(ctx, []byte(data), revision, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := object.(*corev1.ConfigMap).Data["is"], fmt.Sprint(revision, data); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for _, step := range []struct {
		ctx      context.Context
		decoder  *cachingDecoder
		data     string
		revision uint64
		decoded  int
	}{
		{inCluster, one, "x", 1, 1},
		{inCluster, one, "x", 1, 2}, // should be cached
		{inCluster, one, "x", 1, 2},
		{inCluster, one, "x", 2, 3},                                // written again
		{inCluster, one, "y", 1, 4},                                // another object of one write
		{inCluster, other, "x", 1, 5},                              // another codec
		{logicalcluster.WithWildcard(t.Context()), one, "x", 1, 6}, // an informer
		{t.Context(), one, "x", 1, 7},
		{inCluster, one, "x", 1, 7},
	} {
		decode(step.ctx, step.decoder, step.data, step.revision)
		if inner.decoded != step.decoded {
			t.Errorf("%q at %d: %d were decoded, want %d", step.data, step.revision, inner.decoded, step.decoded)
		}
	}
	cache.forget(other)
	decode(inCluster, one, "x", 1)
	decode(inCluster, other, "x", 1)
	if inner.decoded != 8 {
		t.Errorf("after one storage was closed %d were decoded, want 8", inner.decoded)
	}
}

func TestTheCallerOwnsASingleObject(t *testing.T) {
	inner := &countingDecoder{}
	d := &cachingDecoder{inner, newDecodeCache(16 * 100)}
	for read := range 5 {
		got := &corev1.ConfigMap{}
		if err := d.Decode([]byte("x"), got, 1); err != nil || got.Data["is"] != "1x" {
			t.Fatalf("read %d: %v, %v", read, got.Data, err)
		}
		got.Data["is"] = "changed by who read it"
	}
	if inner.decoded != 2 {
		t.Errorf("%d were decoded, want 2", inner.decoded)
	}
}

func TestTheCacheOfDecodedObjectsIsLimited(t *testing.T) {
	const limit = 1600
	cache := newDecodeCache(limit)
	d := &cachingDecoder{&countingDecoder{}, cache}
	ctx := logicalcluster.WithName(t.Context(), "a")
	for i := range uint64(1000) {
		for _, size := range []int{10, 100, 1000} {
			for range 2 {
				if _, err := d.DecodeListItem(ctx, make([]byte, size), i*10+uint64(size), nil); err != nil {
					t.Fatal(err)
				}
			}
			if cache.size > limit || len(cache.entries) != cache.order.Len() {
				t.Fatalf("it holds %d bytes of %d, %d and %d entries", cache.size, limit, len(cache.entries), cache.order.Len())
			}
		}
	}
	if cache.size == 0 {
		t.Error("nothing was kept")
	}
	cache.forget(d)
	if cache.size != 0 || len(cache.entries) != 0 {
		t.Errorf("%d bytes are left", cache.size)
	}
}
