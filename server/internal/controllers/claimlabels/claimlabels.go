// Package claimlabels corrects the labels of permission claims on objects that were written while the claims of their cluster changed:
// admission did not know the new claims yet, and relabeling the existing objects did not find the object yet.
package claimlabels

import (
	"context"
	"fmt"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/tenancy/claims"
	"github.com/kcplane/kcp/server/internal/tenancy/exports"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Inputs of the controller. Client and functions reach the cluster in each call's context.
type Inputs struct {
	Exports  *exports.Exports
	Metadata metadata.Interface
	// Served returns a resource in a version that the cluster serves. The version in which all clusters are watched may be another one.
	Served func(ctx context.Context, resource schema.GroupVersionResource) (schema.GroupVersionResource, error)
	// Objects are watched.
	Objects *runner.ObjectEvents
}

type reconciler struct {
	Inputs
	controller *runner.ObjectController
}

// New returns the controller. Its keys are objects of all resources.
func New(in Inputs) *runner.ObjectController {
	r := &reconciler{Inputs: in}
	r.controller = runner.NewForObjects("claimlabels", 2, r.reconcile)
	in.Objects.AddHandler(r)
	return r.controller
}

// Changed implements runner.ObjectHandler.
func (r *reconciler) Changed(resource schema.GroupVersionResource, obj metav1.Object) {
	if resource.GroupResource() == apisv1alpha2.Resource("apibindings") {
		return // their own controller writes them when anything changes
	}
	if !maps.Equal(claims.RequiredLabels(r.Exports, logicalcluster.Of(obj), resource.GroupResource(), obj.GetLabels()), obj.GetLabels()) {
		r.controller.Enqueue(runner.ObjectKeyOf(resource, obj))
	}
}

// Deleted implements runner.ObjectHandler.
func (r *reconciler) Deleted(schema.GroupVersionResource, metav1.Object) {}

// Relisted implements runner.ObjectHandler.
func (r *reconciler) Relisted(schema.GroupVersionResource) {}

// reconcile makes admission write the labels, by a patch that changes nothing.
func (r *reconciler) reconcile(ctx context.Context, key runner.ObjectKey) error {
	resource, err := r.Served(ctx, key.Resource)
	if err == nil {
		_, err = r.Metadata.Resource(resource).Namespace(key.Namespace).Patch(ctx, key.Name, types.MergePatchType, []byte("{}"),
			metav1.PatchOptions{})
	}
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) || apierrors.IsInvalid(err) ||
		apierrors.IsForbidden(err) {
		return nil
	}
	return fmt.Errorf("labeling %s with the permission claims on it: %w", key, err)
}
