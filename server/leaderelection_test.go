package server

import (
	"context"
	"testing"

	"k8s.io/client-go/kubernetes/fake"
)

// A process that stops before its informers are filled must neither wait for its term nor begin one.
func TestAProcessThatHasLeftTheElectionDoesNotRun(t *testing.T) {
	client := fake.NewClientset()
	e := &election{client: client, namespace: "n", ending: make(chan struct{}), ended: make(chan struct{})}
	e.leave()
	e.run(context.Background())
	<-e.ended
	if actions := client.Actions(); len(actions) > 0 {
		t.Errorf("it has sent %v", actions)
	}
}
