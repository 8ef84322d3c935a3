package controller

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kcplane/kcp/fleet/internal/identity"
)

// agentOf returns the agent of a cluster whose first key was the given one.
func agentOf(cluster, key string) user.Info {
	return &user.DefaultInfo{Name: "fleet:cluster:" + cluster, Groups: []string{identity.Group, "fleet:key:" + key}}
}

func TestAReplacedAgentIsRefusedAndItsOpenRequestsEnd(t *testing.T) {
	key := "former"
	v := view{&views{sessions: &sessions{}, provider: "p", approvedKey: func(context.Context, string) (string, error) { return key, nil }}, "east"}
	former := request.WithUser(t.Context(), agentOf("east", "former"))
	allowed := func(ctx context.Context) bool {
		u, _ := request.UserFrom(ctx)
		decision, _, err := v.Authorize(ctx, authorizer.AttributesRecord{User: u, Resource: "workloads", ResourceRequest: true})
		return err == nil && decision == authorizer.DecisionAllow
	}
	ctx, end, err := v.session(former)
	if err != nil || !allowed(former) {
		t.Fatalf("the agent is refused: %v", err)
	}
	defer end()
	v.sessions.keep("west", "")
	v.sessions.keep("east", "former")
	if ctx.Err() != nil {
		t.Error("the request ended although nothing was replaced")
	}
	for _, key = range []string{"", "new"} {
		v.sessions.keep("east", key)
		if ctx.Err() == nil {
			t.Error("the open request of the former agent goes on")
		}
		if _, _, err := v.session(former); !apierrors.IsForbidden(err) || allowed(former) {
			t.Errorf("with the key %q, the former agent gets %v", key, err)
		}
	}
	if _, end, err := v.session(request.WithUser(t.Context(), agentOf("east", "new"))); err != nil {
		t.Errorf("the new agent is refused: %v", err)
	} else {
		end()
	}
}

func TestARequestEndsIfTheKeyIsReplacedWhileItBegins(t *testing.T) {
	keys := []string{"former", "new"}
	v := view{&views{sessions: &sessions{}, provider: "p", approvedKey: func(context.Context, string) (string, error) {
		next := keys[0]
		keys = keys[1:]
		return next, nil
	}}, "east"}
	if _, _, err := v.session(request.WithUser(t.Context(), agentOf("east", "former"))); !apierrors.IsForbidden(err) {
		t.Errorf("got %v", err)
	}
	if len(v.sessions.open) > 0 {
		t.Error("the request is still open")
	}
	v.approvedKey = func(context.Context, string) (string, error) { return "", errors.New("not known") }
	if _, _, err := v.session(request.WithUser(t.Context(), agentOf("east", "former"))); err == nil {
		t.Error("without the key of the cluster, the agent is accepted")
	}
}
