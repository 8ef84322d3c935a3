package runner

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// payerOf the cluster a-1 is a.
func payerOf(cluster logicalcluster.Name) string { return strings.Split(string(cluster), "-")[0] }

func TestItemsOfAMovingClusterWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		arrives := 3 * time.Second
		ctx, end := context.WithCancel(WithMoving(t.Context(), func(cluster logicalcluster.Name) bool {
			return cluster == "moving" && time.Since(began) < arrives
		}))
		var other, moved time.Duration
		c := New("test", 1, func(_ context.Context, key informers.Key) error {
			if key.Cluster == "moving" {
				moved = time.Since(began)
			} else {
				other = time.Since(began)
			}
			return nil
		})
		c.Enqueue(informers.Key{Cluster: "moving", Name: "a"})
		c.Enqueue(informers.Key{Cluster: "other", Name: "a"})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			c.Run(ctx)
		}()
		time.Sleep(time.Minute)
		end()
		<-ended
		if other > 0 || moved < arrives || moved > 2*arrives {
			t.Errorf("the item of another cluster was reconciled after %s, that of a moving one after %s", other, moved)
		}
	})
}

func TestSlowItemsOfOnePayerDoNotDelayOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(WithPayer(t.Context(), payerOf))
		var waiting, most, served atomic.Int32
		release := make(chan struct{})
		c := New("test", 2, func(_ context.Context, key informers.Key) error {
			if payerOf(key.Cluster) != "hostile" {
				served.Add(1)
				return nil
			}
			most.Store(max(most.Load(), waiting.Add(1)))
			<-release
			waiting.Add(-1)
			return nil
		})
		for i := range 100 {
			c.Enqueue(informers.Key{Cluster: logicalcluster.Name(fmt.Sprintf("hostile-%d", i)), Name: "a"})
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			c.Run(ctx)
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := waiting.Load(); n < maxSlowOfPayer || n > maxSlowOfPayer+2 {
			t.Errorf("%d items of one payer wait at a time", n)
		}
		for i := range 20 {
			c.Enqueue(informers.Key{Cluster: "other", Name: fmt.Sprint(i)})
		}
		time.Sleep(slowAfter)
		synctest.Wait()
		if n := served.Load(); n != 20 {
			t.Errorf("%d of 20 items of another payer are done while those of one wait", n)
		}
		close(release)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := c.queue.Len(); n != 0 || waiting.Load() != 0 {
			t.Errorf("%d items are left, %d wait", n, waiting.Load())
		}
		if most.Load() > maxSlowOfPayer+2 {
			t.Errorf("%d items of one payer waited at a time", most.Load())
		}
		end()
		<-ended
	})
}

// Workers of slow items are replaced while the items last. Afterwards there are as many workers as before.
func TestWorkersThatReplacedSlowOnesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		var now, most atomic.Int32
		c := New("test", 2, func(_ context.Context, key informers.Key) error {
			most.Store(max(most.Load(), now.Add(1)))
			defer now.Add(-1)
			if key.Name == "slow" {
				time.Sleep(time.Second)
			} else {
				time.Sleep(time.Millisecond)
			}
			return nil
		})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			c.Run(ctx)
		}()
		for i := range 20 {
			c.Enqueue(informers.Key{Cluster: logicalcluster.Name(fmt.Sprint(i)), Name: "slow"})
		}
		time.Sleep(time.Minute)
		most.Store(0)
		for i := range 100 {
			c.Enqueue(informers.Key{Cluster: logicalcluster.Name(fmt.Sprint(i)), Name: "quick"})
		}
		time.Sleep(time.Minute)
		if most.Load() != 2 {
			t.Errorf("%d items are done at a time, by two workers", most.Load())
		}
		end()
		<-ended
	})
}

func TestAQueueWithOneWorkerHandlesOneItemAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		var now, most atomic.Int32
		c := New("test", 1, func(context.Context, informers.Key) error {
			most.Store(max(most.Load(), now.Add(1)))
			defer now.Add(-1)
			time.Sleep(time.Second)
			return nil
		})
		for i := range 5 {
			c.Enqueue(informers.Key{Cluster: logicalcluster.Name(fmt.Sprint(i))})
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			c.Run(ctx)
		}()
		time.Sleep(time.Minute)
		if most.Load() != 1 {
			t.Errorf("%d items are done at a time, by one worker", most.Load())
		}
		end()
		<-ended
	})
}
