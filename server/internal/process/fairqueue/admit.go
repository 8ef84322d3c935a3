package fairqueue

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// open returns the number of open requests of a leaf.
func (n *node) open() int { return n.count[Read] + n.count[Write] + n.count[Watch] }

// admit returns an error if a request of a kind would exceed a limit.
func (q *Queue) admit(leaf *node, kind Kind) error {
	open, limit, what, are := leaf.count[Read]+leaf.count[Write], q.config.Requests, "requests", kind.String()+"s in flight"
	if kind == Watch {
		open, limit, what, are = leaf.count[Watch], q.config.Watches, "watches", "watches open"
	}
	whose := "the logical cluster"
	if leaf.holder.User != "" {
		whose = "the user, in a logical cluster that all users share,"
	}
	if limit > 0 && open >= limit {
		q.metrics.refused("cluster", kind)
		return apierrors.NewTooManyRequests(fmt.Sprintf("%s has %d %s open, and may have no more at a time", whose, open, what), retrySoon)
	}
	if kind != Watch && limit > 0 && leaf.held[kind] >= max(1, limit/2) {
		q.metrics.refused("waiting", kind)
		return apierrors.NewTooManyRequests(fmt.Sprintf("%s has %d %ss that wait for hosts that it has configured, such as hosts of "+
			"webhooks, and may have no more at a time: check why these hosts do not respond", whose, leaf.held[kind], kind), retryLater)
	}
	if i := q.crammed(leaf, kind); i >= 0 {
		q.metrics.refused("share", kind)
		return apierrors.NewTooManyRequests(fmt.Sprintf("%s has %d %s, which is its share of the free capacity of the server: "+
			"wait for some to end",
			[...]string{"the owner of the workspace", "the workspace below root", "the owner of the logical cluster", whose}[i],
			leaf.chain[i].count[kind], are), retrySoon)
	}
	return nil
}

const (
	// An account has few requests while it has less than 1/few of a total, any other member of the tree while it has less than 1/fewer.
	few, fewer = 100, 400
	// 1/reserved of a total is reserved for accounts with few requests, and 1/spare for clusters with few requests within an account.
	reserved, spare = 4, 16
)

// crammed returns the level at which a leaf has used its share of all requests in flight, -1 without such a level.
func (q *Queue) crammed(leaf *node, kind Kind) int {
	total := q.config.Total[kind]
	if total == 0 {
		return -1
	}
	free := total - q.root.count[kind]
	extra := 0
	if leaf.count[kind] < max(1, total/fewer) {
		extra = total / spare
	}
	for i, n := range leaf.chain {
		if i > 0 && n.count[kind] == n.parent.count[kind] {
			continue // it has no sibling at this level
		}
		left, light := free+extra, n.count[kind] < max(1, total/fewer)
		if i == 0 {
			if left, light = free, n.count[kind] < max(1, total/few); !light {
				left += extra - total/reserved
			}
		}
		if left <= 0 || (n.count[kind] >= left && !light) {
			return i
		}
		free -= n.count[kind]
	}
	return -1
}
