package garbagecollector

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"

	"github.com/kcplane/kcp/server/internal/controllers/runner"
)

// client returns what reaches an object in a version that its cluster serves: that in which all clusters are watched may be one
// that other clusters alone have.
func (c *Collector) client(ctx context.Context, o object) (metadata.ResourceInterface, error) {
	served, err := c.resources.Served(ctx, o.resource)
	if err != nil {
		return nil, err
	}
	return c.metadata.Resource(served).Namespace(o.namespace), nil
}

// process does what is due for one object. It decides on live reads only; the graph tells no more than where to look.
func (c *Collector) process(ctx context.Context, o object) error {
	client, err := c.client(ctx, o)
	if err != nil {
		return err
	}
	live, err := client.Get(ctx, o.name, metav1.GetOptions{})
	if err != nil {
		return runner.IgnoreNotFound(err)
	}
	if live.DeletionTimestamp != nil {
		switch {
		case slices.Contains(live.Finalizers, metav1.FinalizerOrphanDependents):
			return c.orphanDependents(ctx, o, live)
		case slices.Contains(live.Finalizers, metav1.FinalizerDeleteDependents):
			return c.deleteDependents(ctx, o, live)
		}
		return nil
	}
	if len(live.OwnerReferences) == 0 {
		return nil
	}
	return c.collect(ctx, o, live)
}

// references are the owners of an object, by what has become of them.
type references struct {
	solid, dangling, waiting []metav1.OwnerReference
	misplaced                []metav1.OwnerReference // solid ones of a namespaced kind, for an object without a namespace
}

// collect deletes an object that all owners have left, and drops references to those that have.
func (c *Collector) collect(ctx context.Context, o object, live *metav1.PartialObjectMetadata) error {
	refs, err := c.classify(ctx, o, live.OwnerReferences)
	if err != nil {
		return err
	}
	// collection does not wait for Events
	if err := c.warnOfNamespaces(ctx, o, live, slices.Concat(refs.dangling, refs.misplaced)); err != nil {
		klog.FromContext(ctx).V(2).Info("no Event for an owner in another namespace", "cluster", o.cluster, "namespace", o.namespace,
			"name", o.name, "err", err)
	}
	switch {
	case len(refs.solid) > 0 && len(refs.dangling)+len(refs.waiting) > 0:
		return c.patchOwners(ctx, o, live, refs.solid)
	case len(refs.solid) > 0:
		return nil
	case len(refs.waiting) > 0 && len(c.graph.dependentsOf(owner{o.cluster, live.UID})) > 0:
		// The owner waits for this object, and this object has dependents of its own: they go first.
		return c.delete(ctx, o, live, metav1.DeletePropagationForeground)
	}
	policy := metav1.DeletePropagationBackground
	switch {
	case slices.Contains(live.Finalizers, metav1.FinalizerOrphanDependents):
		policy = metav1.DeletePropagationOrphan
	case slices.Contains(live.Finalizers, metav1.FinalizerDeleteDependents):
		policy = metav1.DeletePropagationForeground
	}
	return c.delete(ctx, o, live, policy)
}

// classify looks every owner up in the cluster of ctx.
func (c *Collector) classify(ctx context.Context, o object, owners []metav1.OwnerReference) (references, error) {
	var refs references
	mapper, err := c.resources.RESTMapper(ctx)
	if err != nil {
		return refs, err
	}
	for _, ref := range owners {
		live, known, err := c.owner(ctx, mapper, o, ref)
		if !known && o.namespace == "" {
			refs.misplaced = append(refs.misplaced, ref)
		}
		switch {
		case err != nil:
			return refs, err
		case !known:
			refs.solid = append(refs.solid, ref) // what nobody can look up deletes nothing
		case live == nil || live.UID != ref.UID:
			refs.dangling = append(refs.dangling, ref)
		case live.DeletionTimestamp != nil && slices.Contains(live.Finalizers, metav1.FinalizerDeleteDependents):
			refs.waiting = append(refs.waiting, ref)
		default:
			refs.solid = append(refs.solid, ref)
		}
	}
	return refs, nil
}

var errVersion = errors.New("no version of an API")

