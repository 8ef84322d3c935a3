package admission

import (
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/tools/cache"
	internal "k8s.io/kubernetes/pkg/apis/admissionregistration"

	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

type configuration = admissionregistrationv1.ValidatingWebhookConfiguration

// One write calls all webhooks of a cluster, the validating ones at the same time, and checks all policies.
func TestTheNumberOfWebhooksAndPoliciesIsBounded(t *testing.T) {
	group := admissionregistrationv1.SchemeGroupVersion
	set := &informers.Set{}
	set.ValidatingWebhookConfigurations.Informer = informers.New(group.WithResource("validatingwebhookconfigurations"), &configuration{}, &cache.ListWatch{}, nil)
	set.ValidatingAdmissionPolicies.Informer = informers.New(group.WithResource("validatingadmissionpolicies"), &policy{}, &cache.ListWatch{}, nil)
	add := func(indexer cache.Indexer, obj any) {
		t.Helper()
		if err := indexer.Add(obj); err != nil {
			t.Fatal(err)
		}
	}
	for cluster, n := range map[string]int{"few": 10, "many": maxWebhooks, "toomany": maxWebhooks + 1} {
		add(set.ValidatingWebhookConfigurations.Indexer(), &configuration{ObjectMeta: of(cluster), Webhooks: make([]admissionregistrationv1.ValidatingWebhook, n)})
	}
	for i := range maxPolicies {
		p := &policy{ObjectMeta: of("many")}
		p.Name = fmt.Sprint("policy-", i)
		add(set.ValidatingAdmissionPolicies.Indexer(), p)
	}
	hooks := func(n int) *internal.ValidatingWebhookConfiguration {
		return &internal.ValidatingWebhookConfiguration{Webhooks: make([]internal.ValidatingWebhook, n)}
	}
	b := boundedRules{rules{Config{Set: set}}}
	for name, test := range map[string]struct {
		cluster, resource, name string
		object, old             runtime.Object
		want                    string
	}{
		"webhooks up to the limit are admitted":                        {"few", "validatingwebhookconfigurations", "other", hooks(maxWebhooks - 10), nil, ""},
		"webhooks beyond the limit are refused":                        {"few", "validatingwebhookconfigurations", "other", hooks(maxWebhooks - 9), nil, "would have 101 validating webhooks, the limit is 100"},
		"a webhook in a full cluster is refused":                       {"many", "validatingwebhookconfigurations", "other", hooks(1), nil, "would have 101 validating webhooks, the limit is 100: delete unneeded ones"},
		"an update in a full cluster is admitted":                      {"many", "validatingwebhookconfigurations", "many", hooks(maxWebhooks), hooks(maxWebhooks), ""},
		"an update that adds a webhook is refused":                     {"many", "validatingwebhookconfigurations", "many", hooks(maxWebhooks + 1), hooks(maxWebhooks), "would have 101"},
		"an update that removes webhooks beyond the limit is admitted": {"toomany", "validatingwebhookconfigurations", "toomany", hooks(maxWebhooks + 1), hooks(maxWebhooks + 2), ""},
		"the webhooks of other clusters do not count":                  {"none", "validatingwebhookconfigurations", "other", hooks(maxWebhooks), nil, ""},
		"a policy beyond the limit is refused":                         {"many", "validatingadmissionpolicies", "other", &internal.ValidatingAdmissionPolicy{}, nil, "would have 1001 ValidatingAdmissionPolicies"},
		"an update of a policy in a full cluster is admitted":          {"many", "validatingadmissionpolicies", "policy-1", &internal.ValidatingAdmissionPolicy{}, &internal.ValidatingAdmissionPolicy{}, ""},
	} {
		operation := admission.Create
		if test.old != nil {
			operation = admission.Update
		}
		a := admission.NewAttributesRecord(test.object, test.old, group.WithKind("X"), "", test.name, group.WithResource(test.resource), "", operation, nil, false, nil)
		err := b.Validate(logicalcluster.WithName(t.Context(), logicalcluster.Name(test.cluster)), a, nil)
		if (err == nil) != (test.want == "") || (err != nil && !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n, err := counted(set.ValidatingWebhookConfigurations)("toomany"); n != maxWebhooks+1 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
}
