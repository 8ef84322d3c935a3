package apibinding

import (
	"context"
	"fmt"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/apis/conditions"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/internal/tenancy/claims"
)

const (
	// pageSize is how many objects are listed at a time to be labeled.
	pageSize = 500
	// maxInvalid and maxMismatches are how many claims the messages of conditions list.
	maxInvalid, maxMismatches = 10, 5
)

// applyClaims applies the claims that the binding accepts and the export has: it labels the objects that they select.
func (r *reconciler) applyClaims(ctx context.Context, key informers.Key, binding *apisv1alpha2.APIBinding,
	status *apisv1alpha2.APIBindingStatus) {
	comparison := claims.Compare(status.ExportPermissionClaims, binding)
	failed := sets.New[claims.Key]()
	var problem error
	for _, changed := range [][]apisv1alpha2.ScopedPermissionClaim{comparison.Apply, comparison.Reselect, comparison.Remove} {
		for i := range changed {
			r.claimChanges.add(key, claims.KeyOf(&changed[i].PermissionClaim))
		}
	}
	for claim := range r.claimChanges.take(key) {
		if err := r.relabel(ctx, key, claim); err != nil {
			decisionlog.ForFailure(ctx, key.Cluster).Error(err, "Labelling the objects of a permission claim failed, will retry",
				decisionlog.Cluster, key.Cluster, decisionlog.Name, key.Name, decisionlog.Claim, claim)
			r.claimChanges.add(key, claim)
			failed.Insert(claim)
			problem = fmt.Errorf("the objects of %s could not be labelled", claim)
		}
	}
	status.AppliedPermissionClaims = comparison.Applied(failed)
	condition(status, apisv1alpha2.APIBindingPermissionClaimsApplied, problem, apisv1alpha2.ReasonInternalError)
	if problem != nil {
		r.controller.EnqueueAfter(key, remainingInterval)
	}
	valid := corev1alpha1.Condition{Type: apisv1alpha2.APIBindingPermissionClaimsValid, Status: metav1.ConditionTrue}
	if mismatches := claims.Mismatches(status.ExportPermissionClaims, comparison.Expected); len(mismatches) > 0 {
		valid.Status, valid.Severity, valid.Reason = metav1.ConditionFalse, "Warning", apisv1alpha2.ReasonPermissionClaimsMismatch
		valid.Message = "claims are accepted in another form than the export has them: " + claims.List(mismatches, maxMismatches)
	}
	if len(comparison.Unexpected) > 0 {
		var unexpected []claims.Key
		for i := range comparison.Unexpected {
			unexpected = append(unexpected, claims.KeyOf(&comparison.Unexpected[i].PermissionClaim))
		}
		valid.Status, valid.Severity, valid.Reason = metav1.ConditionFalse, "Error", apisv1alpha2.ReasonInvalidPermissionClaims
		valid.Message = "claims are accepted that the export does not have: " + claims.List(unexpected, maxInvalid)
	}
	conditions.Set(&status.Conditions, valid)
}

// relabel corrects the labels of the objects of a claimed resource. Admission writes them, at a patch that changes nothing.
func (r *reconciler) relabel(ctx context.Context, key informers.Key, claim claims.Key) error {
	if r.Exports.Identity(key.Cluster, claim.GroupResource) != claim.IdentityHash {
		return nil // the cluster does not have the claimed resource
	}
	served, err := r.Resources(ctx)
	if err != nil {
		return err
	}
	for _, resource := range served {
		if resource.GroupResource() != claim.GroupResource || !resource.Verbs.HasAll("list", "patch") {
			continue
		}
		err := r.relabelAll(ctx, key, claim, resource.GroupVersionResource)
		if err == nil || claim.IdentityHash == "" {
			return err
		}
		// Rules and conversions of another provider must not prevent it.
		decisionlog.ForFailure(ctx, key.Cluster).Info("Labelling claimed objects in the storage because labelling through the API failed",
			decisionlog.Cluster, key.Cluster, decisionlog.Claim, claim, decisionlog.Reason, err)
		return r.Remains.Relabel(ctx, claim.GroupResource, claim.IdentityHash, func(labels map[string]string) map[string]string {
			return claims.RequiredLabels(r.Exports, key.Cluster, claim.GroupResource, labels)
		})
	}
	return nil
}

func (r *reconciler) relabelAll(ctx context.Context, key informers.Key, claim claims.Key, resource schema.GroupVersionResource) error {
	client := r.Metadata.Resource(resource)
	options := metav1.ListOptions{Limit: pageSize}
	for {
		list, err := client.List(ctx, options)
		if err != nil {
			return err
		}
		for i := range list.Items {
			item := &list.Items[i]
			if maps.Equal(claims.RequiredLabels(r.Exports, key.Cluster, claim.GroupResource, item.Labels), item.Labels) {
				continue
			}
			_, err := client.Namespace(item.Namespace).Patch(ctx, item.Name, types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return nil
		}
	}
}
