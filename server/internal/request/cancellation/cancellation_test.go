package cancellation

import (
	"context"
	"testing"
)

func TestRequestsEndWhenADependencyChanges(t *testing.T) {
	var requests Requests[string]
	one, doneOne := requests.Begin(context.Background(), "a")
	both, doneBoth := requests.Begin(context.Background(), "a", "b")
	other, doneOther := requests.Begin(context.Background(), "c")
	requests.End("b")
	if one.Err() != nil || both.Err() == nil || other.Err() != nil {
		t.Errorf("after the end of b: %v, %v, %v; want the second to end", one.Err(), both.Err(), other.Err())
	}
	requests.End("a")
	if one.Err() == nil || other.Err() != nil {
		t.Errorf("after the end of a: %v, %v; want the first to end", one.Err(), other.Err())
	}
	for _, done := range []func(){doneOne, doneBoth, doneOther} {
		done()
	}
	if other.Err() == nil || requests.Len() != 0 {
		t.Errorf("requests that have ended: %v, and %d things are remembered", other.Err(), requests.Len())
	}
}
