package feed

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/cacheserver"
)

// ReplicateAnnotation of an object in the cache server lists why it is offered. Nothing here reads it; other clients of the cache server
// may. It is never written to the objects of users.
const ReplicateAnnotation = "internal.kcp.io/replicate"

// placeAnnotations are the annotations of LogicalClusters and Workspaces that other shards need.
var placeAnnotations = []string{
	corev1alpha1.PathAnnotation, tenancyv1alpha1.TypeAnnotation, tenancyv1alpha1.TypeClusterAnnotation, tenancyv1alpha1.ShardAnnotation,
	tenancyv1alpha1.EpochAnnotation, tenancyv1alpha1.ClusterUIDAnnotation, tenancyv1alpha1.AncestorsAnnotation,
}

// trimmed returns an object as it is offered: of LogicalClusters and Workspaces only what says where they are. The conversion of the result
// may be changed.
func trimmed(obj object) object {
	place := func(m metav1.ObjectMeta) metav1.ObjectMeta {
		kept := map[string]string{}
		for _, key := range placeAnnotations {
			if value, ok := m.Annotations[key]; ok {
				kept[key] = value
			}
		}
		return metav1.ObjectMeta{Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, Annotations: kept}
	}
	switch obj := obj.(type) {
	case *corev1alpha1.LogicalCluster:
		return &corev1alpha1.LogicalCluster{
			ObjectMeta: place(obj.ObjectMeta), Spec: corev1alpha1.LogicalClusterSpec{Owner: obj.Spec.Owner},
			Status: corev1alpha1.LogicalClusterStatus{Phase: obj.Status.Phase},
		}
	case *unstructured.Unstructured:
		return obj.DeepCopy() // its conversion is not a copy
	case *tenancyv1alpha1.Workspace:
		return &tenancyv1alpha1.Workspace{
			ObjectMeta: place(obj.ObjectMeta), Spec: tenancyv1alpha1.WorkspaceSpec{Cluster: obj.Spec.Cluster},
			Status: tenancyv1alpha1.WorkspaceStatus{Phase: obj.Status.Phase},
		}
	}
	return obj
}

// sum identifies the content of an object: equal contents have equal sums.
type sum [sha256.Size]byte

// copyOf returns the content of an object as the cache server has it, with its size and its sum.
func copyOf(k *kind, obj object, words []string, incarnation string) (content map[string]any, size int, of sum, err error) {
	content, err = runtime.DefaultUnstructuredConverter.ToUnstructured(trimmed(obj))
	if err != nil {
		return nil, 0, of, fmt.Errorf("converting %s %s: %w", k.name, obj.GetName(), err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetAPIVersion(k.resource.GroupVersion().String())
	u.SetKind(cmp.Or(u.GetKind(), k.name))
	annotations := u.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[cacheserver.OriginalUID] = string(obj.GetUID())
	annotations[cacheserver.Incarnation] = incarnation
	delete(annotations, ReplicateAnnotation)
	if len(words) > 0 {
		annotations[ReplicateAnnotation] = strings.Join(words, ",")
	}
	u.SetAnnotations(annotations)
	size, of, err = measure(content)
	return content, size, of, err
}

// serverMetadata are the fields of metadata that each server sets for itself.
var serverMetadata = []string{
	"uid", "resourceVersion", "creationTimestamp", "managedFields", "selfLink", "deletionTimestamp",
	"deletionGracePeriodSeconds",
}

// notContent are annotations that the cache server sets, that change without the content, or that repeat it.
var notContent = []string{
	corev1alpha1.ClusterAnnotation, cacheserver.Shard, cacheserver.OriginalResourceVersion, cacheserver.LeaderTerm,
	corev1.LastAppliedConfigAnnotation,
}

// measure removes from an object what is not its content, and returns the size and the sum of its content.
func measure(content map[string]any) (size int, of sum, err error) {
	withoutNull(content)
	metadata, ok := content["metadata"].(map[string]any)
	if !ok {
		return 0, of, fmt.Errorf("an object has no metadata")
	}
	for _, field := range serverMetadata {
		delete(metadata, field)
	}
	if annotations, ok := metadata["annotations"].(map[string]any); ok {
		for _, key := range notContent {
			delete(annotations, key)
		}
	}
	data, err := json.Marshal(content)
	return len(data), sha256.Sum256(data), err
}

// withoutNull removes fields without a value, which servers may keep or drop.
func withoutNull(value any) {
	switch value := value.(type) {
	case map[string]any:
		maps.DeleteFunc(value, func(_ string, v any) bool { return v == nil })
		for _, v := range value {
			withoutNull(v)
		}
	case []any:
		for _, v := range value {
			withoutNull(v)
		}
	}
}

// stamp adds to a copy where it comes from.
func stamp(content map[string]any, version string, term uint64) {
	u := &unstructured.Unstructured{Object: content}
	annotations := u.GetAnnotations()
	annotations[cacheserver.OriginalResourceVersion] = version
	annotations[cacheserver.LeaderTerm] = strconv.FormatUint(term, 10)
	u.SetAnnotations(annotations)
}

// version returns the number of a resource version; zero if it is none.
func version(s string) uint64 {
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0
	}
	return v
}

func compareStrings(a, b string) int { return strings.Compare(a, b) }

func sameStrings(a, b []string) bool { return slices.Equal(a, b) }
