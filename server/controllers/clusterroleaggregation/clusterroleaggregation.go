// Package clusterroleaggregation keeps the rules of aggregated ClusterRoles equal to the rules of the roles that they
// select in their logical cluster.
package clusterroleaggregation

import (
	"context"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/kcplane/kcp/server/controllers/controller"
	"github.com/kcplane/kcp/server/informers"
)

// New returns the controller. Its keys are aggregated ClusterRoles.
func New(set *informers.Set, kube kubernetes.Interface) *controller.Controller {
	c := controller.New("clusterroleaggregation", 2, func(ctx context.Context, key informers.Key) error {
		role, err := set.ClusterRoles.Get(key.Cluster, "", key.Name)
		if err != nil || role.AggregationRule == nil {
			return controller.IgnoreNotFound(err)
		}
		all, err := set.ClusterRoles.List(key.Cluster)
		if err != nil {
			return err
		}
		rules, err := aggregate(role, all)
		if err != nil || equality.Semantic.DeepEqual(rules, role.Rules) {
			return err
		}
		changed := role.DeepCopy()
		changed.Rules = rules
		_, err = kube.RbacV1().ClusterRoles().Update(ctx, changed, metav1.UpdateOptions{})
		return controller.IgnoreGoing(err)
	})
	c.WatchMapped(set.ClusterRoles.Informer, func(obj runtime.Object) []informers.Key {
		changed, err := informers.KeyOf(obj)
		if err != nil {
			return nil
		}
		all, err := set.ClusterRoles.List(changed.Cluster)
		if err != nil {
			return nil
		}
		var keys []informers.Key
		for _, role := range all {
			if role.AggregationRule != nil {
				keys = append(keys, informers.Key{Cluster: changed.Cluster, Name: role.Name})
			}
		}
		return keys
	})
	return c
}

// aggregate returns the rules of the roles that role selects, each distinct rule once, in the order of names.
func aggregate(role *rbacv1.ClusterRole, all []*rbacv1.ClusterRole) ([]rbacv1.PolicyRule, error) {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b *rbacv1.ClusterRole) int { return strings.Compare(a.Name, b.Name) })
	var rules []rbacv1.PolicyRule
	for i := range role.AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&role.AggregationRule.ClusterRoleSelectors[i])
		if err != nil {
			return nil, fmt.Errorf("aggregationRule of %s: %w", role.Name, err)
		}
		for _, selected := range all {
			if selected.Name == role.Name || !selector.Matches(labels.Set(selected.Labels)) {
				continue
			}
			for _, rule := range selected.Rules {
				if !slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool { return equality.Semantic.DeepEqual(r, rule) }) {
					rules = append(rules, rule)
				}
			}
		}
	}
	return rules, nil
}
