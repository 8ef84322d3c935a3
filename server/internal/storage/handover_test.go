package storage

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
)

// codec returns the codec of the storage of the server.
func (s *sliceStorage) codec(t *testing.T) *typedCodec {
	t.Helper()
	c, ok := s.backend.typed.Load(apisv1alpha1.Resource("apiexportendpointslices"))
	if !ok {
		t.Fatal("the resource has no codec")
	}
	return c.(*typedCodec)
}

// waiting returns how many objects were not taken.
func (h *handover) waiting() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, slot := range h.slots {
		if slot.object != nil {
			n++
		}
	}
	return n
}

func TestAWrittenObjectIsHandedOverOnce(t *testing.T) {
	c := newSliceStorage(t).codec(t)
	data := []byte(storedSlice("a", "x", ""))
	if err := c.storable(data); err != nil {
		t.Fatal(err)
	}
	var got [3]runtime.Object
	for i := range got {
		if i == 2 { // other bytes
			data = []byte(storedSlice("a", "y", ""))
		}
		var err error
		if got[i], _, err = c.Decode(data, nil, nil); err != nil {
			t.Fatal(err)
		}
		if n := c.written.waiting(); n != 0 {
			t.Errorf("after %d reads, %d objects are left", i+1, n)
		}
	}
	if got[0] == got[1] {
		t.Error("two readers own one object")
	}
	if diff := cmp.Diff(got[1], got[0]); diff != "" {
		t.Error("the object that was handed over differs from the stored one: " + diff)
	}
	if name := got[2].(*apisv1alpha1.APIExportEndpointSlice).Name; name != "y" {
		t.Errorf("other bytes are decoded as %q", name)
	}
}

func TestAReaderWithAnObjectOfItsOwnLeavesTheWrittenOne(t *testing.T) {
	c := newSliceStorage(t).codec(t)
	data := []byte(storedSlice("a", "x", ""))
	if err := c.storable(data); err != nil {
		t.Fatal(err)
	}
	into := &apisv1alpha1.APIExportEndpointSlice{}
	if obj, _, err := c.Decode(data, nil, into); err != nil || obj != runtime.Object(into) || into.Name != "x" {
		t.Errorf("got %+v, %v", obj, err)
	}
	if n := c.written.waiting(); n != 1 {
		t.Errorf("%d objects are left, want 1", n)
	}
}

func TestObjectsThatAreNotTakenAreLimited(t *testing.T) {
	c := newSliceStorage(t).codec(t)
	large := storedSlice("a", "large", fmt.Sprintf(`,"spec":{"export":{"name":"%0*d"}}`, handoverSize, 0))
	if err := c.storable([]byte(large)); err != nil {
		t.Fatal(err)
	}
	if n := c.written.waiting(); n != 0 {
		t.Errorf("an object of %d bytes is kept", len(large))
	}
	for i := range 2 * handoverSlots {
		if err := c.storable([]byte(storedSlice("a", fmt.Sprint(i), ""))); err != nil {
			t.Fatal(err)
		}
	}
	if n := c.written.waiting(); n != handoverSlots {
		t.Errorf("%d objects are kept, want %d", n, handoverSlots)
	}
	last := fmt.Sprint(2*handoverSlots - 1)
	if obj := c.written.take([]byte(storedSlice("a", last, ""))); obj == nil {
		t.Error("the last object is not kept")
	}
}

// What a watch delivers must be what is stored, also if a write has decoded it.
func TestAWatchDeliversWhatRequestsHaveWritten(t *testing.T) {
	s := newSliceStorage(t)
	_, version := s.all(t)
	events, err := s.typed.WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	if err := s.create(t, "a", endpointSlice("x", transitioned("2020-01-01T00:00:00Z"))); err != nil {
		t.Fatal(err)
	}
	select {
	case e := <-events.ResultChan():
		want := &apisv1alpha1.APIExportEndpointSlice{}
		if err := s.typed.Get(in("a"), "x", want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(runtime.Object(want), e.Object); e.Type != watch.Added || diff != "" {
			t.Errorf("%s: %s", e.Type, diff)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("no event")
	}
	if n := s.codec(t).written.waiting(); n != 0 {
		t.Errorf("the watch has decoded the object again, and %d are left", n)
	}
}
