package storage

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestAResourceAppearsWithItsFirstObject(t *testing.T) {
	for key, want := range map[string]bool{
		"/example.org/widgets/customresources/c/n/x":                true,
		"/example.org/widgets/" + strings.Repeat("0a", 32) + "/c/x": true,
		"/example.org/widgets2/customresources/c/n/x":               false,
		"/example.org/others/customresources/c/n/x":                 false,
	} {
		t.Run(key, func(t *testing.T) {
			b := NewBackend(client, "/"+t.Name(), 0)
			defer b.Close()
			put := func() {
				if _, err := client.Put(t.Context(), b.root+key, "{}"); err != nil {
					t.Error(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			absent := false
			if err := b.Appears(ctx, widgetResource, func() {
				absent = true
				put()
				if !want {
					cancel()
				}
			}); (err == nil) != want || !absent {
				t.Errorf("without an object at first: absent %v, %v", absent, err)
			}
			if !want {
				return
			}
			if err := b.Appears(t.Context(), widgetResource, func() { t.Error("the object is absent") }); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestADeletionIsNoFirstObject(t *testing.T) {
	b := NewBackend(client, "/"+t.Name(), 0)
	defer b.Close()
	key := b.root + "/example.org/widgets/customresources/c/n/x"
	if _, err := client.Put(t.Context(), key, "{}"); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	absent := false
	if err := b.Appears(ctx, widgetResource, func() { absent = true; cancel() }); err == nil || !absent {
		t.Errorf("absent %v, %v", absent, err)
	}
}

// TestAnAbsentResourceTakesFewBytes measures the memory of a resource without objects, with the part of etcd, which runs here too.
func TestAnAbsentResourceTakesFewBytes(t *testing.T) {
	const count, limit = 1000, 8 << 10
	b := NewBackend(client, "/"+t.Name(), 0)
	defer b.Close()
	ctx, cancel := context.WithCancel(t.Context())
	waiting, ended := make(chan struct{}), make(chan error)
	before, stacksBefore := liveMemory()
	for n := range count {
		go func() {
			resource := schema.GroupResource{Group: "example.org", Resource: fmt.Sprint("widgets-", n)}
			ended <- b.Appears(ctx, resource, func() { waiting <- struct{}{} })
		}()
	}
	for range count {
		<-waiting
	}
	time.Sleep(500 * time.Millisecond) // until etcd has the watches
	after, stacksAfter := liveMemory()
	each, stacks := (after-before)/count, (stacksAfter-stacksBefore)/count
	t.Logf("%d bytes for each of %d resources, and %d bytes of stacks", each, count, stacks)
	if each > limit || stacks > 2*limit {
		t.Errorf("%d bytes for each resource and %d of stacks, at most %d and %d are allowed", each, stacks, limit, 2*limit)
	}
	cancel()
	for range count {
		if err := <-ended; err == nil {
			t.Error("an object has appeared")
		}
	}
}

// liveMemory returns the bytes of live objects, and of the stacks of goroutines.
func liveMemory() (objects, stacks int64) {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc), int64(stats.StackInuse)
}
