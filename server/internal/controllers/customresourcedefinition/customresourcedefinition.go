package customresourcedefinition

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/metadata"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/internal/apis/instances"
	"github.com/kcplane/kcp/server/internal/controllers/apibinding"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

const remainingInterval = time.Second

// Inputs of the controller.
type Inputs struct {
	Set *informers.Set
	// Definitions and Metadata reach the cluster in each call's context.
	Definitions apiextensionsclient.CustomResourceDefinitionInterface
	Metadata    metadata.Interface
	Remains     Remains
	// Serves returns what a cluster serves that is not built in, and BuiltIn the names of what is built into a group.
	Serves  func(logicalcluster.Name) []customresources.Installed
	BuiltIn func(group string) []apiextensionsv1.CustomResourceDefinitionNames
}

// Remains deletes the objects that the cluster of ctx stores of a custom resource, also those that clients do not reach. See
// storage.Remains.
type Remains interface {
	Delete(ctx context.Context, resource schema.GroupResource, identity string,
		waits func(*unstructured.Unstructured) bool) (left int, err error)
}

type reconciler struct {
	Inputs
	// names accepts the names of definitions, deletion deletes the instances of those that are being deleted.
	names, deletion *runner.Controller
	// written are definitions as this controller wrote them, until the informer has them: the next one must know which
	// names are taken.
	written map[informers.Key]*apiextensionsv1.CustomResourceDefinition
}

// Controllers run together.
type Controllers []*runner.Controller

// Run works until ctx ends, and returns when the last worker is done.
func (c Controllers) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, one := range c {
		running.Go(func() { one.Run(ctx) })
	}
	running.Wait()
}

// New returns the controllers. Their keys are definitions.
func New(in Inputs) Controllers {
	r := &reconciler{Inputs: in, written: map[informers.Key]*apiextensionsv1.CustomResourceDefinition{}}
	// One worker: two definitions of a cluster must not get the same name.
	r.names = runner.New("customresourcedefinition", 1, r.reconcile)
	// Webhooks and conversions of tenants take part in it.
	r.deletion = runner.New("customresourcedefinition-deletion", 8, r.finalize)
	in.Set.CustomResourceDefinitions.AddHandler(func(old, obj runtime.Object) {
		if obj != nil {
			r.enqueue(obj)
			return
		}
		gone := old.(*apiextensionsv1.CustomResourceDefinition)
		if key, err := informers.KeyOf(gone); err == nil {
			r.names.Enqueue(key) // nothing is known of it any more
			r.freed(key.Cluster, gone.Spec.Group)
		}
	})
	in.Set.APIBindings.AddHandler(func(old, obj runtime.Object) {
		before, _ := old.(*apisv1alpha2.APIBinding)
		now, _ := obj.(*apisv1alpha2.APIBinding)
		if before == nil || (now != nil && len(now.Status.BoundResources) >= len(before.Status.BoundResources)) {
			return
		}
		for _, resource := range before.Status.BoundResources {
			r.freed(logicalcluster.Of(before), resource.Group)
		}
	})
	return Controllers{r.names, r.deletion}
}

// freed looks again after the definitions that wait for names in a group.
func (r *reconciler) freed(cluster logicalcluster.Name, group string) {
	waiting, err := r.Set.CustomResourceDefinitions.List(cluster)
	if err != nil {
		return
	}
	for _, crd := range waiting {
		if crd.Spec.Group == group && !apiextensionshelpers.IsCRDConditionTrue(crd, apiextensionsv1.NamesAccepted) {
			r.enqueue(crd)
		}
	}
}

func (r *reconciler) enqueue(obj runtime.Object) {
	key, err := informers.KeyOf(obj)
	switch {
	case err != nil:
	case obj.(metav1.Object).GetDeletionTimestamp() != nil:
		r.deletion.Enqueue(key)
	default:
		r.names.Enqueue(key)
	}
}

