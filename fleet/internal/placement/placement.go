// Package placement decides on which clusters the objects of a namespace run. A decision is a function of a snapshot: it reads no
// clock and no server.
package placement

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/api/fleet/v1alpha1"
)

// Snapshot is what a decision about one namespace depends on.
type Snapshot struct {
	// Key identifies the namespace: workspace and name.
	Key string
	// Placement selects the namespace. Nil means that it runs nowhere.
	Placement *v1alpha1.PlacementSpec
	Clusters  []v1alpha1.Cluster
	// Assignments are those of the namespace.
	Assignments []v1alpha1.Assignment
	// BoundClaim is a PersistentVolumeClaim of the namespace that is bound to a volume of one cluster, or empty. Its content does not move:
	// a copy that has been ready stays on its cluster.
	BoundClaim string
	// Requests is what the pods of the namespace request together, and Resources are those of its objects.
	Requests  corev1.ResourceList
	Resources []schema.GroupResource
	// Expected is what pods will request on each cluster, and are not part of what its agent reports.
	Expected map[string]corev1.ResourceList
	Now      time.Time
}

// Decision is what to change.
type Decision struct {
	// Create are the shares of new assignments by cluster.
	Create map[string]*v1alpha1.Share
	// Share are the new shares of existing assignments by cluster.
	Share map[string]*v1alpha1.Share
	// Drain are the clusters whose copy must be removed.
	Drain []string
	// Delete are the clusters whose assignment has no copy any more.
	Delete []string
	// Moves reports whether the changes begin a move: a created assignment replaces another one, or one is drained first.
	Moves bool
	// Unscheduled says why the namespace has no cluster, or keeps one that it should leave.
	Unscheduled string
	// Pinned says why the namespace stays on a cluster that it should leave, because of a volume.
	Pinned string
	// Again is the time until the decision may change without an event; 0 means never.
	Again time.Duration
}

// untilRoom is the time until a namespace without room is decided on again. Reports of agents are not the only events that make room:
// copies of other namespaces that were expected may never appear.
const untilRoom = time.Minute

// Decide returns the changes for a namespace. It keeps what is placed while that is allowed, and never removes a copy before its
// replacement is ready, unless the Placement breaks before it makes.
func Decide(s Snapshot) (d Decision, err error) {
	current, known := map[string]*v1alpha1.Assignment{}, map[string]bool{}
	for i := range s.Clusters {
		known[s.Clusters[i].Name] = true
	}
	waiting := false
	for i := range s.Assignments {
		a := &s.Assignments[i]
		switch {
		case !a.Spec.Draining:
			current[a.Spec.Cluster] = a
		case !known[a.Spec.Cluster] || (a.Status.Phase == v1alpha1.AssignmentGone && a.Status.ObservedGeneration == a.Generation):
			d.Delete = append(d.Delete, a.Spec.Cluster)
		default:
			waiting = true
		}
	}
	slices.Sort(d.Delete)
	if s.Placement == nil {
		d.Drain = without(current, nil)
		return d, nil
	}
	c, err := s.candidates(current, &d)
	if err != nil {
		return d, err
	}
	target := c.target(s.Placement)
	leaving := without(current, target)
	breaks := s.Placement.Move == v1alpha1.BreakBeforeMake
	switch {
	case len(target) == 0:
		d.Unscheduled = c.reason()
		if c.full && (d.Again == 0 || d.Again > untilRoom) {
			d.Again = untilRoom
		}
		return d, nil
	case breaks && (len(leaving) > 0 || waiting):
		d.Drain = leaving
		target = slices.DeleteFunc(target, func(name string) bool { return current[name] == nil })
	}
	if settled := d.share(s.Placement, target, current); settled && !breaks {
		d.Drain = leaving
	}
	d.Moves = (breaks && len(leaving) > 0) || (len(d.Create) > 0 && (len(leaving) > 0 || waiting))
	return d, nil
}

// isReady reports whether all objects of an assignment are ready, in its present share.
func isReady(a *v1alpha1.Assignment) bool {
	return a != nil && a.Status.Phase == v1alpha1.AssignmentReady && a.Status.ObservedGeneration == a.Generation
}

func without(current map[string]*v1alpha1.Assignment, target []string) (leaving []string) {
	for _, name := range sorted(current) {
		if !slices.Contains(target, name) {
			leaving = append(leaving, name)
		}
	}
	return leaving
}

