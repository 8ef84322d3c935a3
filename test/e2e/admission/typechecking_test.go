package admission

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// typed is a definition of widgets whose size has the given type, and a policy that compares it with a number.
const typed = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Cluster
  names: {plural: widgets, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: %s}}}}}}
`

const policy = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %s}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [%q], apiVersions: [v1], resources: [%s], operations: [CREATE]}]}
  validations: [{expression: %q}]
`

// warnings waits until a policy is checked, and returns the warnings about its expressions.
func warnings(t *testing.T, cluster *kcptest.Cluster, name string) string {
	t.Helper()
	var said []string
	kcptest.Eventually(t, "the policy "+name+" is checked", func(ctx context.Context) error {
		p, err := cluster.Kube(t, kcptest.Masters).AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if p.Status.ObservedGeneration != p.Generation {
			return fmt.Errorf("got status %v", p.Status)
		}
		said = nil
		if p.Status.TypeChecking == nil {
			return nil
		}
		for _, w := range p.Status.TypeChecking.ExpressionWarnings {
			said = append(said, w.FieldRef+": "+w.Warning)
		}
		return nil
	})
	return strings.Join(said, "\n")
}

func TestPoliciesAreTypeCheckedInTheirCluster(t *testing.T) {
	t.Parallel()
	numbers, words := server.Cluster(t), server.Cluster(t)
	for cluster, size := range map[*kcptest.Cluster]string{numbers: "integer", words: "string"} {
		cluster.Apply(t, fmt.Sprintf(typed, size))
		cluster.WaitForDefinition(t, "widgets.example.com")
		cluster.Apply(t, fmt.Sprintf(policy, "small", "example.com", "widgets", "object.spec.size < 10"))
		cluster.Apply(t, fmt.Sprintf(policy, "builtin", "", "configmaps", "object.data.size() > 0 && object.nonsense"))
	}
	if said := warnings(t, numbers, "small"); said != "" {
		t.Errorf("comparing numbers: got the warning %s", said)
	}
	if said := warnings(t, words, "small"); !strings.Contains(said, "spec.validations[0].expression: ") || !strings.Contains(said, "no matching overload") {
		t.Errorf("comparing a string with a number: got %q", said)
	}
	for _, cluster := range []*kcptest.Cluster{numbers, words} {
		if said := warnings(t, cluster, "builtin"); !strings.Contains(said, "undefined field 'nonsense'") || strings.Contains(said, "Widget") {
			t.Errorf("an unknown field of a built-in type: got %q", said)
		}
	}
	// A corrected policy has no warnings.
	words.Apply(t, fmt.Sprintf(policy, "small", "example.com", "widgets", "object.spec.size < '10'"))
	if said := warnings(t, words, "small"); said != "" {
		t.Errorf("after the correction: %s", said)
	}
}
