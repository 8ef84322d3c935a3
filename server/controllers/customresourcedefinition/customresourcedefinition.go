package customresourcedefinition

import (
	"context"
	"reflect"
	"time"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/kcplane/kcp/server/controllers/controller"
	"github.com/kcplane/kcp/server/controllers/instances"
	"github.com/kcplane/kcp/server/informers"
)

const remainingInterval = time.Second

type reconciler struct {
	definitions apiextensionsclient.CustomResourceDefinitionInterface
	metadata    metadata.Interface
	controller  *controller.Controller
}

// New returns the controller. Its keys are definitions; it reads them live, because their names depend on each other.
func New(set *informers.Set, definitions apiextensionsclient.CustomResourceDefinitionInterface, meta metadata.Interface) *controller.Controller {
	r := &reconciler{definitions: definitions, metadata: meta}
	// One worker: two definitions of a cluster must not get the same name.
	r.controller = controller.New("customresourcedefinition", 1, r.reconcile)
	set.CustomResourceDefinitions.AddHandler(func(old, obj runtime.Object) {
		if obj != nil {
			r.enqueue(obj)
			return
		}
		// Names have become free.
		gone := old.(*apiextensionsv1.CustomResourceDefinition)
		key, err := informers.KeyOf(gone)
		if err != nil {
			return
		}
		waiting, err := set.CustomResourceDefinitions.List(key.Cluster)
		if err != nil {
			return
		}
		for _, crd := range waiting {
			if crd.Spec.Group == gone.Spec.Group && !apiextensionshelpers.IsCRDConditionTrue(crd, apiextensionsv1.NamesAccepted) {
				r.enqueue(crd)
			}
		}
	})
	return r.controller
}

func (r *reconciler) enqueue(obj runtime.Object) {
	if key, err := informers.KeyOf(obj); err == nil {
		r.controller.Enqueue(key)
	}
}

func (r *reconciler) reconcile(ctx context.Context, key informers.Key) error {
	crd, err := r.definitions.Get(ctx, key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if crd.DeletionTimestamp != nil {
		return r.finalize(ctx, key, crd)
	}
	others, err := r.others(ctx, crd)
	if err != nil {
		return err
	}
	wanted := next(crd, others)
	if sameStatus(crd, wanted) {
		return nil
	}
	_, err = r.definitions.UpdateStatus(ctx, wanted, metav1.UpdateOptions{})
	return err
}

// others returns the definitions of the cluster, if crd asks for names that it does not have yet.
func (r *reconciler) others(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	if reflect.DeepEqual(crd.Spec.Names, crd.Status.AcceptedNames) {
		return nil, nil
	}
	list, err := r.definitions.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	others := make([]*apiextensionsv1.CustomResourceDefinition, len(list.Items))
	for i := range list.Items {
		others[i] = &list.Items[i]
	}
	return others, nil
}

// sameStatus compares all but the times of conditions.
func sameStatus(a, b *apiextensionsv1.CustomResourceDefinition) bool {
	return reflect.DeepEqual(a.Status.AcceptedNames, b.Status.AcceptedNames) && len(a.Status.Conditions) == len(b.Status.Conditions) &&
		func() bool {
			for _, c := range b.Status.Conditions {
				if !apiextensionshelpers.IsCRDConditionEquivalent(&c, apiextensionshelpers.FindCRDCondition(a, c.Type)) {
					return false
				}
			}
			return true
		}()
}

// finalize deletes the instances of a definition, and gives the definition free when there are none.
func (r *reconciler) finalize(ctx context.Context, key informers.Key, crd *apiextensionsv1.CustomResourceDefinition) error {
	if !apiextensionshelpers.CRDHasFinalizer(crd, apiextensionsv1.CustomResourceCleanupFinalizer) {
		return nil
	}
	if !apiextensionshelpers.IsCRDConditionTrue(crd, apiextensionsv1.Terminating) {
		apiextensionshelpers.SetCRDCondition(crd, condition(apiextensionsv1.Terminating, true, "InstanceDeletionInProgress", "CustomResource deletion is in progress"))
		var err error
		if crd, err = r.definitions.UpdateStatus(ctx, crd, metav1.UpdateOptions{}); err != nil {
			return ignoreNotFound(err)
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
	apiextensionshelpers.CRDRemoveFinalizer(crd, apiextensionsv1.CustomResourceCleanupFinalizer)
	_, err = r.definitions.UpdateStatus(ctx, crd, metav1.UpdateOptions{})
	return ignoreNotFound(err)
}

func (r *reconciler) deleteInstances(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) (remaining bool, err error) {
	version := ""
	for _, v := range crd.Spec.Versions {
		if v.Served && (version == "" || v.Storage) {
			version = v.Name
		}
	}
	if version == "" || !apiextensionshelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
		return false, nil // nothing could ever be stored, or nothing can be reached
	}
	left, err := instances.Delete(ctx, r.metadata, schema.GroupVersionResource{Group: crd.Spec.Group, Version: version, Resource: crd.Status.AcceptedNames.Plural}, metav1.DeleteOptions{})
	return left > 0, ignoreNotFound(err)
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
