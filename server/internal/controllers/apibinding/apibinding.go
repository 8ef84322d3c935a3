// Package apibinding makes the APIs of an export available in the workspace of an APIBinding: it finds the export, copies the schemas,
// assigns names of resources, and deletes the objects of an API with the binding.
package apibinding

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/server/internal/apis/conditions"
	"github.com/kcplane/kcp/server/internal/apis/customresources"
	"github.com/kcplane/kcp/server/internal/apis/discovery"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/internal/tenancy/exports"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// remainingInterval is how often a binding that is being deleted checks for remaining objects at first, maxInterval when they remain for
// long.
const remainingInterval, maxInterval = time.Second, 30 * time.Second

// Inputs of the controller. Clients and storage reach the cluster in each call's context.
type Inputs struct {
	Set     *informers.Set
	Exports *exports.Exports
	// Defaults returns the bindings that a cluster has because of its type.
	Defaults func(*corev1alpha1.LogicalCluster) []*apisv1alpha2.APIBinding
	// Serves returns the resources that a cluster serves.
	Serves func(logicalcluster.Name) []customresources.Installed
	// BuiltIn returns the names of the built-in resources of a group.
	BuiltIn func(group string) []apiextensionsv1.CustomResourceDefinitionNames
	// Resources returns every resource of the cluster of ctx.
	Resources func(ctx context.Context) ([]discovery.Resource, error)
	Metadata  metadata.Interface
	Remains   Remains
	// Bindings, Schemas, Conversions and Clusters store APIBindings, APIResourceSchemas, APIConversions and LogicalClusters.
	Bindings, Schemas, Conversions, Clusters storage.Objects
	Clock                                    clock.PassiveClock
}

// Remains are the objects that the cluster of ctx stores of custom resources, also those that clients do not reach. See storage.Remains.
type Remains interface {
	// Delete deletes the objects of a resource under an identity. It returns how many are left: those with finalizers that wait.
	Delete(ctx context.Context, resource schema.GroupResource, identity string,
		waits func(*unstructured.Unstructured) bool) (left int, err error)
	// Identities returns the identities under which objects of a resource are stored.
	Identities(ctx context.Context, resource schema.GroupResource) ([]string, error)
	// StoredIn returns a version in which an object is stored and which is not known, empty if there is none.
	StoredIn(ctx context.Context, resource schema.GroupResource, identity string, known sets.Set[string]) (version string, err error)
	// Relabel replaces the labels of all objects of a resource under an identity.
	Relabel(ctx context.Context, resource schema.GroupResource, identity string, wanted func(map[string]string) map[string]string) error
}

type reconciler struct {
	Inputs
	controller *runner.Controller

	waiting      *runner.Waiting // for objects of other clusters
	claimChanges *claimChanges
	refusals     *refusals
}

// New returns the controller. Its keys are APIBindings.
func New(in Inputs) *runner.Controller {
	r := &reconciler{Inputs: in, claimChanges: newClaimChanges(), refusals: newRefusals(in.Clock)}
	in.Set.APIBindings.AddHandler(r.claimChanges.changed) // before the binding is reconciled
	r.controller = runner.New("apibinding", 8, r.reconcile)
	r.waiting = runner.NewWaiting(r.controller)
	r.controller.Watch(in.Set.APIBindings.Informer)
	r.controller.WatchMappedForAll(in.Set.APIExports.Informer, func(obj runtime.Object) []informers.Key {
		export := obj.(*apisv1alpha2.APIExport)
		return runner.KeysOf(in.Exports.BindingsOf(logicalcluster.Of(export), export.Name))
	})
	in.Set.APIExports.AddHandlerForAll(func(_, _ runtime.Object) { r.waiting.Retry() })
	for _, ofSchemas := range []*informers.Informer{in.Set.APIResourceSchemas.Informer, in.Set.APIConversions.Informer} {
		r.controller.WatchMappedForAll(ofSchemas, func(obj runtime.Object) []informers.Key {
			schema, err := informers.KeyOf(obj)
			if err != nil {
				return nil
			}
			var keys []informers.Key
			for _, export := range in.Exports.WithSchema(schema.Cluster, schema.Name) {
				keys = append(keys, runner.KeysOf(in.Exports.BindingsOf(logicalcluster.Of(export), export.Name))...)
			}
			return keys
		})
	}
	// A name that is free again may be requested by another binding of the cluster.
	freed := func(old, obj runtime.Object) {
		if obj != nil {
			return
		}
		if key, err := informers.KeyOf(old); err == nil {
			for _, other := range runner.KeysOf(in.Exports.BindingsIn(key.Cluster)) {
				r.controller.Enqueue(other)
			}
		}
	}
	in.Set.APIBindings.AddHandler(freed)
	in.Set.CustomResourceDefinitions.AddHandler(freed)
	return r.controller
}

