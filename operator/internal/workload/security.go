package workload

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// Security has the limits of an installation for the pods that the operator creates, for all users.
type Security struct {
	// Privileged allows what the restricted standard of Pod Security forbids.
	Privileged bool
	// ServiceAccounts are the names of the ServiceAccounts whose tokens pods may have.
	ServiceAccounts []string
	// AssignsIDs is true on a cluster that assigns users and groups to pods, and refuses others, such as OpenShift.
	AssignsIDs bool
}

// restricted evaluates pods with the latest version of the standard.
var restricted = sync.OnceValues(func() (policy.Evaluator, error) { return policy.NewEvaluator(policy.DefaultChecks(), nil) })

// Admit prepares a pod for the cluster. It returns an error if the pod exceeds the limits of the installation; field is the field of the
// spec that customizes the pod.
func (s Security) Admit(pod *corev1.PodTemplateSpec, field string) error {
	s.Assign(&pod.Spec)
	if name := serviceAccount(&pod.Spec); hasToken(&pod.Spec) && !slices.Contains(s.ServiceAccounts, name) {
		return fmt.Errorf("%s: pods may not have a token of ServiceAccount %s: remove serviceAccountName, automountServiceAccountToken and "+
			"projected tokens, "+
			"or have an administrator add %s to the value podServiceAccounts of the operator's chart (--pod-service-accounts)", field, name, name)
	}
	if s.Privileged {
		return nil
	}
	evaluator, err := restricted()
	if err != nil {
		return err
	}
	var forbidden []string
	for _, result := range evaluator.EvaluatePod(api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()},
		&pod.ObjectMeta, &pod.Spec) {
		if !result.Allowed {
			forbidden = append(forbidden, fmt.Sprintf("%s (%s)", result.ForbiddenReason, result.ForbiddenDetail))
		}
	}
	if len(forbidden) > 0 {
		return fmt.Errorf("%s: Pod Security restricted forbids %s: remove it, or have an administrator set the value podSecurity of the "+
			"operator's chart "+
			"to privileged (--pod-security)", field, strings.Join(forbidden, ", "))
	}
	return nil
}

// Assign removes the default user and groups of a pod if the cluster assigns them. It keeps those that a template has set.
func (s Security) Assign(pod *corev1.PodSpec) {
	c := pod.SecurityContext
	if !s.AssignsIDs || c == nil {
		return
	}
	for _, id := range []**int64{&c.RunAsUser, &c.RunAsGroup, &c.FSGroup} {
		if *id != nil && **id == user {
			*id = nil
		}
	}
}

func serviceAccount(pod *corev1.PodSpec) string {
	if pod.ServiceAccountName == "" {
		return "default"
	}
	return pod.ServiceAccountName
}

// hasToken reports whether containers of a pod can read a token of its service account.
func hasToken(pod *corev1.PodSpec) bool {
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
		return true
	}
	for _, v := range pod.Volumes {
		if v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(p corev1.VolumeProjection) bool {
			return p.ServiceAccountToken != nil || p.PodCertificate != nil
		}) {
			return true
		}
	}
	return false
}
