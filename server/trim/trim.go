// Package trim makes what informers keep of the objects that every workspace has small: it drops what nobody reads, and
// lets objects share what they have in common.
package trim

import (
	"hash/maphash"
	"maps"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
)

// remembered is how many values of each kind are kept to be shared. What is seen rarely makes room.
const remembered = 4096

// Trimmer trims the objects of one informer. It must not be used by two goroutines at a time.
type Trimmer struct {
	seed       maphash.Seed
	strings    [remembered]string
	maps       [remembered]map[string]string
	finalizers []string
	creators   [remembered]*corev1alpha1.UserInfo
}

// New returns a trimmer that has seen nothing.
func New() *Trimmer { return &Trimmer{seed: maphash.MakeSeed()} }

// LogicalCluster trims one, for informers.Informer.SetTransform. Its conditions are left while it is being deleted only.
func (t *Trimmer) LogicalCluster(obj runtime.Object) {
	lc := obj.(*corev1alpha1.LogicalCluster)
	lc.TypeMeta = metav1.TypeMeta{}
	t.meta(&lc.ObjectMeta)
	if owner := lc.Spec.Owner; owner != nil {
		owner.APIVersion, owner.Resource, owner.Cluster = t.string(owner.APIVersion), t.string(owner.Resource), t.string(owner.Cluster)
	}
	lc.Spec.CreatedBy = t.creator(lc.Spec.CreatedBy)
	lc.Status.Phase = corev1alpha1.LogicalClusterPhase(t.string(string(lc.Status.Phase)))
	if lc.DeletionTimestamp == nil {
		lc.Status.Conditions = nil
	}
	exact := make(map[string]string, len(lc.Annotations))
	for key, value := range lc.Annotations {
		exact[t.string(key)] = value
	}
	lc.Annotations = exact
}

// Workspace trims one, for informers.Informer.SetTransform. It has no conditions, nor the annotation that spec.cluster
// says as well.
func (t *Trimmer) Workspace(obj runtime.Object) {
	ws := obj.(*tenancyv1alpha1.Workspace)
	ws.TypeMeta = metav1.TypeMeta{}
	t.meta(&ws.ObjectMeta)
	ws.Status.Conditions = nil
	ws.Status.Phase = corev1alpha1.LogicalClusterPhase(t.string(string(ws.Status.Phase)))
	if ws.Spec.Cluster != "" {
		delete(ws.Annotations, tenancyv1alpha1.ClusterAnnotation)
	}
	ws.Annotations = t.shared(ws.Annotations)
}

func (t *Trimmer) meta(m *metav1.ObjectMeta) {
	m.ManagedFields = nil
	m.Labels = t.shared(m.Labels)
	if !slices.Equal(m.Finalizers, t.finalizers) {
		t.finalizers = m.Finalizers
	}
	m.Finalizers = t.finalizers
}

// string returns s, or an equal string that other objects have.
func (t *Trimmer) string(s string) string {
	slot := &t.strings[maphash.String(t.seed, s)%remembered]
	if *slot != s {
		*slot = s
	}
	return *slot
}

// shared returns m, or an equal map that other objects have.
func (t *Trimmer) shared(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	var sum uint64 // whatever the order
	for key, value := range m {
		sum += maphash.String(t.seed, key) ^ maphash.String(t.seed, value)*31
	}
	slot := &t.maps[sum%remembered]
	if !maps.Equal(*slot, m) {
		*slot = m
	}
	return *slot
}

func (t *Trimmer) creator(u *corev1alpha1.UserInfo) *corev1alpha1.UserInfo {
	if u == nil {
		return nil
	}
	slot := &t.creators[maphash.String(t.seed, u.Username)%remembered]
	if !reflect.DeepEqual(*slot, u) {
		*slot = u
	}
	return *slot
}