func (r *reconciler) reconcile(ctx context.Context, key informers.Key) error {
	binding, err := r.Set.APIBindings.Get(key.Cluster, "", key.Name)
	if apierrors.IsNotFound(err) {
		r.refusals.forget(key)
		return r.recreate(ctx, key)
	}
	if err != nil {
		return err
	}
	if binding.DeletionTimestamp != nil {
		live := &apisv1alpha2.APIBinding{}
		if err := r.Bindings.Get(ctx, key.Name, live); err != nil {
			return runner.IgnoreNotFound(err)
		}
		if err := runner.Same(live, binding); err != nil {
			return runner.IgnoreNotFound(err)
		}
		return r.finalize(ctx, key, live)
	}
	if changed, err := r.maintain(ctx, binding); changed || err != nil {
		return err
	}
	status := binding.Status.DeepCopy()
	if status.Phase == "" {
		status.Phase = apisv1alpha2.APIBindingPhaseBinding
	}
	if err := r.bind(ctx, key, binding, status); err != nil {
		return err
	}
	r.applyClaims(ctx, key, binding, status)
	summarize(status)
	return r.commit(ctx, binding, status)
}

// commit writes a status and annotations of the export, if they have changed.
func (r *reconciler) commit(ctx context.Context, binding *apisv1alpha2.APIBinding, status *apisv1alpha2.APIBindingStatus) error {
	if reflect.DeepEqual(&binding.Status, status) && maps.Equal(binding.Annotations, r.annotationsOf(binding)) {
		return nil
	}
	err := r.Bindings.Update(ctx, binding.Name, &apisv1alpha2.APIBinding{}, func(obj runtime.Object) error {
		live := obj.(*apisv1alpha2.APIBinding)
		if err := runner.Same(live, binding); err != nil {
			return err
		}
		live.Status, live.Annotations = *status, r.annotationsOf(live)
		return nil
	})
	return runner.IgnoreNotFound(err)
}

func condition(status *apisv1alpha2.APIBindingStatus, kind string, problem error, reason string) {
	conditions.Set(&status.Conditions, conditions.FromError(kind, reason, problem))
}

// isTrue reports whether a condition is true.
func isTrue(status *apisv1alpha2.APIBindingStatus, kind string) bool {
	i := slices.IndexFunc(status.Conditions, func(c corev1alpha1.Condition) bool { return c.Type == kind })
	return i >= 0 && status.Conditions[i].Status == metav1.ConditionTrue
}

// summarize sets the condition Ready, and the phase, which stays Bound.
func summarize(status *apisv1alpha2.APIBindingStatus) {
	ready := corev1alpha1.Condition{Type: apisv1alpha2.APIBindingReady, Status: metav1.ConditionTrue}
	for _, c := range status.Conditions {
		if c.Type == apisv1alpha2.APIBindingInitialBindingCompleted && c.Status != metav1.ConditionTrue {
			ready = c
			ready.Type = apisv1alpha2.APIBindingReady
		}
	}
	conditions.Set(&status.Conditions, ready)
	if isTrue(status, apisv1alpha2.APIBindingInitialBindingCompleted) {
		status.Phase = apisv1alpha2.APIBindingPhaseBound
	}
}