// mappingOf returns the resource of an owner.
func mappingOf(mapper meta.RESTMapper, ref metav1.OwnerReference) (*meta.RESTMapping, error) {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return nil, errVersion
	}
	return mapper.RESTMapping(gv.WithKind(ref.Kind).GroupKind(), gv.Version)
}

// owner reads an owner: nil if there is none of that name, and known false if its kind is not served or cannot own o.
func (c *Collector) owner(ctx context.Context, mapper meta.RESTMapper, o object,
	ref metav1.OwnerReference) (live *metav1.PartialObjectMetadata, known bool, err error) {
	mapping, err := mappingOf(mapper, ref)
	if meta.IsNoMatchError(err) || errors.Is(err, errVersion) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	namespace := ""
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		if o.namespace == "" {
			return nil, false, nil
		}
		namespace = o.namespace
	}
	live, err = c.metadata.Resource(mapping.Resource).Namespace(namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, true, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("owner %s %s: %w", ref.Kind, ref.Name, err)
	}
	return live, true, nil
}

// deleteDependents serves foreground deletion: the dependents are looked at, and when none blocks any more, the object
// is given free.
func (c *Collector) deleteDependents(ctx context.Context, o object, live *metav1.PartialObjectMetadata) error {
	blocked := false
	for _, dependent := range c.graph.dependentsOf(owner{o.cluster, live.UID}) {
		c.queue.Add(dependent.object)
		blocked = blocked || slices.Contains(dependent.blocks, live.UID)
	}
	if blocked {
		return nil // the end of each dependent brings the object here again
	}
	return c.removeFinalizer(ctx, o, live, metav1.FinalizerDeleteDependents)
}

// orphanDependents drops the references of all dependents, and gives the object free.
func (c *Collector) orphanDependents(ctx context.Context, o object, live *metav1.PartialObjectMetadata) error {
	for _, dependent := range c.graph.dependentsOf(owner{o.cluster, live.UID}) {
		client, err := c.client(ctx, dependent.object)
		if err != nil {
			return err
		}
		d, err := client.Get(ctx, dependent.name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return err
		}
		kept := slices.DeleteFunc(slices.Clone(d.OwnerReferences), func(ref metav1.OwnerReference) bool { return ref.UID == live.UID })
		if len(kept) == len(d.OwnerReferences) {
			continue
		}
		if err := c.patchOwners(ctx, dependent.object, d, kept); err != nil {
			return err
		}
	}
	return c.removeFinalizer(ctx, o, live, metav1.FinalizerOrphanDependents)
}

func (c *Collector) removeFinalizer(ctx context.Context, o object, live *metav1.PartialObjectMetadata, finalizer string) error {
	kept := slices.DeleteFunc(slices.Clone(live.Finalizers), func(f string) bool { return f == finalizer })
	return c.patch(ctx, o, live, map[string]any{"finalizers": kept})
}

func (c *Collector) patchOwners(ctx context.Context, o object, live *metav1.PartialObjectMetadata, owners []metav1.OwnerReference) error {
	return c.patch(ctx, o, live, map[string]any{"ownerReferences": owners})
}

// patch replaces metadata of exactly the object that was read.
func (c *Collector) patch(ctx context.Context, o object, live *metav1.PartialObjectMetadata, fields map[string]any) error {
	fields["uid"], fields["resourceVersion"] = live.UID, live.ResourceVersion
	patch, err := json.Marshal(map[string]any{"metadata": fields})
	if err != nil {
		return err
	}
	client, err := c.client(ctx, o)
	if err != nil {
		return err
	}
	_, err = client.Patch(ctx, o.name, types.MergePatchType, patch, metav1.PatchOptions{})
	return runner.IgnoreNotFound(err)
}

func (c *Collector) delete(ctx context.Context, o object, live *metav1.PartialObjectMetadata, policy metav1.DeletionPropagation) error {
	preconditions := &metav1.Preconditions{UID: &live.UID, ResourceVersion: &live.ResourceVersion}
	client, err := c.client(ctx, o)
	if err != nil {
		return err
	}
	err = client.Delete(ctx, o.name, metav1.DeleteOptions{Preconditions: preconditions, PropagationPolicy: &policy})
	return runner.IgnoreNotFound(err)
}
