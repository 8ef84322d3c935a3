package authorization

import (
	"context"
	"errors"
	"sync"
	"testing"
)

// A request that waits while a question is answered must not get that answer: the grant may have ended before the request began.
func TestRequestsShareOnlyAnswersToQuestionsThatWereSentWhileTheyWaited(t *testing.T) {
	var shared sharedQuestions
	sent, proceed := make(chan int), make(chan struct{})
	number := 0
	send := func(context.Context) (ReviewAnswer, error) {
		number++ // at most one question is sent at a time
		n := number
		sent <- n
		<-proceed
		return ReviewAnswer{Allowed: n == 1}, nil
	}
	var first sync.WaitGroup
	first.Go(func() {
		if answer, err := shared.ask(t.Context(), "key", send); !answer.Allowed || err != nil {
			t.Errorf("the first request got %v, %v", answer, err)
		}
	})
	<-sent
	later := []*question{}
	for range 10 {
		later = append(later, shared.join("key", func() (ReviewAnswer, error) { return send(t.Context()) }))
	}
	other := shared.join("another key", func() (ReviewAnswer, error) { return ReviewAnswer{}, errors.New("no") })
	if <-other.done; other.err == nil {
		t.Error("another question got the answer of the first")
	}
	proceed <- struct{}{}
	first.Wait()
	select {
	case <-later[0].done:
		t.Fatal("a later request got the answer to the first question")
	default:
	}
	if n := <-sent; n != 2 {
		t.Errorf("question %d is sent", n)
	}
	proceed <- struct{}{}
	for _, q := range later {
		if <-q.done; q.answer.Allowed || q != later[0] {
			t.Error("a later request got the answer to an earlier question, or one of its own")
		}
	}
	answered := shared.join("key", func() (ReviewAnswer, error) { return ReviewAnswer{}, nil })
	if <-answered.done; number != 2 || answered == later[0] {
		t.Errorf("%d questions were sent", number)
	}
}

func TestAQuestionDoesNotEndWithTheRequestThatSendsIt(t *testing.T) {
	var shared sharedQuestions
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ended := make(chan error, 1)
	if _, err := shared.ask(ctx, "key", func(ctx context.Context) (ReviewAnswer, error) {
		ended <- ctx.Err()
		return ReviewAnswer{Allowed: true}, nil
	}); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("the request got %v", err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the question got %v", err)
	}
}
