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
	"github.com/kcplane/kcp/cli/location"
)

// interval is how often a binding that is not bound yet is looked at.
const interval = 200 * time.Millisecond

// WaitBound returns the binding of that name in l once it is bound, or why it is not after the time given. Every state on the
// way is reported to progress.
func (c Client) WaitBound(ctx context.Context, l location.Location, name string, timeout time.Duration, progress func(*apisv1alpha2.APIBinding),
) (*apisv1alpha2.APIBinding, error) {
	binding, last := &apisv1alpha2.APIBinding{}, error(nil)
	err := wait.PollUntilContextTimeout(ctx, interval, timeout, true, func(ctx context.Context) (bool, error) {
		seen := &apisv1alpha2.APIBinding{}
		if last = c.read(ctx, l, bindings, name, seen); last != nil {
			if apierrors.IsNotFound(last) || apierrors.IsForbidden(last) {
				return false, last
			}
			return false, nil // it may be mended until the time is over
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
		return nil, fmt.Errorf("interrupted; APIBinding %q of %s goes on being bound", name, l)
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("APIBinding %q of %s was deleted while waiting for it to be bound", name, l)
	case !wait.Interrupted(err):
		return nil, fmt.Errorf("waiting for APIBinding %q of %s to be bound: %w", name, l, err)
	case binding.Name == "":
		return nil, fmt.Errorf("APIBinding %q of %s could not be read within %s: %w", name, l, timeout, last)
	}
	return nil, fmt.Errorf("APIBinding %q of %s is not bound after %s: %s. It goes on trying; kubectl delete apibinding %s ends that",
		name, l, timeout, Describe(binding), name)
}

// WaitServed waits until the workspace that config leads to serves everything that a binding has bound. The server learns of a
// binding a moment after it is Bound, and whoever waited for that wants to use it.
func WaitServed(ctx context.Context, config *rest.Config, binding *apisv1alpha2.APIBinding, timeout time.Duration) error {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	var missing []string
	err = wait.PollUntilContextTimeout(ctx, interval, timeout, true, func(ctx context.Context) (bool, error) {
		_, lists, _ := client.ServerGroupsAndResourcesWithContext(ctx) // what is missing because of an error may come the next time
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
		return fmt.Errorf("APIBinding %q is bound, but its workspace does not serve %s yet", binding.Name, strings.Join(missing, ", "))
	}
	return err
}

// Describe says in what state a binding is, and what keeps it there.
func Describe(binding *apisv1alpha2.APIBinding) string {
	phase := binding.Status.Phase
	if phase == apisv1alpha2.APIBindingPhaseNew {
		phase = apisv1alpha2.APIBindingPhaseBinding
	}
	texts := []string{"its phase is " + string(phase)}
	var told []string // the same problem may be in several conditions
	for _, condition := range binding.Status.Conditions {
		if condition.Status == metav1.ConditionFalse && condition.Message != "" && !slices.Contains(told, condition.Message) {
			told = append(told, condition.Message)
			texts = append(texts, fmt.Sprintf("%s: %s", condition.Reason, condition.Message))
		}
	}
	return strings.Join(texts, "; ")
}
