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
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/metadata"

	"github.com/kcplane/kcp/server/controllers/controller"
	"github.com/kcplane/kcp/server/controllers/instances"
	"github.com/kcplane/kcp/server/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

const remainingInterval = time.Second

type reconciler struct {
	definitions apiextensionsclient.CustomResourceDefinitionInterface
	lister      informers.Lister[*apiextensionsv1.CustomResourceDefinition]
	metadata    metadata.Interface
	controller  *controller.Controller
	// written are definitions as this controller wrote them, until the informer has them: the next one must know which
	// names are taken.
	written map[informers.Key]*apiextensionsv1.CustomResourceDefinition
}

// New returns the controller. Its keys are definitions.
func New(set *informers.Set, definitions apiextensionsclient.CustomResourceDefinitionInterface, meta metadata.Interface) *controller.Controller {
	r := &reconciler{
		definitions: definitions, lister: set.CustomResourceDefinitions, metadata: meta,
		written: map[informers.Key]*apiextensionsv1.CustomResourceDefinition{},
	}
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
		r.controller.Enqueue(key) // nothing is known of it any more
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
	crd, err := r.lister.Get(key.Cluster, "", key.Name)
	if apierrors.IsNotFound(err) {
		delete(r.written, key)
		return nil
	}
	if err != nil {
		return err
	}
	crd = r.latest(key, crd)
	if crd.DeletionTimestamp != nil {
		return r.finalize(ctx, key, crd)
	}
	others, err := r.others(key.Cluster, crd)
	if err != nil {
		return err
	}
	wanted := next(crd, others)
	if sameStatus(crd, wanted) {
		return nil
	}
	_, err = r.write(ctx, key, wanted)
	return controller.IgnoreNotFound(err)
}

// latest returns crd, or what was written of it if that is newer.
func (r *reconciler) latest(key informers.Key, crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	written, ok := r.written[key]
	if !ok {
		return crd
	}
	if age, err := resourceversion.CompareResourceVersion(written.ResourceVersion, crd.ResourceVersion); err == nil && age > 0 {
		return written
	}
	delete(r.written, key)
	return crd
}

// write stores the status of a definition that nobody changed meanwhile.
func (r *reconciler) write(ctx context.Context, key informers.Key, crd *apiextensionsv1.CustomResourceDefinition) (*apiextensionsv1.CustomResourceDefinition, error) {
	written, err := r.definitions.UpdateStatus(ctx, crd, metav1.UpdateOptions{})
	if err != nil {
		return nil, err
	}
	r.written[key] = written
	return written, nil
}

// others returns the definitions of the cluster, if crd asks for names that it does not have yet.
func (r *reconciler) others(cluster logicalcluster.Name, crd *apiextensionsv1.CustomResourceDefinition) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	if reflect.DeepEqual(crd.Spec.Names, crd.Status.AcceptedNames) {
		return nil, nil
	}
	others, err := r.lister.List(cluster)
	for i, other := range others {
		others[i] = r.latest(informers.Key{Cluster: cluster, Name: other.Name}, other)
	}
	return others, err
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
		crd = crd.DeepCopy()
		apiextensionshelpers.SetCRDCondition(crd, condition(apiextensionsv1.Terminating, true, "InstanceDeletionInProgress", "CustomResource deletion is in progress"))
		var err error
		if crd, err = r.write(ctx, key, crd); err != nil {
			return controller.IgnoreNotFound(err)
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
	_, err = r.write(ctx, key, crd)
	return controller.IgnoreNotFound(err)
}

func (r *reconciler) deleteInstances(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) (remaining bool, err error) {
	version := instances.Version(crd)
	if version == "" || !apiextensionshelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
		return false, nil // nothing could ever be stored, or nothing can be reached
	}
	left, err := instances.Delete(ctx, r.metadata, schema.GroupVersionResource{Group: crd.Spec.Group, Version: version, Resource: crd.Status.AcceptedNames.Plural}, metav1.DeleteOptions{})
	return left > 0, controller.IgnoreNotFound(err)
}
