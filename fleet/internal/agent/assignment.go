package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
)

const (
	// longestName is the length of the longest name of a namespace.
	longestName = 63
	// guard is the name of the objects that limit what a namespace may do on the cluster.
	guard = "kcp-fleet"
	// podSecurityLabel sets the level of the Pod Security Standards of a namespace.
	podSecurityLabel = "pod-security.kubernetes.io/enforce"
	// assignmentLabel of workloads has the name of their assignment.
	assignmentLabel = "fleet.kcp.io/assignment"
)

// namespaceName returns the name of the namespace of an assignment on the cluster.
func namespaceName(a *v1alpha1.Assignment) string {
	name := a.Spec.Workspace + "-" + a.Spec.Namespace
	if len(name) <= longestName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	suffix := "-" + hex.EncodeToString(sum[:5])
	return strings.TrimRight(name[:longestName-len(suffix)], "-") + suffix
}

// reconcileAssignment reports whether a namespace is ready on the cluster, or removes it.
func (s *syncer) reconcileAssignment(ctx context.Context, name string) error {
	if name == "" {
		return nil
	}
	u, a, err := stored[v1alpha1.Assignment](s.assignments, name)
	if err != nil {
		return err
	}
	if a == nil {
		gone, err := s.confirmedGone(ctx, assignmentResource, name)
		if err != nil || !gone {
			return err
		}
		_, err = s.clear(ctx, name)
		return err
	}
	status := v1alpha1.AssignmentStatus{ObservedGeneration: a.Generation, Phase: v1alpha1.AssignmentPlacing, Namespace: namespaceName(a)}
	if a.Spec.Draining {
		if status.Message, err = s.clear(ctx, name); err != nil {
			return err
		}
		if status.Message == "" {
			status.Phase = v1alpha1.AssignmentGone
		}
	} else {
		if status.Message, err = s.unready(ctx, a); err != nil {
			status.Message = err.Error()
		}
		if status.Message == "" {
			status.Phase = v1alpha1.AssignmentReady
		}
	}
	status.Message = status.Message[:min(len(status.Message), 1024)]
	if equality.Semantic.DeepEqual(a.Status, status) {
		return err
	}
	u = u.DeepCopy()
	if u.Object["status"], err = runtime.DefaultUnstructuredConverter.ToUnstructured(&status); err != nil {
		return err
	}
	_, err = s.fleet.Resource(assignmentResource).UpdateStatus(ctx, u, metav1.UpdateOptions{})
	return err
}

// unready returns why an assignment is not ready, or "". It lists the workloads at the fleet: those of a new assignment may not be in the
// cache yet, and the former copy is removed when the new one is ready.
func (s *syncer) unready(ctx context.Context, a *v1alpha1.Assignment) (string, error) {
	if err := s.ensureNamespace(ctx, a, nil); err != nil {
		return "", err
	}
	names := s.sortedNames(a.Name)
	if a.Status.Phase != v1alpha1.AssignmentReady || a.Status.ObservedGeneration != a.Generation {
		list, err := s.fleet.Resource(workloadResource).List(ctx, metav1.ListOptions{LabelSelector: assignmentLabel + "=" + a.Name})
		if err != nil {
			return "", err
		}
		names = nil
		for i := range list.Items {
			names = append(names, list.Items[i].GetName())
		}
		slices.Sort(names)
	}
	for _, name := range names {
		u, w, err := stored[v1alpha1.Workload](s.workloads, name)
		if err != nil {
			return "", err
		}
		if w == nil {
			return "an object is not known to the agent yet", nil
		}
		desired, gvr, err := s.desired(w, a)
		if err != nil {
			return "", err
		}
		what := gvr.Resource + " " + desired.GetName()
		if w.Status.Message != "" {
			return what + ": " + w.Status.Message, nil
		}
		existing := s.existing(name)[gvr]
		if len(existing) != 1 {
			return what + ": is not created yet", nil
		}
		if existing[0].GetAnnotations()[generationAnnotation] != desired.GetAnnotations()[generationAnnotation] {
			return what + ": is not updated yet", nil
		}
		if why := unhealthy(existing[0], replicas(desired, existing[0])); why != "" {
			return what + ": " + why, nil
		}
		if a.Status.Phase != v1alpha1.AssignmentReady && !reports(u, statusOf(existing[0], w.Spec.Generation)) {
			return what + ": its status is not reported yet", nil
		}
	}
	return "", nil
}

