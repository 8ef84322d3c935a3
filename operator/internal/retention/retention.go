// Package retention says which snapshots of an etcd stay, to the program that deletes them and to the operator that deletes the
// objects which stand for them: the two must not differ.
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

// Key returns the name of a snapshot that was taken at a time of a cluster, which is namespace/name: another cluster of the same name,
// which has the same store, keeps its own.
func Key(cluster string, at time.Time, revision int64) string {
	return fmt.Sprintf("%s/%s-%d.db", cluster, at.UTC().Format(keyTime), revision)
}

// SecretsSuffix is what the key of the Secrets that belong to a snapshot has more than its own.
const SecretsSuffix = ".secrets"

// TimeOf returns when a snapshot was taken, by its name. What has another name is none.
func TimeOf(key string) (at time.Time, ok bool) {
	name, _, _ := strings.Cut(path.Base(key), "-")
	at, err := time.Parse(keyTime, name)
	return at, err == nil
}

// Policy is how many snapshots stay: the last ones, and the last one of each of so many days and weeks that have any, in UTC. The
// zero policy keeps all.
type Policy struct {
	Last, Daily, Weekly int
}

// Keeps tells of each of the times at which snapshots were taken whether it stays. Of two that are the same, the second is later.
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

// period is the days or weeks of which a snapshot was seen.
type period struct {
	most int
	seen []string
}

// begins reports whether a day or week is the next of those that something is kept of.
func (p *period) begins(name string) bool {
	if len(p.seen) >= p.most || slices.Contains(p.seen, name) {
		return false
	}
	p.seen = append(p.seen, name)
	return true
}
