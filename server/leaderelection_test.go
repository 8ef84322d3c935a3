package server

import (
	"context"
	"testing"

	"k8s.io/client-go/kubernetes/fake"
)

// A process that stops before its informers are filled must neither wait for them nor begin a term.
func TestAProcessThatLeavesTheElectionBeforeItIsReadyDoesNotRun(t *testing.T) {
	client := fake.NewClientset()
	e := &election{client: client, namespace: "n", ending: make(chan struct{}), ended: make(chan struct{})}
	go e.run(t.Context(), func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	})
	e.leave()
	if actions := client.Actions(); len(actions) > 0 {
		t.Errorf("it has sent %v", actions)
	}
}
