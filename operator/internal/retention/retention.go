// Package retention decides which snapshots of an etcd are kept. The program that deletes snapshots and the operator that deletes their
// EtcdBackups must decide the same.
package retention

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// keyTime makes keys sort by time.
const keyTime = "20060102T150405Z"

// Key returns the key of a snapshot of a cluster, which is namespace/name, at a time. It includes the namespace, so that clusters of the
// same name in other namespaces can use the same store.
func Key(cluster string, at time.Time, revision int64) string {
	return fmt.Sprintf("%s/%s-%d.db", cluster, at.UTC().Format(keyTime), revision)
}

// SecretsSuffix is the suffix of the key of the Secrets that belong to a snapshot.
const SecretsSuffix = ".secrets"

// TimeOf returns when a snapshot was taken, according to its key. Other keys do not belong to snapshots.
func TimeOf(key string) (at time.Time, ok bool) {
	name, _, _ := strings.Cut(path.Base(key), "-")
	at, err := time.Parse(keyTime, name)
	return at, err == nil
}

// Policy is the number of snapshots to keep: the last ones, and the last one of each day and week, for a number of days and weeks with
// snapshots, in UTC. The zero policy keeps all snapshots.
type Policy struct {
	Last, Daily, Weekly int
}

// Keeps returns for each snapshot, given by its time, whether it is kept. Of two equal times, the second counts as later.
func (p Policy) Keeps(times []time.Time) []bool {
	order := make([]int, len(times))
	for i := range order {
		order[i] = len(times) - 1 - i
	}
	slices.SortStableFunc(order, func(a, b int) int { return times[b].Compare(times[a]) })
	kept := make([]bool, len(times))
	days, weeks := period{most: p.Daily}, period{most: p.Weekly}
	for rank, i := range order {
		year, week := times[i].UTC().ISOWeek()
		day, ofWeek := days.begins(times[i].UTC().Format(time.DateOnly)), weeks.begins(fmt.Sprint(year, week))
		kept[i] = p == Policy{} || rank < p.Last || day || ofWeek
	}
	return kept
}

// period has the days or weeks of which a snapshot is kept.
type period struct {
	most int
	seen []string
}

// begins reports whether a day or week is a new one, of which a snapshot is kept.
func (p *period) begins(name string) bool {
	if len(p.seen) >= p.most || slices.Contains(p.seen, name) {
		return false
	}
	p.seen = append(p.seen, name)
	return true
}