// setCompleted sets the two conditions of progress. The first one never becomes false again.
func setCompleted(status *apisv1alpha2.APIBindingStatus, problem error, reason string) {
	if !isTrue(status, apisv1alpha2.APIBindingInitialBindingCompleted) {
		condition(status, apisv1alpha2.APIBindingInitialBindingCompleted, problem, reason)
	}
	condition(status, apisv1alpha2.APIBindingUpToDate, problem, reason)
}

// bind brings a status up to date. It returns errors that must be retried.
func (r *reconciler) bind(ctx context.Context, key informers.Key, binding *apisv1alpha2.APIBinding,
	status *apisv1alpha2.APIBindingStatus) error {
	export, wanted, err := r.offered(key, binding.Spec.Reference.Export, status)
	if err != nil || export == nil {
		return err
	}
	if r.Exports.IsSystem(export) {
		r.resolveSystem(key, export, status, wanted)
		return nil
	}
	taken, err := r.acquire(ctx, key, binding, wanted)
	if apierrors.IsNotFound(err) {
		setCompleted(status, fmt.Errorf("the LogicalCluster of this workspace is missing"), apisv1alpha2.ReasonLogicalClusterNotFound)
		return nil
	}
	if err != nil {
		return err
	}
	return r.resolve(ctx, key, binding, export, status, wanted, taken)
}

