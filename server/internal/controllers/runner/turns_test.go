package runner

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kcplane/kcp/server/internal/informers"
)

func TestAClusterWithManyKeysDoesNotDelayOthers(t *testing.T) {
	c := New("test", 1, nil)
	defer c.queue.ShutDown()
	for i := range 1000 {
		c.Enqueue(informers.Key{Cluster: "busy", Name: fmt.Sprint(i)})
	}
	c.Enqueue(informers.Key{Cluster: "quiet", Name: "a"})
	c.Enqueue(informers.Key{Cluster: "quiet", Name: "b"})
	c.Enqueue(informers.Key{Cluster: "third", Name: "c"})

	var got []string
	for range 7 {
		key, _ := c.queue.Get()
		c.queue.Done(key)
		got = append(got, key.String())
	}
	want := []string{"busy|0", "quiet|a", "third|c", "busy|1", "quiet|b", "busy|2", "busy|3"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if n := c.queue.Len(); n != 996 {
		t.Errorf("%d keys are left, want 996", n)
	}
}
