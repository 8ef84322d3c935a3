// Package validatingadmissionpolicystatus checks the expressions of ValidatingAdmissionPolicies against the types of their logical cluster,
// and writes type errors into the status as warnings.
package validatingadmissionpolicystatus

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	applyconfigurations "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// fieldManager owns the status, as in Kubernetes.
const fieldManager = "validatingadmissionpolicy-status-controller"

// Inputs of the controller.
type Inputs struct {
	Set *informers.Set
	// Kube reaches the cluster in each call's context.
	Kube kubernetes.Interface
	// Schemas returns the types of a cluster. It is called for the first time when there is a policy to check.
	Schemas func(logicalcluster.Name) resolver.SchemaResolver
	// RESTMapper returns what the cluster of a context serves.
	RESTMapper func(context.Context) (meta.RESTMapper, error)
}

// New returns the controller. Its keys are policies.
func New(in Inputs) *runner.Controller {
	c := runner.New("validatingadmissionpolicystatus", 2, in.reconcile)
	c.Watch(in.Set.ValidatingAdmissionPolicies.Informer)
	return c
}

// reconcile checks each generation of a policy once, as in Kubernetes: a type that changes later changes no status.
func (in Inputs) reconcile(ctx context.Context, key informers.Key) error {
	policy, err := in.Set.ValidatingAdmissionPolicies.Get(key.Cluster, "", key.Name)
	if err != nil || policy.DeletionTimestamp != nil || policy.Generation <= policy.Status.ObservedGeneration {
		return runner.IgnoreNotFound(err)
	}
	mapper, err := in.RESTMapper(ctx)
	if err != nil {
		return fmt.Errorf("resources of %s: %w", key.Cluster, err)
	}
	checker := validating.TypeChecker{SchemaResolver: in.Schemas(key.Cluster), RestMapper: mapper}
	_, err = in.Kube.AdmissionregistrationV1().ValidatingAdmissionPolicies().
		ApplyStatus(ctx, status(policy, checker.Check(policy)), metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	return runner.IgnoreNotFound(err)
}

// status returns what the controller says about the current generation of a policy. It refers to that one object: a policy
// created again under the same name was not checked.
func status(policy *admissionregistrationv1.ValidatingAdmissionPolicy,
	found []admissionregistrationv1.ExpressionWarning) *applyconfigurations.ValidatingAdmissionPolicyApplyConfiguration {
	warnings := make([]*applyconfigurations.ExpressionWarningApplyConfiguration, len(found))
	for i, w := range found {
		warnings[i] = applyconfigurations.ExpressionWarning().WithFieldRef(w.FieldRef).WithWarning(w.Warning)
	}
	return applyconfigurations.ValidatingAdmissionPolicy(policy.Name).WithUID(policy.UID).
		WithStatus(applyconfigurations.ValidatingAdmissionPolicyStatus().
			WithObservedGeneration(policy.Generation).
			WithTypeChecking(applyconfigurations.TypeChecking().WithExpressionWarnings(warnings...)))
}