// reports reports whether a workload has a status of its object. The fleet must have it before an assignment is ready, because it shows
// the status of the former copy until then.
func reports(u *unstructured.Unstructured, status map[string]any) bool {
	reported, _, err := unstructured.NestedMap(u.Object, "status", "object")
	return err == nil && equality.Semantic.DeepEqual(reported, status)
}

// clear removes the namespace of an assignment, and returns what it waits for, or "" when nothing is left.
func (s *syncer) clear(ctx context.Context, assignment string) (string, error) {
	namespaces, err := s.namespacesOf(ctx, assignment)
	if err != nil {
		return "", err
	}
	for _, namespace := range namespaces {
		if namespace.GetAnnotations()[ownerAnnotation] != s.owner(assignment) {
			continue
		}
		if namespace.GetDeletionTimestamp() == nil {
			klog.Background().Info("Deleting namespace", "namespace", namespace.GetName())
			uid := namespace.GetUID()
			options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
			if err := s.local.CoreV1().Namespaces().Delete(ctx, namespace.GetName(), options); err != nil && !apierrors.IsNotFound(err) {
				return "", err
			}
		}
		return fmt.Sprintf("namespace %s is being deleted", namespace.GetName()), nil
	}
	return "", nil
}

// namespacesOf returns the namespaces of the cluster with the label of an assignment. It relies on the cache only for those that exist:
// the cluster confirms that there is none.
func (s *syncer) namespacesOf(ctx context.Context, assignment string) (found []metav1.Object, err error) {
	cached, err := s.namespaces.GetIndexer().ByIndex(byWorkload, assignment)
	if err != nil {
		return nil, err
	}
	for _, o := range cached {
		if u, ok := o.(*unstructured.Unstructured); ok {
			found = append(found, u)
		}
	}
	if len(found) > 0 {
		return found, nil
	}
	list, err := s.local.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: workloadLabel + "=" + assignment})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		found = append(found, &list.Items[i])
	}
	return found, nil
}

// ensureNamespace creates the namespace of an assignment with its guard rails. used is a resource that the agent is about to create in
// it.
func (s *syncer) ensureNamespace(ctx context.Context, a *v1alpha1.Assignment, used *schema.GroupVersionResource) error {
	name := namespaceName(a)
	_, cluster, err := stored[v1alpha1.Cluster](s.clusters, s.options.Cluster)
	if err != nil || cluster == nil {
		return fmt.Errorf("the cluster %s is not known to the agent yet", s.options.Cluster)
	}
	level := cluster.Spec.PodSecurity
	if level == "" {
		level = "restricted"
	}
	live, err := s.namespace(ctx, name)
	if apierrors.IsNotFound(err) {
		live, err = s.local.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Labels:      map[string]string{v1alpha1.ClusterLabel: s.options.Cluster, workloadLabel: a.Name, podSecurityLabel: level},
			Annotations: map[string]string{ownerAnnotation: s.owner(a.Name)},
		}}, metav1.CreateOptions{FieldManager: manager})
	}
	if err != nil {
		return err
	}
	if live.Annotations[ownerAnnotation] != s.owner(a.Name) {
		return fmt.Errorf("namespace %q: %w", name, errForeign)
	}
	if live.DeletionTimestamp != nil {
		return fmt.Errorf("namespace %q is being deleted", name)
	}
	if err := s.ensureMetadata(ctx, live, level, used); err != nil {
		return err
	}
	quota := cluster.Spec.Quota
	if len(quota) == 0 {
		quota = defaultQuota()
	}
	if s.guards.are(live.UID, quota, time.Now()) {
		return nil
	}
	if err := s.ensureGuards(ctx, a, name, quota); err != nil {
		return err
	}
	s.guards.remember(live.UID, quota, time.Now())
	return nil
}

