// Package mount keeps workspaces that are mounted in step with the objects that they are mounted from: these tell where the
// server behind a workspace is, and whether it is ready. It watches nothing of its own but hears of changes from the garbage
// collector, and does nothing for workspaces that are not mounted.
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
	// Hosts are where mounts may lead.
	Hosts *mount.Hosts
	// Workspaces stores the result.
	Workspaces storage.Objects
}

// Controller is the controller; its keys are Workspaces. It implements garbagecollector.Observer.
type Controller struct {
	*runner.Controller
	Inputs
	enqueue func(informers.Key)

	mu sync.Mutex
	// mounted are the workspaces that are mounted from an object.
	mounted map[object]sets.Set[informers.Key]
}

// object identifies what a workspace is mounted from. Kinds and versions are left out: an event for another object of that
// name costs no more than a look.
type object struct {
	cluster                logicalcluster.Name
	group, namespace, name string
}

// New returns the controller.
func New(in Inputs) *Controller {
	c := &Controller{Inputs: in, mounted: map[object]sets.Set[informers.Key]{}}
	c.Controller = runner.New("mount", 2, c.reconcile)
	c.enqueue = c.Enqueue
	in.Set.Workspaces.AddHandler(c.workspaceChanged)
	return c
}

// workspaceChanged is an informers.Handler.
func (c *Controller) workspaceChanged(old, obj runtime.Object) {
	if ws, ok := old.(*tenancyv1alpha1.Workspace); ok && ws.Spec.Mount != nil {
		c.forget(ws)
	}
	if ws, ok := obj.(*tenancyv1alpha1.Workspace); ok && ws.Spec.Mount != nil {
		c.remember(ws)
	}
}

func (c *Controller) remember(ws *tenancyv1alpha1.Workspace) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, key := mountedFrom(ws), keyOf(ws)
	if c.mounted[o] == nil {
		c.mounted[o] = sets.New[informers.Key]()
	}
	c.mounted[o].Insert(key)
	c.enqueue(key)
}

func (c *Controller) forget(ws *tenancyv1alpha1.Workspace) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := mountedFrom(ws)
	if c.mounted[o].Delete(keyOf(ws)); len(c.mounted[o]) == 0 {
		delete(c.mounted, o)
	}
}

func keyOf(ws *tenancyv1alpha1.Workspace) informers.Key {
	return informers.Key{Cluster: logicalcluster.Of(ws), Name: ws.Name}
}

func mountedFrom(ws *tenancyv1alpha1.Workspace) object {
	ref := ws.Spec.Mount.Reference
	return object{logicalcluster.Of(ws), schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).Group, ref.Namespace, ref.Name}
}

// Changed implements garbagecollector.Observer.
func (c *Controller) Changed(resource schema.GroupVersionResource, obj metav1.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.mounted) == 0 {
		return
	}
	for key := range c.mounted[object{logicalcluster.Of(obj), resource.Group, obj.GetNamespace(), obj.GetName()}] {
		c.enqueue(key)
	}
}

// Deleted implements garbagecollector.Observer.
func (c *Controller) Deleted(resource schema.GroupVersionResource, obj metav1.Object) {
	c.Changed(resource, obj)
}

// Relisted implements garbagecollector.Observer.
func (c *Controller) Relisted(resource schema.GroupVersionResource) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for o, keys := range c.mounted {
		if o.group != resource.Group {
			continue
		}
		for key := range keys {
			c.enqueue(key)
		}
	}
}

func (c *Controller) reconcile(ctx context.Context, key informers.Key) error {
	ws, err := c.Set.Workspaces.Get(key.Cluster, "", key.Name)
	if err != nil || ws.Spec.Mount == nil || ws.DeletionTimestamp != nil {
		return runner.IgnoreNotFound(err)
	}
	seen, err := c.look(ctx, ws.Spec.Mount.Reference)
	if err != nil {
		return err
	}
	err = c.Workspaces.Update(ctx, key.Name, &tenancyv1alpha1.Workspace{}, func(obj runtime.Object) error {
		if live := obj.(*tenancyv1alpha1.Workspace); live.UID == ws.UID && live.DeletionTimestamp == nil {
			seen.show(live)
		}
		return nil
	})
	return runner.IgnoreNotFound(err)
}

// look reads the object that a workspace is mounted from.
func (c *Controller) look(ctx context.Context, ref tenancyv1alpha1.ObjectReference) (observation, error) {
	mapper, err := c.RESTMapper(ctx)
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
	obj, err := c.Dynamic.Resource(mapping.Resource).Namespace(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return missing("there is no %s %s", ref.Kind, nameOf(ref)), nil
	}
	if err != nil {
		return observation{}, fmt.Errorf("%s %s: %w", ref.Kind, nameOf(ref), err)
	}
	return c.judge(ref, obj), nil
}

func nameOf(ref tenancyv1alpha1.ObjectReference) string {
	if ref.Namespace == "" {
		return ref.Name
	}
	return ref.Namespace + "/" + ref.Name
}

// judge reads what an object says about the server that it stands for.
func (c *Controller) judge(ref tenancyv1alpha1.ObjectReference, obj *unstructured.Unstructured) observation {
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
	if _, _, err := c.Hosts.Check(url); err != nil {
		return notReady("%s has the status.URL %q, which is not used: %v", of, shortened(url), err)
	}
	return observation{url: url}
}

// maxQuoted is how many bytes of a value of an object a condition quotes: many workspaces may be mounted from one object.
const maxQuoted = 256

func shortened(value string) string {
	if len(value) > maxQuoted {
		return value[:maxQuoted] + "…"
	}
	return value
}