// offered returns the export of a binding and what it offers. If the export is missing or not usable, it returns nil, and the status has
// the reason.
func (r *reconciler) offered(key informers.Key, reference *apisv1alpha2.ExportBindingReference,
	status *apisv1alpha2.APIBindingStatus) (*apisv1alpha2.APIExport, []offer, error) {
	invalid := func(problem error, reason string) {
		condition(status, apisv1alpha2.APIBindingExportValid, problem, reason)
		if !isTrue(status, apisv1alpha2.APIBindingInitialBindingCompleted) {
			condition(status, apisv1alpha2.APIBindingInitialBindingCompleted, problem, apisv1alpha2.ReasonWaitingForEstablished)
		}
		r.waiting.Add(key)
		if _, err := r.Exports.Find(key.Cluster, *reference); err == nil && apierrors.IsNotFound(problem) {
			r.controller.EnqueueAfter(key, time.Second) // the informer may have received it before the key was added
		}
	}
	if reference == nil {
		condition(status, apisv1alpha2.APIBindingExportValid, fmt.Errorf("spec.reference.export is missing"),
			apisv1alpha2.ReasonAPIExportInvalidReference)
		return nil, nil, nil
	}
	export, err := r.Exports.Find(key.Cluster, *reference)
	if apierrors.IsNotFound(err) {
		invalid(err, apisv1alpha2.ReasonAPIExportNotFound)
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	from := logicalcluster.Of(export)
	if replaced(status, from) {
		condition(status, apisv1alpha2.APIBindingExportValid,
			fmt.Errorf("the workspace %s is another than the one whose APIExport was bound: delete the binding, and bind again",
				cmp.Or(reference.Path, string(from))),
			apisv1alpha2.ReasonAPIExportInvalidReference)
		return nil, nil, nil
	}
	status.APIExportClusterName = string(from)
	status.ExportPermissionClaims = export.Spec.PermissionClaims
	if export.Status.IdentityHash == "" {
		invalid(fmt.Errorf("APIExport %s|%s has no identity yet", cmp.Or(reference.Path, string(from)), export.Name),
			apisv1alpha2.ReasonMissingIdentityHash)
		return nil, nil, nil
	}
	wanted, err := r.offersOf(from, export)
	if apierrors.IsNotFound(err) {
		invalid(err, apisv1alpha2.ReasonInternalError)
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	condition(status, apisv1alpha2.APIBindingExportValid, nil, "")
	return export, wanted, nil
}

// replaced reports whether an export is in another cluster than the one that was bound: another user owns the path of a deleted provider.
// The workspace has granted access to the deleted provider only.
func replaced(status *apisv1alpha2.APIBindingStatus, from logicalcluster.Name) bool {
	return isTrue(status, apisv1alpha2.APIBindingInitialBindingCompleted) && status.APIExportClusterName != string(from)
}

// offer is a resource of an export, and its schema. The objects of a virtual resource belong to the provider.
type offer struct {
	resource schema.GroupResource
	schema   *apisv1alpha1.APIResourceSchema
	virtual  bool
}

func (o offer) key() string {
	return customresources.ResourceName(o.resource.Resource, o.resource.Group)
}

// offersOf returns the resources that an export offers. A missing schema is a NotFound error.
func (r *reconciler) offersOf(from logicalcluster.Name, export *apisv1alpha2.APIExport) ([]offer, error) {
	var offers []offer
	for _, resource := range export.Spec.Resources {
		s, err := r.Exports.Schema(from, resource.Schema)
		if apierrors.IsNotFound(err) {
			missing := apierrors.NewNotFound(apisv1alpha1.Resource("apiresourceschemas"), resource.Schema)
			missing.ErrStatus.Message = fmt.Sprintf("APIResourceSchema %s of APIExport %s is missing", resource.Schema, export.Name)
			return nil, missing
		}
		if err != nil {
			return nil, err
		}
		offers = append(offers, offer{schema.GroupResource{Group: resource.Group, Resource: resource.Name}, s, resource.Storage.Virtual != nil})
	}
	return offers, nil
}

// resolve copies the schemas of the offers that the binding holds, and lists them in the status.
func (r *reconciler) resolve(
	ctx context.Context, key informers.Key, binding *apisv1alpha2.APIBinding, export *apisv1alpha2.APIExport,
	status *apisv1alpha2.APIBindingStatus, offers []offer, taken map[string]bool,
) error {
	served := r.Serves(key.Cluster)
	var skipped []string
	for _, o := range offers {
		if !taken[o.key()] {
			skipped = append(skipped, o.key())
			continue
		}
		if problem := conflict(o.schema, served, r.BuiltIn(o.schema.Spec.Group), binding.Name); problem != nil {
			setCompleted(status, problem, apisv1alpha2.ReasonNamingConflicts)
			return nil
		}
		if o.virtual && stored(status, o.resource) {
			setCompleted(status, fmt.Errorf("the workspace has stored objects of %s, of which the export shows its provider's now: delete the "+
				"binding, and bind again", o.key()),
				apisv1alpha2.ReasonNamingConflicts)
			return nil
		}
		problem, err := r.unreachable(ctx, key, status, o, export.Status.IdentityHash)
		if err != nil {
			return err
		}
		if problem != nil {
			setCompleted(status, problem, apisv1alpha2.ReasonNamingConflicts)
			return nil
		}
		if err := r.copySchema(ctx, o.schema); err != nil {
			if apierrors.IsInvalid(err) {
				setCompleted(status, err, apisv1alpha2.ReasonAPIResourceSchemaInvalid)
				return nil
			}
			return err
		}
		upsert(status, o.bound(export.Status.IdentityHash))
	}
	if len(skipped) > 0 {
		setCompleted(status, skippedError(skipped), apisv1alpha2.ReasonNamingConflicts)
		return nil
	}
	setCompleted(status, nil, "")
	return nil
}

// skippedError lists resources with another holder.
type skippedError []string

func (e skippedError) Error() string {
	return "Unable to bind APIs because they are bound by other APIBindings or CRDs: " + strings.Join(e, ", ")
}
