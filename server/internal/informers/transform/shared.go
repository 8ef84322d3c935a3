package transform

import (
	"hash/maphash"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
)

// remembered is how many values of each kind are kept to be shared. What is seen rarely makes room.
const remembered = 4096

// Trimmer trims the objects of one informer, which share what is equal. It must not be used by two goroutines at a time.
type Trimmer struct {
	seed       maphash.Seed
	strings    [remembered]string
	maps       [remembered]map[string]string
	finalizers []string
	bindings   [remembered]*apisv1alpha2.APIBindingStatus // of which parts are equal
}

// New returns a trimmer that has seen nothing.
func New() *Trimmer { return &Trimmer{seed: maphash.MakeSeed()} }

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