func sorted[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// candidates are the clusters that a namespace may run on, each list with the best first.
type candidates struct {
	stay, accept []string
	refused      []string        // why other clusters cannot be used
	pinned       map[string]bool // clusters that hold a volume of the namespace
	full         bool            // some of the others lack room
}

// pins reports whether an assignment holds a volume.
func (s Snapshot) pins(a *v1alpha1.Assignment) bool {
	return s.BoundClaim != "" && a != nil && a.Status.Phase == v1alpha1.AssignmentReady
}

func (s Snapshot) candidates(current map[string]*v1alpha1.Assignment, d *Decision) (c candidates, err error) {
	c.pinned = map[string]bool{}
	selector := labels.Everything()
	if s.Placement.ClusterSelector != nil {
		if selector, err = metav1.LabelSelectorAsSelector(s.Placement.ClusterSelector); err != nil {
			return c, fmt.Errorf("spec.clusterSelector: %w", err)
		}
	}
	for i := range s.Clusters {
		cluster := &s.Clusters[i]
		selected, a := selector.Matches(labels.Set(cluster.Labels)), current[cluster.Name]
		mayStay, again := s.mayStay(cluster)
		mayStay = mayStay && selected
		if s.pins(a) {
			c.pinned[cluster.Name] = true
			c.stay = append(c.stay, cluster.Name)
			if !mayStay {
				d.Pinned = fmt.Sprintf("stays on cluster %q, which holds the volume of PersistentVolumeClaim %q: "+
					"delete the claim to let the namespace move without its content", cluster.Name, s.BoundClaim)
				continue
			}
		}
		if !selected {
			continue
		}
		if a != nil && mayStay {
			if !c.pinned[cluster.Name] {
				c.stay = append(c.stay, cluster.Name)
			}
			if again > 0 && (d.Again == 0 || again < d.Again) {
				d.Again = again
			}
			continue
		}
		if why := s.refuses(cluster); why != "" {
			c.refused = append(c.refused, cluster.Name+" "+why)
		} else if !slices.ContainsFunc(s.Assignments, func(a v1alpha1.Assignment) bool { return a.Spec.Cluster == cluster.Name }) {
			c.accept = append(c.accept, cluster.Name)
		}
	}
	slices.SortFunc(c.stay, func(a, b string) int {
		if c.pinned[a] != c.pinned[b] {
			return map[bool]int{true: -1, false: 1}[c.pinned[a]]
		}
		if x, y := isReady(current[a]), isReady(current[b]); x != y {
			return map[bool]int{true: -1, false: 1}[x]
		}
		return s.compare(a, b)
	})
	slices.SortFunc(c.accept, s.compareRoom)
	s.leaveOutFull(&c)
	slices.Sort(c.refused)
	return c, nil
}

// compare orders clusters by rendezvous hashing: the order of a namespace is stable, and namespaces spread over the clusters.
func (s Snapshot) compare(a, b string) int {
	return cmp.Or(cmp.Compare(score(s.Key, b), score(s.Key, a)), strings.Compare(a, b))
}

func score(key, cluster string) uint64 {
	sum := sha256.Sum256([]byte(key + "\x00" + cluster))
	return binary.BigEndian.Uint64(sum[:])
}

// target returns the clusters that the namespace should run on.
func (c candidates) target(p *v1alpha1.PlacementSpec) []string {
	all := append(slices.Clone(c.stay), c.accept...)
	limit := 1
	if p.Strategy == v1alpha1.Spread {
		limit = len(all)
		if p.Spread != nil {
			all = slices.DeleteFunc(all, func(name string) bool { return weight(p, name) == 0 && !c.pinned[name] })
			if limit = len(all); p.Spread.Max != nil {
				limit = min(limit, int(*p.Spread.Max))
			}
		}
	}
	return all[:min(limit, len(all))]
}

func weight(p *v1alpha1.PlacementSpec, cluster string) int64 {
	if p.Spread == nil {
		return 1
	}
	if w, ok := p.Spread.Weights[cluster]; ok {
		return int64(w)
	}
	return 1
}

func (c candidates) reason() string {
	if len(c.refused) == 0 {
		return "no cluster matches the clusterSelector"
	}
	return "no cluster fits: " + strings.Join(c.refused[:min(len(c.refused), 10)], ", ")
}

// share sets what is created, and the shares that change. It reports whether all clusters run their part: shares that shrink wait for
// this, and so do copies that are removed.
func (d *Decision) share(p *v1alpha1.PlacementSpec, target []string, current map[string]*v1alpha1.Assignment) (settled bool) {
	d.Create, d.Share = map[string]*v1alpha1.Share{}, map[string]*v1alpha1.Share{}
	shrinking := map[string]*v1alpha1.Share{}
	shares := sharesOf(p, target)
	settled = true
	for _, name := range target {
		a, share := current[name], shares[name]
		switch {
		case a == nil:
			d.Create[name], settled = share, false
		case equal(a.Spec.Share, share):
			settled = settled && isReady(a)
		case smaller(share, a.Spec.Share):
			shrinking[name] = share
			settled = settled && isReady(a)
		default:
			d.Share[name], settled = share, false
		}
	}
	if settled {
		d.Share = shrinking
	}
	return settled
}

// sharesOf divides the replicas among clusters by their weights, in the order of their names. A single cluster has no share: it runs all.
func sharesOf(p *v1alpha1.PlacementSpec, target []string) map[string]*v1alpha1.Share {
	shares := map[string]*v1alpha1.Share{}
	if p.Strategy != v1alpha1.Spread {
		return shares
	}
	names := slices.Sorted(slices.Values(target))
	total := int64(0)
	part := func(name string) int64 { return max(1, weight(p, name)) } // a cluster without a weight is there because of a volume
	for _, name := range names {
		total += part(name)
	}
	offset := int64(0)
	for _, name := range names {
		shares[name] = &v1alpha1.Share{Offset: offset, Weight: part(name), Total: total}
		offset += part(name)
	}
	return shares
}

func equal(a, b *v1alpha1.Share) bool {
	return (a == nil && b == nil) || (a != nil && b != nil && *a == *b)
}

// smaller reports whether a is a smaller part than b.
func smaller(a, b *v1alpha1.Share) bool {
	if a == nil {
		return false
	}
	return b == nil || a.Weight*b.Total < b.Weight*a.Total
}

// refuses returns why a cluster takes no new assignment, or "".
func (s Snapshot) refuses(cluster *v1alpha1.Cluster) string {
	switch {
	case cluster.Spec.Drain:
		return "is drained"
	case cluster.Spec.Cordon:
		return "is cordoned"
	case cluster.DeletionTimestamp != nil:
		return "is being deleted"
	case !meta.IsStatusConditionTrue(cluster.Status.Conditions, v1alpha1.ClusterReady):
		return "is not ready"
	}
	for _, taint := range cluster.Spec.Taints {
		if !s.tolerates(taint) {
			return "has the taint " + taint.Key
		}
	}
	return s.incompatible(cluster)
}

// mayStay reports whether a cluster may keep an assignment, and for how long if that is limited.
func (s Snapshot) mayStay(cluster *v1alpha1.Cluster) (bool, time.Duration) {
	if cluster.Spec.Drain || cluster.DeletionTimestamp != nil || s.incompatible(cluster) != "" {
		return false, 0
	}
	for _, taint := range cluster.Spec.Taints {
		if taint.Effect == corev1.TaintEffectNoExecute && !s.tolerates(taint) {
			return false, 0
		}
	}
	ready := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ClusterReady)
	if ready == nil || ready.Status == metav1.ConditionTrue {
		return true, 0
	}
	limit, limited := s.untilMove()
	if !limited {
		return true, 0
	}
	left := limit - s.Now.Sub(ready.LastTransitionTime.Time)
	return left > 0, left
}

func (s Snapshot) tolerates(taint v1alpha1.Taint) bool {
	return slices.ContainsFunc(s.Placement.Tolerations, func(t v1alpha1.Toleration) bool { return matches(t, taint) })
}

func matches(t v1alpha1.Toleration, taint v1alpha1.Taint) bool {
	return (t.Key == "" || t.Key == taint.Key) && (t.Value == "" || t.Value == taint.Value) && (t.Effect == "" || t.Effect == taint.Effect)
}

// untilMove returns how long the namespace stays on a cluster that is not ready. It stays forever unless a toleration of exactly that
// taint has a time.
func (s Snapshot) untilMove() (limit time.Duration, limited bool) {
	for _, t := range s.Placement.Tolerations {
		if t.Key == v1alpha1.NotReadyTaint && t.TolerationSeconds != nil {
			own := time.Duration(*t.TolerationSeconds) * time.Second
			if !limited || own < limit {
				limit, limited = own, true
			}
		}
	}
	return limit, limited
}
