package coalesce

import (
	"errors"
	"sync/atomic"
	"testing"
)

// A caller that waits while work is in progress must not get its negative result: what it is about may have changed before the call.
func TestCallersShareOnlyResultsOfWorkThatBeganWhileTheyWaited(t *testing.T) {
	for name, positive := range map[string]func(bool, error) bool{
		"no result is positive":   nil,
		"the result is negative":  func(value bool, _ error) bool { return !value },
		"an error is not a value": func(_ bool, err error) bool { return err != nil },
	} {
		t.Run(name, func(t *testing.T) {
			group := New[string](positive)
			began, proceed := make(chan int), make(chan struct{})
			number := 0
			work := func() (bool, error) {
				number++ // at most one piece of work for a key is in progress
				n := number
				began <- n
				<-proceed
				return n == 1, nil
			}
			first := group.Join("key", work)
			<-began
			var later []*Result[bool]
			for range 10 {
				later = append(later, group.Join("key", work))
			}
			other := group.Join("another key", func() (bool, error) { return false, errors.New("no") })
			if <-other.Done; other.Err == nil {
				t.Error("another key got the result of the first")
			}
			proceed <- struct{}{}
			if <-first.Done; !first.Value || first.Err != nil {
				t.Errorf("the first caller got %v, %v", first.Value, first.Err)
			}
			if n := <-began; n != 2 {
				t.Errorf("work %d began", n)
			}
			select {
			case <-later[0].Done:
				t.Fatal("a later caller got the first result")
			default:
			}
			proceed <- struct{}{}
			for _, r := range later {
				if <-r.Done; r.Value || r != later[0] {
					t.Error("a later caller got an earlier result, or one of its own")
				}
			}
			group.mu.Lock()
			defer group.mu.Unlock()
			if len(group.work) != 0 || number != 2 {
				t.Errorf("after %d pieces of work, %d keys are kept", number, len(group.work))
			}
		})
	}
}

func TestALaterCallerGetsAPositiveResultOfWorkInProgress(t *testing.T) {
	group := New[string](func(value bool, _ error) bool { return value })
	began, proceed := make(chan struct{}), make(chan struct{})
	var calls atomic.Int32
	work := func() (bool, error) {
		calls.Add(1)
		close(began)
		<-proceed
		return true, nil
	}
	first := group.Join("key", work)
	<-began
	later := group.Join("key", work)
	close(proceed)
	<-first.Done
	if <-later.Done; !later.Value || calls.Load() != 1 {
		t.Errorf("it got %v after %d calls", later.Value, calls.Load())
	}
}
