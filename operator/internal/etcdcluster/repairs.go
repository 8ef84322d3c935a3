package etcdcluster

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
)

// repairInterval is the minimum time between two replacements of a member.
const repairInterval = 10 * time.Minute

// repairedUntil returns when a member may be replaced again, or zero if it may be replaced now.
func (s *scope) repairedUntil(member string) time.Time {
	for _, repair := range s.cluster.Status.Repairs {
		if until := repair.At.Add(repairInterval); repair.Member == member && until.After(s.Now()) {
			return until
		}
	}
	return time.Time{}
}

// reportRepairs reports the start of a replacement, and updates its time when the new member is promoted.
func (s *scope) reportRepairs(d decision) {
	status, member := &s.cluster.Status, memberName(s.cluster, d.ordinal)
	isIt := func(r v1alpha1.EtcdRepairStatus) bool { return r.Member == member }
	ends := d.step == stepPromote && slices.ContainsFunc(status.Repairs, isIt)
	status.Repairs = slices.DeleteFunc(status.Repairs, func(r v1alpha1.EtcdRepairStatus) bool {
		return s.repairedUntil(r.Member).IsZero() || (d.repair || ends) && isIt(r)
	})
	if d.repair || ends {
		status.Repairs = append(status.Repairs, v1alpha1.EtcdRepairStatus{Member: member, At: metav1.NewTime(s.Now()).Rfc3339Copy()})
	}
}
