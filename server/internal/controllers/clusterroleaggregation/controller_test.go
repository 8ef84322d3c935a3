package clusterroleaggregation

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/objecttest"
)

// aggregated returns the aggregated role of cluster c with some rules.
func aggregated(rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	role := objecttest.In("c", selecting("part"))
	role.Labels, role.Rules = map[string]string{"kept": "yes"}, rules
	return role
}

func in(cluster string, role *rbacv1.ClusterRole) *rbacv1.ClusterRole {
	return objecttest.In(cluster, role)
}

func TestRulesOfAnAggregatedRole(t *testing.T) {
	resource := schema.GroupResource{Group: rbacv1.GroupName, Resource: "clusterroles"}
	conflict := apierrors.NewConflict(resource, "all", errors.New("changed"))
	a, b := in("c", part("a", reading("a"))), in("c", part("b", reading("b")))
	plain := aggregated(reading("x"))
	plain.AggregationRule = nil
	wrong := aggregated()
	wrong.AggregationRule.ClusterRoleSelectors[0].MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "part", Operator: "Like"}}
	var many []rbacv1.PolicyRule
	for i := range maxRules + 1 {
		many = append(many, reading(fmt.Sprint("r", i)))
	}
	for _, tc := range []struct {
		name    string
		objects []objecttest.Object
		answer  error
		want    *rbacv1.ClusterRole // nil if nothing is written
		fails   bool
	}{
		{"The rules of the selected roles are written", []objecttest.Object{aggregated(), b, a}, nil, aggregated(reading("a"), reading("b")), false},
		{"Rules that were written by others are replaced", []objecttest.Object{aggregated(reading("x")), a}, nil, aggregated(reading("a")), false},
		{"Rules of roles that are gone are removed", []objecttest.Object{aggregated(reading("a"))}, nil, aggregated(), false},
		{"Rules that are up to date are not written again", []objecttest.Object{aggregated(reading("a")), a}, nil, nil, false},
		{
			"Roles of other clusters do not count", []objecttest.Object{aggregated(reading("a")), a, in("other", part("b", reading("b")))}, nil, nil, false,
		},
		{"The rules of a role without a selector stay as they are", []objecttest.Object{plain, a}, nil, nil, false},
		{"A role keeps its rules if there are too many", []objecttest.Object{aggregated(reading("x")), in("c", part("a", many...))}, nil, nil, false},
		{"A selector that is not valid is an error", []objecttest.Object{wrong, a}, nil, nil, true},
		{"A role that is gone is no failure", []objecttest.Object{a}, nil, nil, false},
		{
			"A role that was deleted before its update is no failure", []objecttest.Object{aggregated(), a}, apierrors.NewNotFound(resource, "all"),
			aggregated(reading("a")), false,
		},
		{"A conflict is retried", []objecttest.Object{aggregated(), a}, conflict, aggregated(reading("a")), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o, kube := objecttest.New(t, tc.objects...), &fake.Clientset{}
			var got *rbacv1.ClusterRole
			kube.AddReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
				got = action.(clienttesting.UpdateAction).GetObject().(*rbacv1.ClusterRole)
				return true, got, tc.answer
			})
			err := New(Inputs{Set: o.Set, Kube: kube}).Reconcile(t.Context(), informers.Key{Cluster: "c", Name: "all"})
			if (err != nil) != tc.fails {
				t.Errorf("got error %v", err)
			}
			if tc.want != nil && got != nil {
				tc.want.ResourceVersion = got.ResourceVersion
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestARoleConcernsTheAggregatedRolesOfItsCluster(t *testing.T) {
	other := objecttest.In("other", selecting("part"))
	o := objecttest.New(t, aggregated(), in("c", part("a")), other)
	got := (&reconciler{Inputs{Set: o.Set}}).aggregated(in("c", part("new")))
	if diff := cmp.Diff([]informers.Key{{Cluster: "c", Name: "all"}}, got); diff != "" {
		t.Error(diff)
	}
}
