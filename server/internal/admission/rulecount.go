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
	// maxWebhooks is how many mutating, and how many validating, webhooks a logical cluster may have: a write may call all of them.
	maxWebhooks = 100
	// maxPolicies is how many policies of each kind, and how many bindings of each kind, it may have: each write looks at all of them.
	maxPolicies = 1000
)

// configures returns whether a request is about a configuration of webhooks. Upstream asks no webhook about these.
func configures(a admission.Attributes) bool {
	return a.GetResource().Group == "admissionregistration.k8s.io" &&
		(a.GetResource().Resource == "mutatingwebhookconfigurations" || a.GetResource().Resource == "validatingwebhookconfigurations")
}

// boundedRules bounds how many webhooks and policies a logical cluster has. It sees what is stored already, and several at a time may
// exceed the limit: webhooks.call and policies.make have the last word.
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

// atMost refuses an object with which a cluster would have more than limit, unless it has less of them than it had.
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
		return forbidden(a, "the logical cluster would have %d %s, and may have %d: delete those that are not needed", after, what, limit)
	}
	return nil
}

// counted returns a function that returns how many webhooks, or policies or bindings, a cluster has.
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

// rulesIn returns how many webhooks a configuration of any version has. A policy and a binding is one.
func rulesIn(obj any) int {
	if _, ok := obj.(metav1.Object); !ok {
		return 0
	}
	if webhooks := reflect.Indirect(reflect.ValueOf(obj)).FieldByName("Webhooks"); webhooks.IsValid() {
		return webhooks.Len()
	}
	return 1
}
