// Package feed computes what the agent of each cluster sees: the objects of the namespaces that are assigned to its cluster, and
// nothing else. It holds them in memory, by cluster, so that a request of an agent never filters objects of other clusters.
package feed

import (
	"crypto/sha256"
	"encoding/hex"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
)

// Namespace identifies a namespace of a workspace, with the URL of the virtual workspace at which it was found.
type Namespace struct{ Endpoint, Workspace, Name string }

// Key identifies an object in a namespace.
type Key struct {
	Resource schema.GroupVersionResource
	Name     string
}

// content is what the index knows of one namespace.
type content struct {
	objects map[Key]*unstructured.Unstructured
	// assignments are the Assignments of the namespace by cluster.
	assignments map[string]*v1alpha1.Assignment
	// reports are what the agents reported of each object, by cluster. They report again after a restart of the fleet.
	reports map[Key]map[string]Report
	// refers are the names of the secrets to which each object refers, and used counts the objects that refer to each secret. Each change
	// of an object updates both, so that its cost does not depend on the other objects of the namespace.
	refers map[Key]map[string]bool
	used   map[string]int
	// bound are the names of the PersistentVolumeClaims whose volumes can be used on one cluster only.
	bound map[string]bool
	// demand is what the objects require of a cluster, and expected is what each cluster has to expect of that.
	demand   demand
	expected map[string]corev1.ResourceList
}

// Report is the state of an object on one cluster.
type Report struct {
	Status  map[string]any
	Message string
}

// Index holds all objects that may run on clusters, and their assignments. All methods are safe for concurrent use.
type Index struct {
	// changed is called after a report, without the lock.
	changed func(Namespace, Key)

	mu sync.Mutex // guards all below
	// namespaces have objects or assignments.
	namespaces map[Namespace]*content
	// assigned are the namespaces of Assignments, by the names of these.
	assigned map[string]Namespace
	feeds    map[string]*Feed
	// synced are the endpoints of which the index has all objects.
	synced map[string]bool
	// expected are the requests of copies that are not ready, by cluster, and limits are those of each copy.
	expected map[string]corev1.ResourceList
	limits   map[string]limits
	// first is the resource version at which the feeds begin. It is higher than those of former processes.
	first uint64
	// ready is true when the index has all Assignments.
	ready bool
}

// NewIndex returns an empty index. first must be higher than the resource versions that a former process returned.
func NewIndex(first uint64, changed func(Namespace, Key)) *Index {
	return &Index{
		changed: changed, namespaces: map[Namespace]*content{}, assigned: map[string]Namespace{}, feeds: map[string]*Feed{},
		synced: map[string]bool{}, expected: map[string]corev1.ResourceList{}, first: first,
	}
}

// SetReady says that the index has all Assignments. Before that, feeds answer no request.
func (x *Index) SetReady() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ready = true
}

// SetSynced says whether the index has all objects of an endpoint.
func (x *Index) SetSynced(endpoint string, synced bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.synced[endpoint] = synced
}

func (x *Index) at(n Namespace) *content {
	c := x.namespaces[n]
	if c == nil {
		c = &content{
			objects:     map[Key]*unstructured.Unstructured{},
			assignments: map[string]*v1alpha1.Assignment{},
			reports:     map[Key]map[string]Report{},
			refers:      map[Key]map[string]bool{},
			used:        map[string]int{},
			bound:       map[string]bool{},
			demand:      newDemand(),
			expected:    map[string]corev1.ResourceList{},
		}
		x.namespaces[n] = c
	}
	return c
}

func (x *Index) tidy(n Namespace) {
	if c := x.namespaces[n]; len(c.objects) == 0 && len(c.assignments) == 0 {
		delete(x.namespaces, n)
	}
}

// SetObject adds or replaces an object, which nothing may change afterwards. A nil object removes it. It reports whether the clusters that
// the namespace may run on may be others now.
func (x *Index) SetObject(n Namespace, key Key, object *unstructured.Unstructured) (decisive bool) {
	list := requests(key, object) // without the lock: a pod may have many containers
	x.mu.Lock()
	defer x.mu.Unlock()
	c := x.at(n)
	former := c.firstBound()
	decisive = c.demand.count(key, c.objects[key] != nil, object != nil)
	if c.demand.set(key, list) {
		for cluster := range c.assignments {
			x.expect(c, cluster)
		}
	}
	c.objects[key] = object
	if object == nil {
		delete(c.objects, key)
		delete(c.reports, key)
	}
	if key.Resource.GroupResource() == claims {
		if delete(c.bound, key.Name); isBound(object) {
			c.bound[key.Name] = true
		}
	}
	changed := append(c.refer(key, references(key, object)), key)
	for cluster := range c.assignments {
		for _, key := range changed {
			x.project(c, cluster, key)
		}
	}
	decisive = decisive || c.firstBound() != former
	x.tidy(n)
	return decisive
}

