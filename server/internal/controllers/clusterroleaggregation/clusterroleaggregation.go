// Package clusterroleaggregation keeps the rules of aggregated ClusterRoles equal to the rules of the roles that they
// select in their logical cluster.
package clusterroleaggregation

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
)

// New returns the controller. Its keys are aggregated ClusterRoles.
func New(set *informers.Set, kube kubernetes.Interface) *runner.Controller {
	c := runner.New("clusterroleaggregation", 2, func(ctx context.Context, key informers.Key) error {
		role, err := set.ClusterRoles.Get(key.Cluster, "", key.Name)
		if err != nil || role.AggregationRule == nil {
			return runner.IgnoreNotFound(err)
		}
		all, err := set.ClusterRoles.List(key.Cluster)
		if err != nil {
			return err
		}
		rules, err := aggregate(role, all)
		if errors.Is(err, errTooMany) {
			klog.FromContext(ctx).Info("aggregated ClusterRole keeps its rules", "key", key.String(), "reason", err.Error())
			return nil
		}
		if err != nil || equality.Semantic.DeepEqual(rules, role.Rules) {
			return err
		}
		changed := role.DeepCopy()
		changed.Rules = rules
		_, err = kube.RbacV1().ClusterRoles().Update(ctx, changed, metav1.UpdateOptions{})
		return runner.IgnoreGoing(err)
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

// maxRules is how many rules an aggregated role may have. One that is as large as storage takes has some thousands.
const maxRules = 20_000

var errTooMany = fmt.Errorf("the roles that it selects have more than %d distinct rules", maxRules)

// aggregate returns the rules of the roles that role selects, each distinct rule once, in the order of names.
func aggregate(role *rbacv1.ClusterRole, all []*rbacv1.ClusterRole) ([]rbacv1.PolicyRule, error) {
	var rules []rbacv1.PolicyRule
	known := map[string]bool{}
	for i := range role.AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&role.AggregationRule.ClusterRoleSelectors[i])
		if err != nil {
			return nil, fmt.Errorf("aggregationRule of %s: %w", role.Name, err)
		}
		var selected []*rbacv1.ClusterRole
		for _, other := range all {
			if other.Name != role.Name && selector.Matches(labels.Set(other.Labels)) {
				selected = append(selected, other)
			}
		}
		slices.SortFunc(selected, func(a, b *rbacv1.ClusterRole) int { return strings.Compare(a.Name, b.Name) })
		for _, other := range selected {
			for _, rule := range other.Rules {
				if key := keyOf(rule); !known[key] {
					known[key] = true
					rules = append(rules, rule)
				}
			}
			if len(rules) > maxRules {
				return nil, errTooMany
			}
		}
	}
	return rules, nil
}

// keyOf returns a text that two rules share if and only if they are equal, no list and an empty one being the same.
func keyOf(rule rbacv1.PolicyRule) string {
	var key []byte
	for _, list := range [][]string{rule.Verbs, rule.APIGroups, rule.Resources, rule.ResourceNames, rule.NonResourceURLs} {
		key = binary.AppendUvarint(key, uint64(len(list)))
		for _, text := range list {
			key = append(binary.AppendUvarint(key, uint64(len(text))), text...)
		}
	}
	return string(key)
}
