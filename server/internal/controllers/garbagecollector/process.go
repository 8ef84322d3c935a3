package garbagecollector

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"github.com/kcplane/kcp/server/internal/controllers/runner"
	"github.com/kcplane/kcp/server/internal/process/decisionlog"
)

// client returns a client for an object, in a version that its cluster serves. The version in which all clusters are watched may be served
// by other clusters only.
func (c *collector) client(ctx context.Context, o object) (metadata.ResourceInterface, error) {
	served, err := c.Resources.Served(ctx, o.Resource)
	if err != nil {
		return nil, err
	}
	return c.Metadata.Resource(served).Namespace(o.Namespace), nil
}

// reconcile collects one object, or serves the finalizers of one that is being deleted. It decides by live reads. The graph shows which
// objects to read; before it is complete, nothing is released because of dependents that it does not show.
func (c *collector) reconcile(ctx context.Context, o object) error {
	client, err := c.client(ctx, o)
	if err != nil {
		return err
	}
	live, err := client.Get(ctx, o.Name, metav1.GetOptions{})
	if err != nil {
		return runner.IgnoreNotFound(err)
	}
	if live.DeletionTimestamp != nil {
		if !c.initial.complete() {
			c.controller.EnqueueAfter(o, untilListed)
			return nil
		}
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

// references are the owner references of an object by the state of the owner: it exists, does not exist, or waits for its dependents.
type references struct {
	solid, dangling, waiting []metav1.OwnerReference
	misplaced                []metav1.OwnerReference // the solid ones to a namespaced kind, of an object without a namespace
}

// collect deletes an object without remaining owners, and otherwise removes references to owners that do not remain.
func (c *collector) collect(ctx context.Context, o object, live *metav1.PartialObjectMetadata) error {
	refs, err := c.classify(ctx, o, live.OwnerReferences)
	if err != nil {
		return err
	}
	// A failure to create Events must not delay the collection.
	if err := c.warnOfNamespaces(ctx, o, live, slices.Concat(refs.dangling, refs.misplaced)); err != nil {
		decisionlog.ForChange(ctx, o.Cluster).Info("Creating an Event for an owner in another namespace failed", decisionlog.Cluster, o.Cluster,
			decisionlog.Namespace, o.Namespace, decisionlog.Name, o.Name, decisionlog.Reason, err)
	}
	switch {
	case len(refs.solid) > 0 && len(refs.dangling)+len(refs.waiting) > 0:
		return c.patchOwners(ctx, o, live, refs.solid)
	case len(refs.solid) > 0:
		return nil
	case len(refs.waiting) > 0 && !c.initial.complete():
		c.controller.EnqueueAfter(o, untilListed)
		return nil
	case len(refs.waiting) > 0 && len(c.graph.dependentsOf(owner{o.Cluster, live.UID})) > 0:
		// The owner waits for this object, which has dependents itself: they are deleted first.
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

// classify looks up every owner in the cluster of ctx.
func (c *collector) classify(ctx context.Context, o object, owners []metav1.OwnerReference) (references, error) {
	var refs references
	mapper, err := c.Resources.RESTMapper(ctx)
	if err != nil {
		return refs, err
	}
	for _, ref := range owners {
		live, known, err := c.owner(ctx, mapper, o, ref)
		if !known && o.Namespace == "" {
			refs.misplaced = append(refs.misplaced, ref)
		}
		switch {
		case err != nil:
			return refs, err
		case !known:
			refs.solid = append(refs.solid, ref) // an owner that cannot be looked up must not cause deletions
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

// untilListed is how long an object that is being deleted waits for the graph to be complete, before it is looked at again.
const untilListed = time.Second

var errVersion = errors.New("invalid apiVersion")

// mappingOf returns the resource of an owner.
func mappingOf(mapper meta.RESTMapper, ref metav1.OwnerReference) (*meta.RESTMapping, error) {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return nil, errVersion
	}
	return mapper.RESTMapping(gv.WithKind(ref.Kind).GroupKind(), gv.Version)
}

// owner reads an owner. It returns nil if the owner does not exist, and known false if its kind is not served or cannot own o.
func (c *collector) owner(ctx context.Context, mapper meta.RESTMapper, o object,
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
		if o.Namespace == "" {
			return nil, false, nil
		}
		namespace = o.Namespace
	}
	live, err = c.Metadata.Resource(mapping.Resource).Namespace(namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, true, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("reading owner %s %s: %w", ref.Kind, ref.Name, err)
	}
	return live, true, nil
}

// deleteDependents serves foreground deletion: it enqueues the dependents, and removes the finalizer when no dependent blocks any more.
func (c *collector) deleteDependents(ctx context.Context, o object, live *metav1.PartialObjectMetadata) error {
	blocked := false
	for _, dependent := range c.graph.dependentsOf(owner{o.Cluster, live.UID}) {
		c.controller.Enqueue(dependent.object)
		blocked = blocked || slices.Contains(dependent.blocks, live.UID)
	}
	if blocked {
		return nil // the deletion of each dependent enqueues the object again
	}
	return c.removeFinalizer(ctx, o, live, metav1.FinalizerDeleteDependents)
}

// orphanDependents removes the references of all dependents, and then the finalizer.
func (c *collector) orphanDependents(ctx context.Context, o object, live *metav1.PartialObjectMetadata) error {
	for _, dependent := range c.graph.dependentsOf(owner{o.Cluster, live.UID}) {
		client, err := c.client(ctx, dependent.object)
		if err != nil {
			return err
		}
		d, err := client.Get(ctx, dependent.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return err
		}
		others := slices.DeleteFunc(slices.Clone(d.OwnerReferences), func(ref metav1.OwnerReference) bool { return ref.UID == live.UID })
		if len(others) == len(d.OwnerReferences) {
			continue
		}
		if err := c.patchOwners(ctx, dependent.object, d, others); err != nil {
			return err
		}
	}
	return c.removeFinalizer(ctx, o, live, metav1.FinalizerOrphanDependents)
}

func (c *collector) removeFinalizer(ctx context.Context, o object, live *metav1.PartialObjectMetadata, finalizer string) error {
	others := slices.DeleteFunc(slices.Clone(live.Finalizers), func(f string) bool { return f == finalizer })
	return c.patch(ctx, o, live, map[string]any{"finalizers": others})
}

func (c *collector) patchOwners(ctx context.Context, o object, live *metav1.PartialObjectMetadata, owners []metav1.OwnerReference) error {
	return c.patch(ctx, o, live, map[string]any{"ownerReferences": owners})
}

// patch replaces fields of the metadata of an object, if it is unchanged since it was read.
func (c *collector) patch(ctx context.Context, o object, live *metav1.PartialObjectMetadata, fields map[string]any) error {
	fields["uid"], fields["resourceVersion"] = live.UID, live.ResourceVersion
	patch, err := json.Marshal(map[string]any{"metadata": fields})
	if err != nil {
		return err
	}
	client, err := c.client(ctx, o)
	if err != nil {
		return err
	}
	_, err = client.Patch(ctx, o.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return runner.IgnoreNotFound(err)
}

func (c *collector) delete(ctx context.Context, o object, live *metav1.PartialObjectMetadata, policy metav1.DeletionPropagation) error {
	preconditions := &metav1.Preconditions{UID: &live.UID, ResourceVersion: &live.ResourceVersion}
	client, err := c.client(ctx, o)
	if err != nil {
		return err
	}
	err = client.Delete(ctx, o.Name, metav1.DeleteOptions{Preconditions: preconditions, PropagationPolicy: &policy})
	return runner.IgnoreNotFound(err)
}