// namespace returns a namespace of the cluster. A cached one is good enough: the cluster refuses to write into one that the agent has not
// created.
func (s *syncer) namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	if _, cached, err := stored[corev1.Namespace](s.namespaces, name); err == nil && cached != nil {
		return cached, nil
	}
	return s.local.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
}

// ensureMetadata sets the level of pod security, and records a resource.
func (s *syncer) ensureMetadata(ctx context.Context, live *corev1.Namespace, level string, used *schema.GroupVersionResource) error {
	resources := strings.FieldsFunc(live.Annotations[resourcesAnnotation], func(r rune) bool { return r == ',' })
	if used != nil {
		if text := resourceText(*used); !slices.Contains(resources, text) {
			resources = append(resources, text)
			slices.Sort(resources)
		}
	}
	recorded := strings.Join(resources, ",")
	if live.Labels[podSecurityLabel] == level && live.Annotations[resourcesAnnotation] == recorded {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": live.ResourceVersion,
		"labels":          map[string]string{podSecurityLabel: level}, "annotations": map[string]string{resourcesAnnotation: recorded},
	}})
	if err != nil {
		return err
	}
	_, err = s.local.CoreV1().Namespaces().Patch(ctx, live.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: manager})
	return err
}

// defaultQuota limits a namespace on a cluster without a quota of its own.
func defaultQuota() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourcePods:                   resource.MustParse("100"),
		corev1.ResourcePersistentVolumeClaims: resource.MustParse("100"),
	}
}

// ensureGuards applies a RoleBinding for the agent, a ResourceQuota, and a NetworkPolicy that admits traffic from the same workspace
// namespace and from outside of the namespaces of workspaces.
func (s *syncer) ensureGuards(ctx context.Context, a *v1alpha1.Assignment, namespace string, quota corev1.ResourceList) error {
	metadata := metav1.ObjectMeta{Name: guard, Namespace: namespace, Annotations: map[string]string{ownerAnnotation: s.owner(a.Name)}}
	none := []metav1.LabelSelectorRequirement{{Key: v1alpha1.ClusterLabel, Operator: metav1.LabelSelectorOpDoesNotExist}}
	for gvr, object := range map[schema.GroupVersionResource]any{
		rbacv1.SchemeGroupVersion.WithResource("rolebindings"): s.access(metadata),
		corev1.SchemeGroupVersion.WithResource("resourcequotas"): &corev1.ResourceQuota{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ResourceQuota"}, ObjectMeta: metadata, Spec: corev1.ResourceQuotaSpec{Hard: quota},
		},
		networkingv1.SchemeGroupVersion.WithResource("networkpolicies"): &networkingv1.NetworkPolicy{
			TypeMeta: metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"}, ObjectMeta: metadata,
			Spec: networkingv1.NetworkPolicySpec{
				PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
				Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{
					{PodSelector: &metav1.LabelSelector{}},
					{NamespaceSelector: &metav1.LabelSelector{MatchExpressions: none}},
				}}},
			},
		},
	} {
		if err := s.applyGuard(ctx, namespace, gvr, object); err != nil {
			return err
		}
	}
	return nil
}

// applyGuard applies one of the objects that limit what a namespace may do, or that allow the agent to work in it.
func (s *syncer) applyGuard(ctx context.Context, namespace string, resource schema.GroupVersionResource, object any) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return err
	}
	delete(content, "status")
	options := metav1.ApplyOptions{FieldManager: manager, Force: true}
	_, err = s.localAny.Resource(resource).Namespace(namespace).Apply(ctx, guard, &unstructured.Unstructured{Object: content}, options)
	return err
}
