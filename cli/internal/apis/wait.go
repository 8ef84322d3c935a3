package apis

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/cli/internal/location"
)

// interval is the polling interval.
const interval = 200 * time.Millisecond

// WaitBound waits until a binding in l is bound. It returns an error that explains the state after the timeout. It calls progress with
// every state in between.
func (c Client) WaitBound(ctx context.Context, l location.Location, name string, timeout time.Duration,
	progress func(*apisv1alpha2.APIBinding),
) (*apisv1alpha2.APIBinding, error) {
	binding, last := &apisv1alpha2.APIBinding{}, error(nil)
	err := wait.PollUntilContextTimeout(ctx, interval, timeout, true, func(ctx context.Context) (bool, error) {
		seen := &apisv1alpha2.APIBinding{}
		if last = c.read(ctx, l, bindings, name, seen); last != nil {
			if apierrors.IsNotFound(last) || apierrors.IsForbidden(last) {
				return false, last
			}
			return false, nil // may be temporary
		}
		binding = seen
		if binding.Status.Phase == apisv1alpha2.APIBindingPhaseBound {
			return true, nil
		}
		progress(binding)
		return false, nil
	})
	switch {
	case err == nil:
		return binding, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("interrupted; the server continues to bind APIBinding %q in %s", name, l)
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("APIBinding %q in %s was deleted while waiting for it to be bound", name, l)
	case !wait.Interrupted(err):
		return nil, fmt.Errorf("waiting for APIBinding %q in %s to be bound: %w", name, l, err)
	case binding.Name == "":
		return nil, fmt.Errorf("reading APIBinding %q in %s failed for %s: %w", name, l, timeout, last)
	}
	return nil, fmt.Errorf("APIBinding %q in %s is not bound after %s: %s. The server keeps trying; to stop it, run kubectl delete "+
		"apibinding %s",
		name, l, timeout, Describe(binding), name)
}

// WaitServed waits until a workspace serves all resources of a binding. config must refer to that workspace. The server serves them
// shortly after the phase of the binding is Bound.
func WaitServed(ctx context.Context, config *rest.Config, binding *apisv1alpha2.APIBinding, timeout time.Duration) error {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	var missing []string
	err = wait.PollUntilContextTimeout(ctx, interval, timeout, true, func(ctx context.Context) (bool, error) {
		_, lists, _ := client.ServerGroupsAndResourcesWithContext(ctx) // an error may be temporary
		served, err := Resources(lists, Known{})
		if err != nil {
			return false, err
		}
		missing = nil
		for _, bound := range binding.Status.BoundResources {
			if !slices.ContainsFunc(served, func(p Provided) bool { return p.Group == bound.Group && p.Resource == bound.Resource }) {
				missing = append(missing, nameOf(bound.Group, bound.Resource))
			}
		}
		return len(missing) == 0, nil
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("APIBinding %q is bound, but the workspace does not serve %s yet", binding.Name, strings.Join(missing, ", "))
	}
	return err
}

// Describe describes the phase of a binding and what it waits for.
func Describe(binding *apisv1alpha2.APIBinding) string {
	phase := binding.Status.Phase
	if phase == apisv1alpha2.APIBindingPhaseNew {
		phase = apisv1alpha2.APIBindingPhaseBinding
	}
	texts := []string{"phase is " + string(phase)}
	var reported []string // several conditions can have the same message
	for _, condition := range binding.Status.Conditions {
		if condition.Status == metav1.ConditionFalse && condition.Message != "" && !slices.Contains(reported, condition.Message) {
			reported = append(reported, condition.Message)
			texts = append(texts, fmt.Sprintf("%s: %s", condition.Reason, condition.Message))
		}
	}
	return strings.Join(texts, "; ")
}
