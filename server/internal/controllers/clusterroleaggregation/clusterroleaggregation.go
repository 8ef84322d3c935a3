// Package clusterroleaggregation keeps the rules of aggregated ClusterRoles equal to the rules of the roles that they select in their
// logical cluster.
package clusterroleaggregation

import (
	"context"
	"crypto/sha256"
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

	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/process/decisionlog"
)

// Inputs of the controller. The client reaches the cluster in each call's context.
type Inputs struct {
	Set  *informers.Set
	Kube kubernetes.Interface
}

type reconciler struct{ Inputs }

// New returns the controller. Its keys are aggregated ClusterRoles.
func New(in Inputs) *runner.Controller {
	r := &reconciler{in}
	c := runner.New("clusterroleaggregation", 2, r.reconcile)
	c.WatchMapped(in.Set.ClusterRoles.Informer, r.aggregated)
	return c
}

// aggregated returns the keys of the aggregated ClusterRoles in the cluster of a role.
func (r *reconciler) aggregated(obj runtime.Object) []informers.Key {
	changed, err := informers.KeyOf(obj)
	if err != nil {
		return nil
	}
	all, err := r.Set.ClusterRoles.List(changed.Cluster)
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
}

func (r *reconciler) reconcile(ctx context.Context, key informers.Key) error {
	role, err := r.Set.ClusterRoles.Get(key.Cluster, "", key.Name)
	if err != nil || role.AggregationRule == nil {
		return runner.IgnoreNotFound(err)
	}
	all, err := r.Set.ClusterRoles.List(key.Cluster)
	if err != nil {
		return err
	}
	rules, err := aggregate(role, all)
	if errors.Is(err, errTooMany) {
		decisionlog.ForFailure(ctx, key.Cluster).Info("Aggregated ClusterRole keeps its rules", decisionlog.Cluster, key.Cluster,
			decisionlog.Name, key.Name, decisionlog.Reason, err)
		return nil
	}
	if err != nil || equality.Semantic.DeepEqual(rules, role.Rules) {
		return err
	}
	changed := role.DeepCopy()
	changed.Rules = rules
	_, err = r.Kube.RbacV1().ClusterRoles().Update(ctx, changed, metav1.UpdateOptions{})
	return runner.IgnoreExistsOrTerminating(err)
}

// maxRules is how many rules an aggregated role may have. The largest role that storage accepts has some thousands.
const maxRules = 20_000

var errTooMany = fmt.Errorf("the selected roles have more than %d distinct rules", maxRules)

// aggregate returns the rules of the roles that role selects, each distinct rule once, in the order of names. It copies rules only if there
// are not too many: every change of a large role makes it read all roles again.
func aggregate(role *rbacv1.ClusterRole, all []*rbacv1.ClusterRole) ([]rbacv1.PolicyRule, error) {
	var found []*rbacv1.PolicyRule
	known := map[digest]struct{}{}
	var buffer []byte
	for i := range role.AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&role.AggregationRule.ClusterRoleSelectors[i])
		if err != nil {
			return nil, fmt.Errorf("parsing the aggregationRule of ClusterRole %s: %w", role.Name, err)
		}
		for _, other := range selected(role, selector, all) {
			for j := range other.Rules {
				buffer = appendRule(buffer[:0], &other.Rules[j])
				sum := digest(sha256.Sum256(buffer))
				if _, ok := known[sum]; ok {
					continue
				}
				if len(found) == maxRules {
					return nil, errTooMany
				}
				known[sum] = struct{}{}
				found = append(found, &other.Rules[j])
			}
		}
	}
	if found == nil {
		return nil, nil
	}
	rules := make([]rbacv1.PolicyRule, len(found))
	for i, rule := range found {
		rules[i] = *rule
	}
	return rules, nil
}

// selected returns the roles that a selector of role matches, in the order of names.
func selected(role *rbacv1.ClusterRole, selector labels.Selector, all []*rbacv1.ClusterRole) []*rbacv1.ClusterRole {
	var roles []*rbacv1.ClusterRole
	for _, other := range all {
		if other.Name != role.Name && selector.Matches(labels.Set(other.Labels)) {
			roles = append(roles, other)
		}
	}
	slices.SortFunc(roles, func(a, b *rbacv1.ClusterRole) int { return strings.Compare(a.Name, b.Name) })
	return roles
}

// digest is the hash of a rule.
type digest [sha256.Size]byte

// appendRule appends the same bytes for two rules if and only if they are equal. A missing list equals an empty list.
func appendRule(to []byte, rule *rbacv1.PolicyRule) []byte {
	for _, list := range [...][]string{rule.Verbs, rule.APIGroups, rule.Resources, rule.ResourceNames, rule.NonResourceURLs} {
		to = binary.AppendUvarint(to, uint64(len(list)))
		for _, text := range list {
			to = append(binary.AppendUvarint(to, uint64(len(text))), text...)
		}
	}
	return to
}
