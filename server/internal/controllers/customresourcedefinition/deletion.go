package customresourcedefinition

import (
	"context"
	"slices"
	"time"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/internal/apis/instances"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// remainingInterval is how often the instances of a definition that is being deleted are counted.
const remainingInterval = time.Second

// Remains deletes the objects that the cluster of ctx stores of a custom resource, also those that clients do not reach. See
// storage.Remains.
type Remains interface {
	Delete(ctx context.Context, resource schema.GroupResource, identity string,
		waits func(*unstructured.Unstructured) bool) (left int, err error)
}

type deleter struct {
	Inputs
	controller *runner.Controller
}

// NewDeleter returns the controller that deletes the instances of definitions that are being deleted, and then removes their finalizers.
// Its keys are definitions. It has a queue for itself because webhooks and conversions of tenants take part in deletions.
func NewDeleter(in Inputs) *runner.Controller {
	r := &deleter{Inputs: in}
	r.controller = runner.New("customresourcedefinition-deletion", 8, r.reconcile)
	in.Set.CustomResourceDefinitions.AddHandler(func(_, obj runtime.Object) {
		if crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition); ok && crd.DeletionTimestamp != nil {
			if key, err := informers.KeyOf(crd); err == nil {
				r.controller.Enqueue(key)
			}
		}
	})
	return r.controller
}

func (r *deleter) reconcile(ctx context.Context, key informers.Key) error {
	shown, err := r.Set.CustomResourceDefinitions.Get(key.Cluster, "", key.Name)
	if err != nil || shown.DeletionTimestamp == nil {
		return runner.IgnoreNotFound(err)
	}
	// The next definition of the same name has the same objects, so the informer must not be late.
	crd, err := r.Definitions.Get(ctx, key.Name, metav1.GetOptions{})
	if err != nil {
		return runner.IgnoreNotFound(err)
	}
	if crd.DeletionTimestamp == nil || !apiextensionshelpers.CRDHasFinalizer(crd, apiextensionsv1.CustomResourceCleanupFinalizer) {
		return nil
	}
	if !apiextensionshelpers.IsCRDConditionTrue(crd, apiextensionsv1.Terminating) {
		crd = crd.DeepCopy()
		apiextensionshelpers.SetCRDCondition(crd,
			condition(apiextensionsv1.Terminating, true, "InstanceDeletionInProgress", "CustomResource deletion is in progress"))
		if crd, err = r.write(ctx, crd); err != nil {
			return runner.IgnoreNotFound(err)
		}
	}
	remaining, err := r.deleteInstances(ctx, crd)
	if err != nil {
		return err
	}
	if remaining {
		r.controller.EnqueueAfter(key, remainingInterval)
		return nil
	}
	crd = crd.DeepCopy()
	apiextensionshelpers.CRDRemoveFinalizer(crd, apiextensionsv1.CustomResourceCleanupFinalizer)
	_, err = r.write(ctx, crd)
	return runner.IgnoreNotFound(err)
}

func (r *deleter) deleteInstances(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) (remaining bool, err error) {
	if !apiextensionshelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
		return false, nil // no object was ever stored
	}
	of := schema.GroupResource{Group: crd.Spec.Group, Resource: crd.Spec.Names.Plural}
	owns := func() bool { return r.owns(logicalcluster.Of(crd), crd) }
	version := instances.Version(crd)
	if version == "" && owns() { // a later definition of another scope would serve objects that clients cannot delete
		_, err := r.Remains.Delete(ctx, of, "", func(*unstructured.Unstructured) bool { return false })
		return false, err
	}
	left, err := instances.DeleteOwn(ctx, r.Metadata, of.WithVersion(version), owns)
	return left > 0, runner.IgnoreNotFound(err)
}

// owns reports whether the objects of the resource of a definition belong to the definition, and not to a binding or the server.
func (r *deleter) owns(cluster logicalcluster.Name, crd *apiextensionsv1.CustomResourceDefinition) bool {
	for _, names := range r.BuiltIn(crd.Spec.Group) {
		if names.Plural == crd.Spec.Names.Plural {
			return false
		}
	}
	key := customresources.ResourceName(crd.Spec.Names.Plural, crd.Spec.Group)
	return !slices.ContainsFunc(r.Serves(cluster), func(i customresources.Installed) bool {
		return i.Key() == key && (i.IsSystem() || i.Binding != "")
	})
}
