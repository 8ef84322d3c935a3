package garbagecollector

import (
	"context"
	"fmt"
	"hash/fnv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// These limit what tenants can make the collector read: lookups of owners in other namespaces per second, and namespaces per lookup. When
// no lookup is allowed, the dependents of a missing owner are deleted without an Event.
const (
	lookupRate       = 1
	lookupBurst      = 20
	lookupNamespaces = 100
	// rememberedOwners is the number of owners whose deletion the collector has seen and remembers. Their dependents need no lookup.
	rememberedOwners = 4096
)

// warnOfNamespaces creates an Event for every dangling owner that exists in another namespace, which cannot own the object.
func (c *collector) warnOfNamespaces(ctx context.Context, o object, live *metav1.PartialObjectMetadata,
	dangling []metav1.OwnerReference) error {
	for _, ref := range dangling {
		if _, deleted := c.deleted.Get(owner{o.Cluster, ref.UID}); deleted || !c.lookups.TryAccept() {
			continue
		}
		mapper, err := c.Resources.RESTMapper(ctx)
		if err != nil {
			return err
		}
		mapping, err := mappingOf(mapper, ref)
		if err != nil || mapping.Scope.Name() != meta.RESTScopeNameNamespace {
			continue
		}
		elsewhere, err := c.existsElsewhere(ctx, mapping.Resource, ref)
		if err != nil {
			return fmt.Errorf("looking for owner %s %s in other namespaces: %w", ref.Kind, ref.Name, err)
		}
		if !elsewhere {
			continue
		}
		if err := c.warn(ctx, mapper, o, live.UID, ref); err != nil {
			return err
		}
	}
	return nil
}

// existsElsewhere reports whether an owner exists in one of the namespaces of the cluster of ctx.
func (c *collector) existsElsewhere(ctx context.Context, resource schema.GroupVersionResource, ref metav1.OwnerReference) (bool, error) {
	namespaces, err := c.Metadata.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).List(ctx,
		metav1.ListOptions{Limit: lookupNamespaces})
	if err != nil {
		return false, err
	}
	for i := range namespaces.Items {
		found, err := c.Metadata.Resource(resource).Namespace(namespaces.Items[i].Name).Get(ctx, ref.Name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return false, err
		}
		if err == nil && found.UID == ref.UID {
			return true, nil
		}
	}
	return false, nil
}

// warn creates the Event that kube-controller-manager creates for an owner in another namespace. It is created once, because its name
// depends on object and owner only.
func (c *collector) warn(ctx context.Context, mapper meta.RESTMapper, o object, uid types.UID, ref metav1.OwnerReference) error {
	kind, err := mapper.KindFor(o.Resource)
	if err != nil {
		return err
	}
	namespace := o.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	hash := fnv.New64a()
	_, _ = fmt.Fprintf(hash, "%s/%s/%s", o.Resource.GroupResource(), uid, ref.UID)
	now := metav1.NewTime(c.Clock.Now())
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("owner.%x", hash.Sum64())},
		InvolvedObject: corev1.ObjectReference{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Namespace: o.Namespace,
			Name: o.Name, UID: uid},
		Reason: "OwnerRefInvalidNamespace", Type: corev1.EventTypeWarning,
		Message: fmt.Sprintf("ownerRef [%s/%s, namespace: %s, name: %s, uid: %s] does not exist in namespace %q",
			ref.APIVersion, ref.Kind, o.Namespace, ref.Name, ref.UID, o.Namespace),
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
		Source: corev1.EventSource{Component: "garbage-collector-controller"}, ReportingController: "garbage-collector-controller",
	}
	_, err = c.Kube.CoreV1().Events(namespace).Create(ctx, event, metav1.CreateOptions{})
	// The Event may exist, and the cluster may lack the namespace, be full, or be deleted.
	if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil
	}
	return err
}
