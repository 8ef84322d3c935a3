package agent

import (
	"crypto/sha256"
	"encoding/json"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// guardPeriod is how often the agent applies the guard rails of a namespace again, in case they were changed on the cluster.
const guardPeriod = 10 * time.Minute

// sum identifies a content.
type sum [sha256.Size]byte

// applied remembers what the agent has applied for each workload, so that an event that changes nothing causes no request. The zero value
// remembers nothing.
type applied struct {
	mu         sync.Mutex // guards byWorkload
	byWorkload map[string]state
}

// state is what an object should be, and what it was after the agent had applied it.
type state struct{ desired, live sum }

// fingerprint identifies an object without its status, and without what the server changes with each write.
func fingerprint(u *unstructured.Unstructured) sum {
	content := maps.Clone(u.Object)
	delete(content, "status")
	if metadata, ok := content["metadata"].(map[string]any); ok {
		metadata = maps.Clone(metadata)
		delete(metadata, "managedFields")
		delete(metadata, "resourceVersion")
		content["metadata"] = metadata
	}
	text, err := json.Marshal(content)
	if err != nil {
		return sum{} // unreachable: the object was decoded from JSON
	}
	return sha256.Sum256(text)
}

// is reports whether an object is still what the agent has made of a workload, and the workload still describes the same.
func (a *applied) is(workload string, desired, live *unstructured.Unstructured) bool {
	a.mu.Lock()
	former, ok := a.byWorkload[workload]
	a.mu.Unlock()
	return ok && former == state{fingerprint(desired), fingerprint(live)}
}

func (a *applied) remember(workload string, desired sum, live *unstructured.Unstructured) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byWorkload == nil {
		a.byWorkload = map[string]state{}
	}
	a.byWorkload[workload] = state{desired, fingerprint(live)}
}

func (a *applied) forget(workload string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.byWorkload, workload)
}

// guards remembers the namespaces whose guard rails the agent has applied lately. The zero value remembers nothing.
type guards struct {
	mu          sync.Mutex // guards byNamespace
	byNamespace map[types.UID]guarded
}

type guarded struct {
	quota sum
	until time.Time
}

func sumOf(quota corev1.ResourceList) sum {
	text, err := json.Marshal(quota)
	if err != nil {
		return sum{} // unreachable: quantities have a text
	}
	return sha256.Sum256(text)
}

// are reports whether a namespace has its guard rails.
func (g *guards) are(namespace types.UID, quota corev1.ResourceList, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	former, ok := g.byNamespace[namespace]
	return ok && former.quota == sumOf(quota) && now.Before(former.until)
}

func (g *guards) remember(namespace types.UID, quota corev1.ResourceList, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.byNamespace == nil {
		g.byNamespace = map[types.UID]guarded{}
	}
	g.byNamespace[namespace] = guarded{sumOf(quota), now.Add(guardPeriod)}
}

func (g *guards) forget(namespace types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.byNamespace, namespace)
}
