package customresourcedefinition

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/metadata"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/internal/controllers/apibinding"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Inputs of both controllers.
type Inputs struct {
	Set *informers.Set
	// Definitions and Metadata reach the cluster in each call's context.
	Definitions apiextensionsclient.CustomResourceDefinitionInterface
	Metadata    metadata.Interface
	Remains     Remains
	// Serves returns the resources that a cluster serves and that are not built in. BuiltIn returns the names of the built-in resources of a
	// group.
	Serves  func(logicalcluster.Name) []customresources.Installed
	BuiltIn func(group string) []apiextensionsv1.CustomResourceDefinitionNames
}

type reconciler struct {
	Inputs
	controller *runner.Controller
	// written are definitions as this controller wrote them, until the informer has them. The reconciliation of the next definition must
	// see which names are in use.
	written map[informers.Key]*apiextensionsv1.CustomResourceDefinition
}

// New returns the controller that accepts the names of definitions. Its keys are definitions.
func New(in Inputs) *runner.Controller {
	r := &reconciler{Inputs: in, written: map[informers.Key]*apiextensionsv1.CustomResourceDefinition{}}
	// One worker: two definitions of a cluster must not get the same name.
	r.controller = runner.New("customresourcedefinition", 1, r.reconcile)
	in.Set.CustomResourceDefinitions.AddHandler(func(old, obj runtime.Object) {
		if obj != nil {
			r.enqueue(obj.(*apiextensionsv1.CustomResourceDefinition))
			return
		}
		deleted := old.(*apiextensionsv1.CustomResourceDefinition)
		if key, err := informers.KeyOf(deleted); err == nil {
			r.controller.Enqueue(key) // to remove it from written
			r.enqueueGroup(key.Cluster, deleted.Spec.Group)
		}
	})
	in.Set.APIBindings.AddHandler(func(old, obj runtime.Object) {
		before, _ := old.(*apisv1alpha2.APIBinding)
		now, _ := obj.(*apisv1alpha2.APIBinding)
		if before == nil || (now != nil && len(now.Status.BoundResources) >= len(before.Status.BoundResources)) {
			return
		}
		for _, resource := range before.Status.BoundResources {
			r.enqueueGroup(logicalcluster.Of(before), resource.Group)
		}
	})
	return r.controller
}

// enqueueGroup enqueues the definitions that wait for names in a group, of which some may be free now.
func (r *reconciler) enqueueGroup(cluster logicalcluster.Name, group string) {
	definitions, err := r.Set.CustomResourceDefinitions.List(cluster)
	if err != nil {
		return
	}
	for _, crd := range definitions {
		if crd.Spec.Group == group && !apiextensionshelpers.IsCRDConditionTrue(crd, apiextensionsv1.NamesAccepted) {
			r.enqueue(crd)
		}
	}
}

func (r *reconciler) enqueue(crd *apiextensionsv1.CustomResourceDefinition) {
	if key, err := informers.KeyOf(crd); err == nil && crd.DeletionTimestamp == nil {
		r.controller.Enqueue(key)
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

// latest returns crd, or the definition as this controller wrote it if that is newer.
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

// write stores the status and the finalizers of a definition that is unchanged since it was read. It sends nothing else: the informer drops
// annotations, and an update of the status replaces them.
func (in Inputs) write(ctx context.Context,
	crd *apiextensionsv1.CustomResourceDefinition) (*apiextensionsv1.CustomResourceDefinition, error) {
	patch, err := statusPatch(crd)
	if err != nil {
		return nil, err
	}
	return in.Definitions.Patch(ctx, crd.Name, types.JSONPatchType, patch, metav1.PatchOptions{}, "status")
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

// inUse returns the names that are in use in the group and cluster of crd, by other definitions, bound resources and the server. It returns
// nothing if crd has all names that its spec requests.
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

// holder returns the binding that has locked the resource of a definition, and the empty string if none has. A binding locks a resource
// before the resource is served.
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
		return "", runner.IgnoreNotFound(err) // the lock of a deleted binding does not count
	}
	return binding, nil
}

// sameStatus reports whether two definitions have equal statuses, apart from the times of conditions.
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
