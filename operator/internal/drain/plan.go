package drain

import (
	"maps"
	"slices"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	"github.com/kcplane/kcp/api/operator/v1alpha1"
)

// Plan decides what happens next to a shard that is drained. It takes the logical clusters of the shard page by page, and looks at each one
// once, so that a shard with many of them is not read completely before each move.
type Plan struct {
	*state
	// was is the stored progress. While it is nil, nothing begins: the number of logical clusters at the start is stored first, because it
	// cannot be read later.
	was    *v1alpha1.DrainStatus
	report report
	begin  []Move
	// seen is the number of logical clusters that were added, total that of all.
	seen, total int64
}

// NewPlan returns a plan without logical clusters.
func NewPlan(in Snapshot, was *v1alpha1.DrainStatus) *Plan { return &Plan{state: read(in), was: was} }

// Add adds a page of logical clusters; total is the number of all.
func (p *Plan) Add(page []corev1alpha1.ShardLogicalCluster, total int64) {
	p.total, p.seen = total, p.seen+int64(len(page))
	for _, lc := range page {
		p.add(lc)
	}
}

func (p *Plan) add(lc corev1alpha1.ShardLogicalCluster) {
	waits, moves := p.moving[lc.Name]
	failed, hasFailed := p.failed[lc.Name]
	r := &p.report
	switch {
	case moves:
		r.moving++
		if r.waiting == "" && waits != "" {
			r.waiting = lc.Path + ": " + waits
		}
	case lc.Deleting:
		r.deleting++
	case hasFailed:
		r.add(lc, failed.message)
	case lc.Stays != "":
		r.add(lc, lc.Stays)
	case !p.begins():
		r.later++
	default:
		p.place(lc)
	}
}

// begins reports whether another move may begin.
func (p *Plan) begins() bool {
	return p.was != nil && p.own+len(p.begin) < Parallel && len(p.failed) < maxFailed
}

// place begins the move of a logical cluster, or reports that no shard accepts it.
func (p *Plan) place(lc corev1alpha1.ShardLogicalCluster) {
	destination := p.destination(lc)
	if destination != "" {
		p.begin = append(p.begin, Move{lc.Name, destination})
		p.arriving[destination]++
		return
	}
	if p.report.stuck++; len(p.report.failures) < maxShown {
		p.report.add(lc, p.nowhere(lc))
	} else {
		p.report.failed++
	}
}

// Enough reports whether other pages do not change what happens next: moves begin, or none can begin.
func (p *Plan) Enough() bool { return len(p.begin) > 0 || !p.begins() || !p.accepted() }

// Decision returns what happens next, with what was added.
func (p *Plan) Decision() Decision {
	d := Decision{Forget: p.forgotten, Begin: p.begin, Status: v1alpha1.DrainStatus{Total: p.total, Remaining: p.total}}
	if p.was != nil {
		d.Status.Total = max(p.was.Total, p.total)
	}
	if p.total == 0 {
		for _, failed := range p.failed {
			d.Forget = append(d.Forget, failed.migration)
		}
	}
	r := p.report
	if len(p.failed) >= maxFailed && r.failed == 0 { // they are on other pages
		for _, cluster := range slices.Sorted(maps.Keys(p.failed)) {
			r.add(corev1alpha1.ShardLogicalCluster{Name: cluster}, p.failed[cluster].message)
		}
	}
	if unread := max(0, p.total-p.seen); p.accepted() {
		r.later += unread
	} else {
		r.stuck, r.failed = r.stuck+unread, r.failed+unread
	}
	r.moving = min(p.total, max(r.moving+int64(len(p.begin)), int64(p.own+len(p.begin))))
	d.Status.Moving, d.Status.Failed, d.Status.Failures = int32(r.moving), int32(r.failed), r.failures
	d.Condition = p.condition(r, d.Status)
	return d
}
