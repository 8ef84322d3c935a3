package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json" // keeps integers
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/csaupgrade"
	"k8s.io/klog/v2"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
)

// errForeign is the error for objects that the agent did not create.
var errForeign = errors.New("exists on the cluster, and was not created by the fleet: it is not changed; rename or delete one of the two")

// reconcileWorkload creates, updates or deletes the object of a workload on the cluster, and reports its status.
func (s *syncer) reconcileWorkload(ctx context.Context, name string) error {
	u, w, err := stored[v1alpha1.Workload](s.workloads, name)
	if err != nil {
		return err
	}
	if w == nil {
		return s.remove(ctx, name)
	}
	_, a, err := stored[v1alpha1.Assignment](s.assignments, w.Spec.Assignment)
	if err != nil || a == nil || a.Spec.Draining {
		return err // it is reconciled again when the assignment is known
	}
	status, err := s.apply(ctx, w, a)
	message := ""
	if err != nil {
		message = err.Error()
	}
	return errors.Join(err, s.reportWorkload(ctx, u, status, message))
}

// remove deletes what the agent created for a workload that does not exist any more.
func (s *syncer) remove(ctx context.Context, name string) error {
	s.applied.forget(name)
	existing := s.existing(name)
	if len(existing) == 0 {
		return nil
	}
	gone, err := s.confirmedGone(ctx, workloadResource, name)
	if err != nil || !gone {
		return err
	}
	for resource, objects := range existing {
		for _, object := range objects {
			if err := s.delete(ctx, resource, object, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// delete deletes an object that the agent created for a workload.
func (s *syncer) delete(
	ctx context.Context,
	resource schema.GroupVersionResource,
	object *unstructured.Unstructured,
	workload string,
) error {
	client := s.localAny.Resource(resource).Namespace(object.GetNamespace())
	live, err := client.Get(ctx, object.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		if resource == secretResource {
			s.secrets.set(workload, nil)
		}
		return nil
	}
	if err != nil {
		return err
	}
	if !s.owns(live, workload) || live.GetDeletionTimestamp() != nil {
		return nil
	}
	klog.Background().Info("Deleting object", "resource", resource.Resource, "namespace", live.GetNamespace(), "name", live.GetName())
	uid, background := live.GetUID(), metav1.DeletePropagationBackground
	err = client.Delete(
		ctx,
		live.GetName(),
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: &background},
	)
	if apierrors.IsNotFound(err) {
		err = nil
	}
	if err == nil && resource == secretResource {
		s.secrets.set(workload, nil)
	}
	return err
}

func (s *syncer) owner(workload string) string { return s.options.Cluster + "/" + workload }

// owns reports whether the agent created an object for a workload.
func (s *syncer) owns(u *unstructured.Unstructured, workload string) bool {
	return u.GetAnnotations()[ownerAnnotation] == s.owner(workload)
}

// apply makes the object on the cluster equal to the workload, and returns its status there.
func (s *syncer) apply(ctx context.Context, w *v1alpha1.Workload, a *v1alpha1.Assignment) (map[string]any, error) {
	desired, resource, err := s.desired(w, a)
	if err != nil {
		return nil, err
	}
	if cached := s.existing(w.Name)[resource]; len(cached) == 1 && s.applied.is(w.Name, desired, cached[0]) {
		return statusOf(cached[0], w.Spec.Generation), nil
	}
	if err := s.ensureNamespace(ctx, a, &resource); err != nil {
		return nil, err
	}
	if err := s.know(ctx, resource, desired.GetNamespace()); err != nil {
		return nil, err
	}
	wanted := fingerprint(desired)
	client := s.localAny.Resource(resource).Namespace(desired.GetNamespace())
	live, err := client.Get(ctx, desired.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		live, err = client.Create(ctx, desired, metav1.CreateOptions{FieldManager: manager})
		if apierrors.IsAlreadyExists(err) {
			err = fmt.Errorf("%s %q: %w", resource.Resource, desired.GetName(), errForeign)
		}
	case err != nil:
	case !s.owns(live, w.Name):
		err = fmt.Errorf("%s %q: %w", resource.Resource, desired.GetName(), errForeign)
	default:
		live, err = s.update(ctx, client, live, desired)
	}
	if err != nil {
		return nil, err
	}
	s.applied.remember(w.Name, wanted, live)
	if resource == secretResource {
		s.secrets.set(w.Name, live)
	}
	return statusOf(live, w.Spec.Generation), nil
}

// know makes sure that the agent knows the objects of a resource in a namespace, before it creates another one.
func (s *syncer) know(ctx context.Context, resource schema.GroupVersionResource, namespace string) error {
	if resource == secretResource {
		return s.awaitAccess(ctx, namespace)
	}
	return s.watch(ctx, resource)
}

// update applies an object to the one that the agent created. The fields that it has created it with become fields that it applies, so
// that those are removed which the workload does not have any more.
func (s *syncer) update(ctx context.Context, client dynamic.ResourceInterface, live, desired *unstructured.Unstructured,
) (*unstructured.Unstructured, error) {
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(live, sets.New(manager), manager)
	if err != nil {
		return nil, err
	}
	if len(patch) > 0 {
		if _, err := client.Patch(ctx, live.GetName(), types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
			return nil, err
		}
	}
	desired.SetUID(live.GetUID()) // applies to this object, and to no other one of its name
	return client.Apply(ctx, desired.GetName(), desired, metav1.ApplyOptions{FieldManager: manager, Force: true})
}

// desired returns the object that a workload describes, and its resource.
func (s *syncer) desired(w *v1alpha1.Workload, a *v1alpha1.Assignment) (*unstructured.Unstructured, schema.GroupVersionResource, error) {
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(w.Spec.Object.Raw, &u.Object); err != nil {
		return nil, schema.GroupVersionResource{}, fmt.Errorf("workload %s: %w", w.Name, err)
	}
	u.SetNamespace(namespaceName(a))
	labels := map[string]string{v1alpha1.ClusterLabel: s.options.Cluster, workloadLabel: w.Name}
	annotations := map[string]string{ownerAnnotation: s.owner(w.Name), generationAnnotation: strconv.FormatInt(w.Spec.Generation, 10)}
	u.SetLabels(merged(u.GetLabels(), labels))
	u.SetAnnotations(merged(u.GetAnnotations(), annotations))
	return u, u.GroupVersionKind().GroupVersion().WithResource(w.Spec.Resource), nil
}

func merged(own, ours map[string]string) map[string]string {
	out := map[string]string{}
	maps.Copy(out, own)
	maps.Copy(out, ours)
	return out
}

// statusOf returns the status of an object, with the generation that it has in the workspace.
func statusOf(live *unstructured.Unstructured, generation int64) map[string]any {
	status, found, err := unstructured.NestedMap(live.Object, "status")
	if !found || err != nil {
		return nil
	}
	if observed, ok := status["observedGeneration"].(int64); ok {
		status["observedGeneration"] = generation
		if observed < live.GetGeneration() || live.GetAnnotations()[generationAnnotation] != strconv.FormatInt(generation, 10) {
			status["observedGeneration"] = generation - 1
		}
	}
	return status
}

// reportWorkload writes the status of a workload if it has changed.
func (s *syncer) reportWorkload(ctx context.Context, u *unstructured.Unstructured, object map[string]any, message string) error {
	status := map[string]any{}
	if object != nil {
		status["object"] = object
	}
	if message != "" {
		status["message"] = message[:min(len(message), 1024)]
	}
	former, _, _ := unstructured.NestedMap(u.Object, "status")
	if equality.Semantic.DeepEqual(former, status) || (len(former) == 0 && len(status) == 0) {
		return nil
	}
	u = u.DeepCopy()
	u.Object["status"] = status
	_, err := s.fleet.Resource(workloadResource).UpdateStatus(ctx, u, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
