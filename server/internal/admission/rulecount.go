package admission

import (
	"context"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

const (
	// maxWebhooks is how many mutating, and how many validating webhooks a logical cluster may have: one write may call all of them.
	maxWebhooks = 100
	// maxPolicies is how many policies, and how many bindings of each kind a logical cluster may have: each write checks all of them.
	maxPolicies = 1000
)

// configures reports whether the object of a request is a configuration of webhooks. Upstream does not call webhooks for these.
func configures(a admission.Attributes) bool {
	return a.GetResource().Group == "admissionregistration.k8s.io" &&
		(a.GetResource().Resource == "mutatingwebhookconfigurations" || a.GetResource().Resource == "validatingwebhookconfigurations")
}

// boundedRules limits the number of webhooks and policies of a logical cluster. It counts stored objects, and concurrent requests may
// exceed the limit: webhooks.call and policies.hooks check it again.
type boundedRules struct{ rules }

var _ admission.ValidationInterface = boundedRules{}

// Validate implements admission.ValidationInterface.
func (b boundedRules) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().Group != "admissionregistration.k8s.io" || a.GetSubresource() != "" {
		return nil
	}
	cluster, err := logicalcluster.NameFrom(ctx)
	if err != nil {
		return err
	}
	set := b.config.Set
	switch a.GetResource().Resource {
	case "mutatingwebhookconfigurations":
		return atMost(a, cluster, set.MutatingWebhookConfigurations, maxWebhooks, "mutating webhooks")
	case "validatingwebhookconfigurations":
		return atMost(a, cluster, set.ValidatingWebhookConfigurations, maxWebhooks, "validating webhooks")
	case "mutatingadmissionpolicies":
		return atMost(a, cluster, set.MutatingAdmissionPolicies, maxPolicies, "MutatingAdmissionPolicies")
	case "mutatingadmissionpolicybindings":
		return atMost(a, cluster, set.MutatingAdmissionPolicyBindings, maxPolicies, "MutatingAdmissionPolicyBindings")
	case "validatingadmissionpolicies":
		return atMost(a, cluster, set.ValidatingAdmissionPolicies, maxPolicies, "ValidatingAdmissionPolicies")
	case "validatingadmissionpolicybindings":
		return atMost(a, cluster, set.ValidatingAdmissionPolicyBindings, maxPolicies, "ValidatingAdmissionPolicyBindings")
	}
	return nil
}

// atMost refuses an object with which a cluster would exceed a limit. An update that does not increase the number is admitted.
func atMost[T object](a admission.Attributes, cluster logicalcluster.Name, lister informers.Lister[T], limit int, what string) error {
	after := rulesIn(a.GetObject())
	if a.GetOperation() == admission.Update && after <= rulesIn(a.GetOldObject()) {
		return nil
	}
	all, err := lister.List(cluster)
	if err != nil {
		return err
	}
	for _, other := range all {
		if other.GetName() != a.GetName() {
			after += rulesIn(other)
		}
	}
	if after > limit {
		return forbidden(a, "the logical cluster would have %d %s, the limit is %d: delete unneeded ones", after, what, limit)
	}
	return nil
}

// counted returns a function that returns the number of webhooks, policies or bindings of a cluster.
func counted[T object](lister informers.Lister[T]) func(logicalcluster.Name) (int, error) {
	return func(cluster logicalcluster.Name) (int, error) {
		all, err := lister.List(cluster)
		n := 0
		for _, configuration := range all {
			n += rulesIn(configuration)
		}
		return n, err
	}
}

// rulesIn returns the number of webhooks in a configuration of any version. It is one for a policy or a binding.
func rulesIn(obj any) int {
	if _, ok := obj.(metav1.Object); !ok {
		return 0
	}
	if webhooks := reflect.Indirect(reflect.ValueOf(obj)).FieldByName("Webhooks"); webhooks.IsValid() {
		return webhooks.Len()
	}
	return 1
}
