// Package apply writes the objects that the operator owns: by server-side apply under one field owner, with an owner reference, never over
// an object of another owner, and only if something changes.
package apply

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

const (
	// FieldOwner owns every field that the operator writes.
	FieldOwner = "kcp-operator"
	// ManagedByLabel with the value FieldOwner is on every object that the operator owns. Its caches hold no other objects.
	ManagedByLabel = "app.kubernetes.io/managed-by"
	// hashAnnotation has a hash of the last applied object, to detect fields that must be removed.
	hashAnnotation = "operator.kcp.io/applied"
	// keptAnnotation names, on an object without an owner, the object that it was created for.
	keptAnnotation = "operator.kcp.io/kept-for"
)

// TakenError means that an object exists and does not belong to the owner.
type TakenError struct {
	Kind, Name string
	// By is the kind and name of its owner, if known.
	By string
}

func (e *TakenError) Error() string {
	by := "was not created by the operator"
	if e.By != "" {
		by = "belongs to " + e.By
	}
	return fmt.Sprintf("%s %s exists and %s: delete it, or choose another name", e.Kind, e.Name, by)
}

// All applies objects in this order, with a controller reference to the owner, which is in the same namespace. If an object has a UID, it
// must exist with this UID: otherwise, All returns an error and does not create it. An object that fails does not block the others; All
// returns the first error.
func All(ctx context.Context, c client.Client, owner client.Object, objects ...client.Object) error {
	var first error
	for _, object := range objects {
		first = cmp.Or(first, one(ctx, c, owner, object, false))
	}
	return first
}

// Keep applies an object like All, but without an owner reference, so that it remains when its owner is deleted. A later owner of the same
// kind and name takes it over.
func Keep(ctx context.Context, c client.Client, owner, object client.Object) error {
	return one(ctx, c, owner, object, true)
}

// Optional applies an object if it is wanted, and otherwise removes it.
func Optional(ctx context.Context, c client.Client, owner client.Object, wanted bool, object client.Object) error {
	if wanted {
		return All(ctx, c, owner, object)
	}
	return Remove(ctx, c, owner, object)
}

func one(ctx context.Context, c client.Client, owner, object client.Object, kept bool) error {
	want, err := desired(c.Scheme(), owner, object, kept)
	if err != nil {
		return err
	}
	live, err := stored(ctx, c, want)
	if err == nil && live == nil {
		live, err = unlabelled(ctx, c, want)
	}
	if err != nil {
		return err
	}
	if live != nil {
		if err := refuseForeign(live, owner, want.GetAnnotations()[keptAnnotation]); err != nil {
			return err
		}
		if contains(live.Object, want.Object) {
			return nil
		}
	}
	err = c.Apply(ctx, client.ApplyConfigurationFromUnstructured(want), client.FieldOwner(FieldOwner), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("applying %s %s: %w", want.GetKind(), want.GetName(), err)
	}
	return nil
}

// Share adds an owner reference to an object that has another controller. The garbage collector then keeps the object when its controller
// is deleted, and another controller can adopt it.
func Share(ctx context.Context, c client.Client, owner, object client.Object) error {
	if Owns(owner, object) {
		return nil
	}
	shared := object.DeepCopyObject().(client.Object)
	if err := controllerutil.SetOwnerReference(owner, shared, c.Scheme()); err != nil {
		return err
	}
	return client.IgnoreNotFound(c.Patch(ctx, shared, client.StrategicMergeFrom(object), client.FieldOwner(FieldOwner)))
}

// Owns reports whether an object has an owner among its owners.
func Owns(owner, object client.Object) bool {
	return slices.ContainsFunc(object.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == owner.GetUID() })
}

// Applied reports whether the last applied state of an object is the wanted one. Caches may be slightly outdated.
func Applied(scheme *runtime.Scheme, owner, object, live client.Object) (bool, error) {
	want, err := desired(scheme, owner, object, false)
	if err != nil {
		return false, err
	}
	return live.GetAnnotations()[hashAnnotation] == want.GetAnnotations()[hashAnnotation], nil
}

// Remove deletes an object if it exists and the owner controls it. Only kind, namespace and name of the argument matter. If the cluster
// does not serve the kind, there is nothing to delete.
func Remove(ctx context.Context, c client.Client, owner, object client.Object) error {
	want, err := desired(c.Scheme(), owner, object, false)
	if err != nil {
		return err
	}
	live, err := stored(ctx, c, want)
	if meta.IsNoMatchError(err) || err == nil && (live == nil || !metav1.IsControlledBy(live, owner)) {
		return nil
	}
	if err != nil {
		return err
	}
	uid := live.GetUID()
	return client.IgnoreNotFound(c.Delete(ctx, live, client.Preconditions{UID: &uid},
		client.PropagationPolicy(metav1.DeletePropagationBackground)))
}

// RemoveKey deletes a Secret that cert-manager wrote for a deleted Certificate with labels. A Secret without these labels belongs to
// another owner, and remains.
func RemoveKey(ctx context.Context, c client.Client, key client.ObjectKey, labels map[string]string) error {
	secret := &corev1.Secret{}
	err := c.Get(ctx, key, secret)
	if err != nil || !subset(labels, secret.Labels) {
		return client.IgnoreNotFound(err)
	}
	return client.IgnoreNotFound(c.Delete(ctx, secret, client.Preconditions{UID: &secret.UID}))
}