// SetAssignment adds or replaces an Assignment. It reports whether the statuses that the workspace shows may be others now.
func (x *Index) SetAssignment(a *v1alpha1.Assignment) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := namespaceOf(a)
	if former, ok := x.assigned[a.Name]; ok && former != n {
		x.remove(former, a.Spec.Cluster)
	}
	x.assigned[a.Name] = n
	c := x.at(n)
	former := c.assignments[a.Spec.Cluster]
	c.assignments[a.Spec.Cluster] = a
	x.expect(c, a.Spec.Cluster)
	if former != nil && former.UID == a.UID && equality.Semantic.DeepEqual(former.Spec, a.Spec) {
		return former.Status.Phase != a.Status.Phase // a report of the agent changes nothing that it sees
	}
	for key := range c.objects {
		x.project(c, a.Spec.Cluster, key)
	}
	return true
}

// RemoveAssignment removes an Assignment.
func (x *Index) RemoveAssignment(a *v1alpha1.Assignment) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if n, ok := x.assigned[a.Name]; ok && x.namespaces[n].assignments[a.Spec.Cluster].UID == a.UID {
		x.remove(n, a.Spec.Cluster)
		delete(x.assigned, a.Name)
	}
}

func (x *Index) remove(n Namespace, cluster string) {
	c := x.namespaces[n]
	f := x.feed(cluster)
	for name, w := range f.items[c.assignments[cluster].Name] {
		f.set(name, w.key, nil)
	}
	delete(c.assignments, cluster)
	x.expect(c, cluster)
	for _, reports := range c.reports {
		delete(reports, cluster)
	}
	x.tidy(n)
}

func (x *Index) draining(n Namespace, cluster string) bool {
	c := x.namespaces[n]
	return c != nil && c.assignments[cluster] != nil && c.assignments[cluster].Spec.Draining
}

// Assignments returns the Assignments of a namespace.
func (x *Index) Assignments(n Namespace) (list []v1alpha1.Assignment) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if c := x.namespaces[n]; c != nil {
		for _, a := range c.assignments {
			list = append(list, *a)
		}
	}
	return list
}

// BoundClaim returns the first PersistentVolumeClaim of a namespace by name whose volume can be used on one cluster only, or "".
func (x *Index) BoundClaim(n Namespace) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	if c := x.namespaces[n]; c != nil {
		return c.firstBound()
	}
	return ""
}

func (c *content) firstBound() (first string) {
	for name := range c.bound {
		if first == "" || name < first {
			first = name
		}
	}
	return first
}

// Namespaces returns the namespaces that have assignments.
func (x *Index) Namespaces() (list []Namespace) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, n := range x.assigned {
		list = append(list, n)
	}
	return list
}

// Phases returns the number of Assignments in each phase.
func (x *Index) Phases() map[v1alpha1.AssignmentPhase]int {
	x.mu.Lock()
	defer x.mu.Unlock()
	phases := map[v1alpha1.AssignmentPhase]int{}
	for _, c := range x.namespaces {
		for _, a := range c.assignments {
			phases[a.Status.Phase]++
		}
	}
	return phases
}

func namespaceOf(a *v1alpha1.Assignment) Namespace {
	return Namespace{a.Spec.Endpoint, a.Spec.Workspace, a.Spec.Namespace}
}

// project updates the feed of a cluster with an object of a namespace.
func (x *Index) project(c *content, cluster string, key Key) {
	x.feed(cluster).set(nameOf(c.assignments[cluster], key), key, c.workload(cluster, key))
}

func (x *Index) feed(cluster string) *Feed {
	f := x.feeds[cluster]
	if f == nil {
		f = newFeed(x, cluster)
		x.feeds[cluster] = f
	}
	return f
}

// Feed returns the feed of a cluster.
func (x *Index) Feed(cluster string) *Feed {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.feed(cluster)
}

// Reports returns an object with its assignments that do not drain and what their agents reported. It returns nil for an unknown object.
func (x *Index) Reports(n Namespace, key Key) (*unstructured.Unstructured, map[string]*v1alpha1.Assignment, map[string]Report) {
	x.mu.Lock()
	defer x.mu.Unlock()
	c := x.namespaces[n]
	if c == nil || c.objects[key] == nil {
		return nil, nil, nil
	}
	assignments, reports := map[string]*v1alpha1.Assignment{}, map[string]Report{}
	for cluster, a := range c.assignments {
		if a.Spec.Draining {
			continue
		}
		assignments[cluster] = a
		if r, ok := c.reports[key][cluster]; ok {
			reports[cluster] = r
		}
	}
	return c.objects[key], assignments, reports
}

// Keys returns the objects of a namespace.
func (x *Index) Keys(n Namespace) (keys []Key) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if c := x.namespaces[n]; c != nil {
		for key := range c.objects {
			keys = append(keys, key)
		}
	}
	return keys
}

// nameOf returns the name of the workload of an object: that of its assignment, and a hash.
func nameOf(a *v1alpha1.Assignment, key Key) string {
	sum := sha256.Sum256([]byte(key.Resource.GroupResource().String() + "/" + key.Name))
	return a.Name + "." + hex.EncodeToString(sum[:10])
}

// AssignmentName returns the name of the Assignment of a namespace on a cluster.
func AssignmentName(workspace, namespace, cluster string) string {
	sum := sha256.Sum256([]byte(workspace + "/" + namespace + "/" + cluster))
	return hex.EncodeToString(sum[:10])
}

// errUnknown is the answer to questions about objects that the fleet does not know: nothing may be deleted because of it.
func errUnknown() error {
	return apierrors.NewServiceUnavailable("the fleet does not know all objects of this workspace yet")
}
