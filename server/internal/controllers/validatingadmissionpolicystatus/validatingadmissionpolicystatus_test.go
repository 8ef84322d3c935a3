package validatingadmissionpolicystatus

import (
	"context"
	"errors"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

var widget = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}

// sizes has, for each cluster, the type of the field size of its widgets.
type sizes map[logicalcluster.Name]string

func (s sizes) in(cluster logicalcluster.Name) resolver.SchemaResolver {
	return widgetTypes{s[cluster]}
}

type widgetTypes struct{ size string }

func (t widgetTypes) ResolveSchema(gvk schema.GroupVersionKind) (*spec.Schema, error) {
	if gvk != widget || t.size == "" {
		return nil, resolver.ErrSchemaNotFound
	}
	size := spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{t.size}}}
	return &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}, Properties: map[string]spec.Schema{"size": size}}}, nil
}

func policy(cluster logicalcluster.Name, generation, observed int64) *admissionregistrationv1.ValidatingAdmissionPolicy {
	return &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{
			Name: "small", UID: types.UID("of-" + cluster), Generation: generation, Annotations: map[string]string{logicalcluster.AnnotationKey: string(cluster)},
		},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{Rule: admissionregistrationv1.Rule{
					APIGroups: []string{widget.Group}, APIVersions: []string{widget.Version}, Resources: []string{"widgets"},
				}},
			}}},
			Validations: []admissionregistrationv1.Validation{{Expression: "object.size < 10"}},
		},
		Status: admissionregistrationv1.ValidatingAdmissionPolicyStatus{ObservedGeneration: observed},
	}
}

// world returns inputs whose informer holds policies, and the client that gets the answers.
func world(t *testing.T, s sizes, policies ...*admissionregistrationv1.ValidatingAdmissionPolicy) (Inputs, *fake.Clientset) {
	t.Helper()
	list := &admissionregistrationv1.ValidatingAdmissionPolicyList{}
	for _, p := range policies {
		list.Items = append(list.Items, *p)
	}
	lw := &cache.ListWatch{
		ListWithContextFunc:  func(context.Context, metav1.ListOptions) (runtime.Object, error) { return list.DeepCopy(), nil },
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil },
	}
	resource := admissionregistrationv1.SchemeGroupVersion.WithResource("validatingadmissionpolicies")
	i := informers.New(resource, &admissionregistrationv1.ValidatingAdmissionPolicy{}, lw, nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); i.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	<-i.Synced()
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(widget, meta.RESTScopeRoot)
	client := fake.NewClientset()
	client.PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &admissionregistrationv1.ValidatingAdmissionPolicy{}, nil
	})
	return Inputs{
		Set:     &informers.Set{ValidatingAdmissionPolicies: informers.Lister[*admissionregistrationv1.ValidatingAdmissionPolicy]{Informer: i}},
		Kube:    client,
		Schemas: s.in, RESTMapper: func(context.Context) (meta.RESTMapper, error) { return mapper, nil },
	}, client
}

// reconciled returns what is written about the policy of a cluster, empty if nothing is.
func reconciled(t *testing.T, in Inputs, client *fake.Clientset, cluster logicalcluster.Name) string {
	t.Helper()
	client.ClearActions()
	if err := in.reconcile(logicalcluster.WithName(t.Context(), cluster), informers.Key{Cluster: cluster, Name: "small"}); err != nil {
		t.Fatal(err)
	}
	actions := client.Actions()
	if len(actions) == 0 {
		return ""
	}
	patch, ok := actions[0].(clienttesting.PatchAction)
	if !ok || len(actions) != 1 || patch.GetSubresource() != "status" || patch.GetPatchType() != types.ApplyPatchType {
		t.Fatalf("want the status applied once, got %v", actions)
	}
	return string(patch.GetPatch())
}

func TestExpressionsAreCheckedAgainstTheTypesOfTheirCluster(t *testing.T) {
	in, client := world(t, sizes{"numbers": "integer", "words": "string"}, policy("numbers", 1, 0), policy("words", 1, 0), policy("neither", 3, 2))
	for _, test := range []struct {
		cluster logicalcluster.Name
		has     []string
		warns   bool
	}{
		{"numbers", []string{`"observedGeneration":1`, `"uid":"of-numbers"`}, false},
		{"words", []string{`"observedGeneration":1`, `"uid":"of-words"`, `"fieldRef":"spec.validations[0].expression"`, "no matching overload"}, true},
		{"neither", []string{`"observedGeneration":3`}, false}, // a kind without a schema is not checked
	} {
		written := reconciled(t, in, client, test.cluster)
		for _, part := range test.has {
			if !strings.Contains(written, part) {
				t.Errorf("%s: %s is not in what is written: %s", test.cluster, part, written)
			}
		}
		if warns := strings.Contains(written, "warning"); warns != test.warns {
			t.Errorf("%s: got a warning: %t, want %t: %s", test.cluster, warns, test.warns, written)
		}
	}
}

func TestPoliciesWithoutAnUncheckedGenerationCostNothing(t *testing.T) {
	deleting := policy("deleting", 2, 1)
	at := metav1.Now()
	deleting.DeletionTimestamp = &at
	in, client := world(t, nil, policy("checked", 1, 1), deleting)
	in.Schemas = func(cluster logicalcluster.Name) resolver.SchemaResolver {
		t.Errorf("types were requested in %s", cluster)
		return widgetTypes{}
	}
	for _, cluster := range []logicalcluster.Name{"checked", "deleting", "empty"} {
		if written := reconciled(t, in, client, cluster); written != "" {
			t.Errorf("%s: written: %s", cluster, written)
		}
	}
}

func TestFailuresAreRetriedUnlessThePolicyDoesNotExist(t *testing.T) {
	in, client := world(t, nil, policy("a", 1, 0))
	key := informers.Key{Cluster: "a", Name: "small"}
	resource := in.Set.ValidatingAdmissionPolicies.Resource().GroupResource()
	for _, test := range []struct {
		answer error
		fails  bool
	}{
		{apierrors.NewNotFound(resource, "small"), false},
		{apierrors.NewConflict(resource, "small", errors.New("uid")), true},
	} {
		client.PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, test.answer })
		if err := in.reconcile(logicalcluster.WithName(t.Context(), "a"), key); (err != nil) != test.fails {
			t.Errorf("after %v: got %v, want an error: %t", test.answer, err, test.fails)
		}
	}
	in.RESTMapper = func(context.Context) (meta.RESTMapper, error) { return nil, errors.New("no discovery") }
	if err := in.reconcile(t.Context(), key); err == nil {
		t.Error("without discovery the policy counts as checked")
	}
}