func subset(part, all map[string]string) bool {
	for key, value := range part {
		if all[key] != value {
			return false
		}
	}
	return true
}

// desired returns the object to apply: as built, with the metadata of every object that the operator owns.
func desired(scheme *runtime.Scheme, owner, object client.Object, kept bool) (*unstructured.Unstructured, error) {
	gvk, err := apiutil.GVKForObject(object, scheme)
	if err != nil {
		return nil, err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, err
	}
	want := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(content)}
	want.SetGroupVersionKind(gvk)
	delete(want.Object, "status")
	unstructured.RemoveNestedField(want.Object, "metadata", "creationTimestamp")
	want.SetLabels(with(want.GetLabels(), ManagedByLabel, FieldOwner))
	if kept {
		kind, err := apiutil.GVKForObject(owner, scheme)
		if err != nil {
			return nil, err
		}
		want.SetAnnotations(with(want.GetAnnotations(), keptAnnotation, kind.Kind+" "+owner.GetName()))
	} else if err := controllerutil.SetControllerReference(owner, want, scheme); err != nil {
		return nil, err
	}
	uid := want.GetUID()
	unstructured.RemoveNestedField(want.Object, "metadata", "uid")
	encoded, err := json.Marshal(want.Object)
	if err != nil {
		return nil, err
	}
	if uid != "" {
		want.SetUID(uid)
	}
	sum := sha256.Sum256(encoded)
	want.SetAnnotations(with(want.GetAnnotations(), hashAnnotation, hex.EncodeToString(sum[:8])))
	return want, nil
}

func with(all map[string]string, key, value string) map[string]string {
	if all == nil {
		all = map[string]string{}
	}
	all[key] = value
	return all
}

// stored returns the stored object, or nil if it does not exist. Kinds in the scheme are read as their types, as the caches hold them.
func stored(ctx context.Context, c client.Client, want *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	gvk := want.GroupVersionKind()
	var object client.Object = &unstructured.Unstructured{}
	if c.Scheme().Recognizes(gvk) {
		typed, err := c.Scheme().New(gvk)
		if err != nil {
			return nil, err
		}
		object = typed.(client.Object)
	}
	object.GetObjectKind().SetGroupVersionKind(gvk)
	if err := c.Get(ctx, client.ObjectKeyFromObject(want), object); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if set, ok := object.(*appsv1.StatefulSet); ok { // protocol buffers do not contain the kinds of inner objects
		for i := range set.Spec.VolumeClaimTemplates {
			set.Spec.VolumeClaimTemplates[i].TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}
		}
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, err
	}
	live := &unstructured.Unstructured{Object: content}
	live.SetGroupVersionKind(gvk)
	return live, nil
}

// unlabelled returns an object that exists although the caches do not have it, or nil: it belongs to another owner, or has lost the label
// that the caches select. Reads of unstructured objects bypass the caches.
func unlabelled(ctx context.Context, c client.Client, want *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(want.GroupVersionKind())
	if err := c.Get(ctx, client.ObjectKeyFromObject(want), live); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return live, nil
}

func refuseForeign(live *unstructured.Unstructured, owner client.Object, keptFor string) error {
	controller := metav1.GetControllerOf(live)
	switch by := live.GetAnnotations()[keptAnnotation]; {
	case by != "" && by != keptFor:
		return &TakenError{Kind: live.GetKind(), Name: live.GetName(), By: by}
	case controller != nil && controller.UID != owner.GetUID():
		return &TakenError{Kind: live.GetKind(), Name: live.GetName(), By: controller.Kind + " " + controller.Name}
	case controller == nil && live.GetAnnotations()[hashAnnotation] == "":
		return &TakenError{Kind: live.GetKind(), Name: live.GetName()}
	}
	return nil
}

// merged are the lists to which others may add elements, which server-side apply keeps.
var merged = sets.New("ownerReferences", "finalizers", "containers", "initContainers", "env", "ports", "volumes", "volumeMounts",
	"imagePullSecrets", "topologySpreadConstraints", "hostAliases")

// contains reports whether all of want is in have, which may have more fields than want, and more elements in merged lists.
func contains(have, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		have, ok := have.(map[string]any)
		if !ok {
			return len(want) == 0 && have == nil
		}
		for key, value := range want {
			if list, ok := value.([]any); ok && merged.Has(key) {
				if !containsEach(have[key], list) {
					return false
				}
			} else if !contains(have[key], value) {
				return false
			}
		}
		return true
	case []any:
		have, ok := have.([]any)
		if !ok || len(have) != len(want) {
			return len(want) == 0 && len(have) == 0
		}
		for i := range want {
			if !contains(have[i], want[i]) {
				return false
			}
		}
		return true
	case nil:
		return have == nil
	default:
		return reflect.DeepEqual(have, want)
	}
}

func containsEach(have any, want []any) bool {
	elements, _ := have.([]any)
	for _, element := range want {
		if !slices.ContainsFunc(elements, func(e any) bool { return contains(e, element) }) {
			return false
		}
	}
	return true
}