func (r *reconciler) reconcile(ctx context.Context, key informers.Key) error {
	crd, err := r.Set.CustomResourceDefinitions.Get(key.Cluster, "", key.Name)
	if apierrors.IsNotFound(err) {
		delete(r.written, key)
		return nil
	}
	if err != nil {
		return err
	}
	crd = r.latest(key, crd)
	if crd.DeletionTimestamp != nil {
		return nil
	}
	inUse, err := r.inUse(key.Cluster, crd)
	if err != nil {
		return err
	}
	wanted := next(crd, inUse)
	if sameStatus(crd, wanted) {
		return nil
	}
	written, err := r.write(ctx, wanted)
	if err == nil {
		r.written[key] = written
	}
	return runner.IgnoreNotFound(err)
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

// write stores the status and the finalizers of a definition that nobody changed meanwhile. It sends nothing else: the informer drops
// annotations, and an update of the status replaces them.
func (r *reconciler) write(ctx context.Context,
	crd *apiextensionsv1.CustomResourceDefinition) (*apiextensionsv1.CustomResourceDefinition, error) {
	patch, err := statusPatch(crd)
	if err != nil {
		return nil, err
	}
	return r.Definitions.Patch(ctx, crd.Name, types.JSONPatchType, patch, metav1.PatchOptions{}, "status")
}

// statusPatch returns the JSON patch that replaces status and finalizers, if the version of the definition is still that of crd.
func statusPatch(crd *apiextensionsv1.CustomResourceDefinition) ([]byte, error) {
	type set struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	return json.Marshal([]set{
		{"add", "/metadata/resourceVersion", crd.ResourceVersion}, {"add", "/metadata/finalizers", crd.Finalizers},
		{"add", "/status", crd.Status},
	})
}

// inUse returns the names that others have in the group and cluster of crd, if crd asks for names that it does not have yet: other
// definitions, what is bound, and the server itself.
func (r *reconciler) inUse(cluster logicalcluster.Name, crd *apiextensionsv1.CustomResourceDefinition) ([]inUse, error) {
	if reflect.DeepEqual(crd.Spec.Names, crd.Status.AcceptedNames) {
		return nil, nil
	}
	var all []inUse
	definitions, err := r.Set.CustomResourceDefinitions.List(cluster)
	if err != nil {
		return nil, err
	}
	for _, other := range definitions {
		if other.Name != crd.Name && other.Spec.Group == crd.Spec.Group {
			all = append(all, inUse{names: r.latest(informers.Key{Cluster: cluster, Name: other.Name}, other).Status.AcceptedNames})
		}
	}
	for _, names := range r.BuiltIn(crd.Spec.Group) {
		all = append(all, inUse{names, " by the server"})
	}
	for _, i := range r.Serves(cluster) {
		switch {
		case i.CRD.Spec.Group != crd.Spec.Group:
		case i.IsSystem():
			all = append(all, inUse{i.CRD.Status.AcceptedNames, " by the server"})
		case i.Binding != "":
			all = append(all, inUse{i.CRD.Status.AcceptedNames, byBinding(i.Binding)})
		}
	}
	binding, err := r.holder(cluster, crd)
	if binding != "" {
		all = append(all, inUse{apiextensionsv1.CustomResourceDefinitionNames{Plural: crd.Spec.Names.Plural}, byBinding(binding)})
	}
	return all, err
}

func byBinding(name string) string { return fmt.Sprintf(" by APIBinding %q", name) }

// holder returns the binding that has taken the resource of a definition, empty if there is none. A binding takes a resource before it
// is served.
func (r *reconciler) holder(cluster logicalcluster.Name, crd *apiextensionsv1.CustomResourceDefinition) (binding string, err error) {
	lc, err := r.Set.LogicalClusters.Get(cluster, "", corev1alpha1.LogicalClusterName)
	if err != nil {
		return "", runner.IgnoreNotFound(err)
	}
	key := customresources.ResourceName(crd.Spec.Names.Plural, crd.Spec.Group)
	if binding = apibinding.Holder(lc, key); binding == "" {
		return "", nil
	}
	if _, err := r.Set.APIBindings.Get(cluster, "", binding); err != nil {
		return "", runner.IgnoreNotFound(err) // it has left what it held
	}
	return binding, nil
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

// finalize deletes the instances of a definition that is being deleted, and lets the definition go when there are none.
func (r *reconciler) finalize(ctx context.Context, key informers.Key) error {
	crd, err := r.Set.CustomResourceDefinitions.Get(key.Cluster, "", key.Name)
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
		r.deletion.EnqueueAfter(key, remainingInterval)
		return nil
	}
	crd = crd.DeepCopy()
	apiextensionshelpers.CRDRemoveFinalizer(crd, apiextensionsv1.CustomResourceCleanupFinalizer)
	_, err = r.write(ctx, crd)
	return runner.IgnoreNotFound(err)
}

func (r *reconciler) deleteInstances(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) (remaining bool, err error) {
	if !apiextensionshelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
		return false, nil // nothing could ever be stored
	}
	of := schema.GroupResource{Group: crd.Spec.Group, Resource: crd.Spec.Names.Plural}
	owns := func() bool { return r.owns(logicalcluster.Of(crd), crd) }
	version := instances.Version(crd)
	if version == "" && owns() { // a definition of another scope, later, would bring out what clients cannot delete
		_, err := r.Remains.Delete(ctx, of, "", func(*unstructured.Unstructured) bool { return false })
		return false, err
	}
	left, err := instances.DeleteOwn(ctx, r.Metadata, of.WithVersion(version), owns)
	return left > 0, runner.IgnoreNotFound(err)
}

// owns tells whether the objects of the resource that a definition names are those of the definition, and not of a binding or of the
// server.
func (r *reconciler) owns(cluster logicalcluster.Name, crd *apiextensionsv1.CustomResourceDefinition) bool {
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
