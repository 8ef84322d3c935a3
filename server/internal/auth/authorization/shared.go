package authorization

import (
	"context"
	"sync"
)

// sharedQuestions lets concurrent requests with the same question share answers. A tenant who creates many workspaces needs the same
// permission each time.
//
// Invariants:
//   - A request gets no answer to a question that was sent before the request began. It waits for the next one, which it shares with all
//     requests that wait by then.
//   - A question does not end with the request that sends it.
//   - Without waiting requests, nothing is kept.
type sharedQuestions struct {
	mu sync.Mutex
	// sent are the questions that are being answered.
	sent map[string]*question
}

// question is one question to another shard.
type question struct {
	send   func() (ReviewAnswer, error)
	done   chan struct{} // closed when there is an answer
	answer ReviewAnswer
	err    error
	// next is what is asked after this question, nil if no request waits for it.
	next *question
}

// ask returns the answer to the question of a key. send sends it; it is called at most once at a time for a key.
func (s *sharedQuestions) ask(ctx context.Context, key string, send func(context.Context) (ReviewAnswer, error)) (ReviewAnswer, error) {
	q := s.join(key, func() (ReviewAnswer, error) { return send(context.WithoutCancel(ctx)) })
	select {
	case <-q.done:
		return q.answer, q.err
	case <-ctx.Done():
		return ReviewAnswer{}, ctx.Err()
	}
}

// join returns a question that is not sent yet. If no question of the key is being answered, it is sent at once.
func (s *sharedQuestions) join(key string, send func() (ReviewAnswer, error)) *question {
	s.mu.Lock()
	defer s.mu.Unlock()
	current, ok := s.sent[key]
	if ok && current.next != nil {
		return current.next
	}
	q := &question{send: send, done: make(chan struct{})}
	if ok {
		current.next = q
		return q
	}
	if s.sent == nil {
		s.sent = map[string]*question{}
	}
	s.sent[key] = q
	go s.run(key, q)
	return q
}

// run sends a question, and those that requests have joined since, until no request waits.
func (s *sharedQuestions) run(key string, q *question) {
	for q != nil {
		q.answer, q.err = q.send()
		close(q.done)
		s.mu.Lock()
		if q = q.next; q != nil {
			s.sent[key] = q
		} else {
			delete(s.sent, key)
		}
		s.mu.Unlock()
	}
}
