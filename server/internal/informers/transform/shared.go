package transform

import (
	"hash/maphash"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
)

// remembered is how many values of each type are kept to be shared. A new value replaces an older one in its slot.
const remembered = 4096

// Trimmer trims the objects of one informer, which share equal parts. Only one goroutine may use it at a time.
type Trimmer struct {
	seed       maphash.Seed
	strings    [remembered]string
	maps       [remembered]map[string]string
	finalizers []string
	bindings   [remembered]*apisv1alpha2.APIBindingStatus // parts to share
}

// New returns a trimmer without values to share.
func New() *Trimmer { return &Trimmer{seed: maphash.MakeSeed()} }

func (t *Trimmer) meta(m *metav1.ObjectMeta) {
	m.ManagedFields = nil
	m.Labels = t.shared(m.Labels)
	if !slices.Equal(m.Finalizers, t.finalizers) {
		t.finalizers = m.Finalizers
	}
	m.Finalizers = t.finalizers
}

// string returns s, or an equal string of another object.
func (t *Trimmer) string(s string) string {
	slot := &t.strings[maphash.String(t.seed, s)%remembered]
	if *slot != s {
		*slot = s
	}
	return *slot
}

// shared returns m, or an equal map of another object.
func (t *Trimmer) shared(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	var sum uint64 // does not depend on the order
	for key, value := range m {
		sum += maphash.String(t.seed, key) ^ maphash.String(t.seed, value)*31
	}
	slot := &t.maps[sum%remembered]
	if !maps.Equal(*slot, m) {
		*slot = m
	}
	return *slot
}
