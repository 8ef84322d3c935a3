// Package mount copies the URL and the readiness of the server behind a mounted workspace from the object that the workspace is mounted
// from. It handles the events of the garbage collector instead of watching these objects, and does nothing for workspaces that are not
// mounted.
package mount

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"

	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/informers"
	"github.com/kcplane/kcp/server/internal/request/mount"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Inputs of the controller. Clients, mappers and storage reach the cluster in each call's context.
type Inputs struct {
	Set        *informers.Set
	Dynamic    dynamic.Interface
	RESTMapper func(context.Context) (meta.RESTMapper, error)
	// Hosts are the hosts that mounts may have.
	Hosts *mount.Hosts
	// Workspaces stores the result.
	Workspaces storage.Objects
	// Objects are watched.
	Objects *runner.ObjectEvents
}

type reconciler struct {
	Inputs
	controller *runner.Controller
	enqueue    func(informers.Key)

	mu sync.Mutex
	// mounted are the workspaces that are mounted from an object.
	mounted map[object]sets.Set[informers.Key]
}

// object identifies an object that a workspace is mounted from. Kinds and versions are left out: an event for another object of that name
// only costs a reconciliation.
type object struct {
	cluster                logicalcluster.Name
	group, namespace, name string
}

// New returns the controller. Its keys are Workspaces.
func New(in Inputs) *runner.Controller { return newReconciler(in).controller }

func newReconciler(in Inputs) *reconciler {
	r := &reconciler{Inputs: in, mounted: map[object]sets.Set[informers.Key]{}}
	r.controller = runner.New("mount", 2, r.reconcile)
	r.enqueue = r.controller.Enqueue
	in.Set.Workspaces.AddHandler(r.workspaceChanged)
	in.Objects.AddHandler(r)
	return r
}

// workspaceChanged is an informers.Handler.
func (r *reconciler) workspaceChanged(old, obj runtime.Object) {
	if ws, ok := old.(*tenancyv1alpha1.Workspace); ok && ws.Spec.Mount != nil {
		r.forget(ws)
	}
	if ws, ok := obj.(*tenancyv1alpha1.Workspace); ok && ws.Spec.Mount != nil {
		r.remember(ws)
	}
}

func (r *reconciler) remember(ws *tenancyv1alpha1.Workspace) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o, key := mountedFrom(ws), keyOf(ws)
	if r.mounted[o] == nil {
		r.mounted[o] = sets.New[informers.Key]()
	}
	r.mounted[o].Insert(key)
	r.enqueue(key)
}

func (r *reconciler) forget(ws *tenancyv1alpha1.Workspace) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := mountedFrom(ws)
	if r.mounted[o].Delete(keyOf(ws)); len(r.mounted[o]) == 0 {
		delete(r.mounted, o)
	}
}

func keyOf(ws *tenancyv1alpha1.Workspace) informers.Key {
	return informers.Key{Cluster: logicalcluster.Of(ws), Name: ws.Name}
}

func mountedFrom(ws *tenancyv1alpha1.Workspace) object {
	ref := ws.Spec.Mount.Reference
	return object{logicalcluster.Of(ws), schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).Group, ref.Namespace, ref.Name}
}

// Changed implements runner.ObjectHandler.
func (r *reconciler) Changed(resource schema.GroupVersionResource, obj metav1.Object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.mounted) == 0 {
		return
	}
	for key := range r.mounted[object{logicalcluster.Of(obj), resource.Group, obj.GetNamespace(), obj.GetName()}] {
		r.enqueue(key)
	}
}

// Deleted implements runner.ObjectHandler.
func (r *reconciler) Deleted(resource schema.GroupVersionResource, obj metav1.Object) {
	r.Changed(resource, obj)
}

// Relisted implements runner.ObjectHandler.
func (r *reconciler) Relisted(resource schema.GroupVersionResource) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for o, keys := range r.mounted {
		if o.group != resource.Group {
			continue
		}
		for key := range keys {
			r.enqueue(key)
		}
	}
}

func (r *reconciler) reconcile(ctx context.Context, key informers.Key) error {
	ws, err := r.Set.Workspaces.Get(key.Cluster, "", key.Name)
	if err != nil || ws.Spec.Mount == nil || ws.DeletionTimestamp != nil {
		return runner.IgnoreNotFound(err)
	}
	seen, err := r.observe(ctx, ws.Spec.Mount.Reference)
	if err != nil {
		return err
	}
	err = r.Workspaces.Update(ctx, key.Name, &tenancyv1alpha1.Workspace{}, func(obj runtime.Object) error {
		if live := obj.(*tenancyv1alpha1.Workspace); live.UID == ws.UID && live.DeletionTimestamp == nil {
			seen.show(live)
		}
		return nil
	})
	return runner.IgnoreNotFound(err)
}

// observe reads the object that a workspace is mounted from.
func (r *reconciler) observe(ctx context.Context, ref tenancyv1alpha1.ObjectReference) (observation, error) {
	mapper, err := r.RESTMapper(ctx)
	if err != nil {
		return observation{}, err
	}
	gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	switch {
	case meta.IsNoMatchError(err):
		return missing("the kind %s of %s is not served in this workspace", ref.Kind, ref.APIVersion), nil
	case err != nil:
		return observation{}, err
	case (mapping.Scope.Name() == meta.RESTScopeNameNamespace) != (ref.Namespace != ""):
		return missing("spec.mount.ref.namespace has to be given for kinds with namespaces, and for no others; %s has the scope %q", ref.Kind,
			mapping.Scope.Name()), nil
	}
	obj, err := r.Dynamic.Resource(mapping.Resource).Namespace(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return missing("there is no %s %s", ref.Kind, nameOf(ref)), nil
	}
	if err != nil {
		return observation{}, fmt.Errorf("reading %s %s: %w", ref.Kind, nameOf(ref), err)
	}
	return r.evaluate(ref, obj), nil
}

func nameOf(ref tenancyv1alpha1.ObjectReference) string {
	if ref.Namespace == "" {
		return ref.Name
	}
	return ref.Namespace + "/" + ref.Name
}

// evaluate returns the observation of the server that an object describes.
func (r *reconciler) evaluate(ref tenancyv1alpha1.ObjectReference, obj *unstructured.Unstructured) observation {
	phase, _, _ := unstructured.NestedString(obj.Object, "status", "phase")
	url, _, _ := unstructured.NestedString(obj.Object, "status", "URL")
	of := ref.Kind + " " + nameOf(ref)
	switch {
	case obj.GetDeletionTimestamp() != nil:
		return notReady("%s is being deleted", of)
	case phase != phaseReady:
		return notReady("%s has the status.phase %q, and not %q", of, shortened(phase), phaseReady)
	case url == "":
		return notReady("%s has no status.URL", of)
	}
	if _, _, err := r.Hosts.Check(url); err != nil {
		return notReady("%s has the status.URL %q, which is not used: %v", of, shortened(url), err)
	}
	return observation{url: url}
}

// maxQuoted is how many bytes of a value of an object a condition quotes. Many workspaces may be mounted from one object.
const maxQuoted = 256

func shortened(value string) string {
	if len(value) > maxQuoted {
		return value[:maxQuoted] + "…"
	}
	return value
}
