package etcdbackup

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/operatortest"
	"github.com/kcplane/kcp/operator/internal/retention"
)

// calendar is a schedule named s, of three o'clock in the night, and a clock.
type calendar struct {
	*operatortest.Cluster
	t   *testing.T
	now time.Time
}

func newCalendar(t *testing.T, available bool, change func(*v1alpha1.EtcdBackupScheduleSpec)) *calendar {
	t.Helper()
	schedule := &v1alpha1.EtcdBackupSchedule{
		ObjectMeta: metav1.ObjectMeta{Name: "s", CreationTimestamp: metav1.NewTime(now)},
		Spec:       v1alpha1.EtcdBackupScheduleSpec{Cluster: "x", Store: onVolume, Schedule: "0 3 * * *", KeepLast: new(int32(2))},
	}
	if change != nil {
		change(&schedule.Spec)
	}
	return &calendar{Cluster: with(etcd(available), schedule), t: t, now: now}
}

// at sets the clock, lets the schedule be followed, and returns the backups that there are then.
func (c *calendar) at(clock time.Time) []v1alpha1.EtcdBackup {
	c.t.Helper()
	c.now = clock
	c.Reconcile(c.t, &ScheduleReconciler{Client: c, Live: c, Recorder: c.Events, Now: func() time.Time { return c.now }}, "s")
	list := &v1alpha1.EtcdBackupList{}
	if err := c.List(c.t.Context(), list); err != nil {
		c.t.Fatal(err)
	}
	return list.Items
}

func (c *calendar) status() v1alpha1.EtcdBackupScheduleStatus {
	c.t.Helper()
	return operatortest.Read(c.t, c.Cluster, "s", &v1alpha1.EtcdBackupSchedule{}).Status
}

// complete ends all backups, well or badly.
func (c *calendar) complete(well bool) {
	c.t.Helper()
	list := &v1alpha1.EtcdBackupList{}
	if err := c.List(c.t.Context(), list); err != nil {
		c.t.Fatal(err)
	}
	for i := range list.Items {
		b := &list.Items[i]
		if b.Status.CompletedAt != nil {
			continue
		}
		b.Status.CompletedAt = new(metav1.NewTime(c.now).Rfc3339Copy())
		if well {
			b.Status.Snapshot = &v1alpha1.EtcdSnapshotStatus{Key: retention.Key("team/x", c.now, 1)}
		}
		if err := c.Status().Update(c.t.Context(), b); err != nil {
			c.t.Fatal(err)
		}
	}
}

var three = time.Date(2031, 5, 7, 3, 0, 0, 0, time.UTC)

func TestSnapshotsAreTakenWhenItIsTime(t *testing.T) {
	c := newCalendar(t, true, nil)
	if n := len(c.at(three.Add(-time.Second))); n != 0 {
		t.Errorf("%d snapshots before it is time", n)
	}
	for range 2 {
		if n := len(c.at(three.Add(time.Second))); n != 1 {
			t.Errorf("%d snapshots when it is time", n)
		}
	}
	if n := len(c.at(three.Add(24 * time.Hour))); n != 1 {
		t.Errorf("%d snapshots while the last one goes on", n)
	}
	c.complete(true)
	if n := len(c.at(three.Add(25 * time.Hour))); n != 2 {
		t.Errorf("%d snapshots a day later", n)
	}
	if c.status().LastSuccess == nil {
		t.Error("the last success is not reported")
	}
	c.complete(true)
	c.at(three.Add(96 * time.Hour)) // three times were missed: there is one snapshot for all
	c.complete(true)
	if n := len(c.at(three.Add(97 * time.Hour))); n != 2 {
		t.Errorf("%d are kept", n)
	}
}

func TestSnapshotsOfDaysAndWeeksAreKept(t *testing.T) {
	c := newCalendar(t, true, func(s *v1alpha1.EtcdBackupScheduleSpec) {
		s.KeepLast, s.KeepDaily, s.KeepWeekly = new(int32(1)), new(int32(3)), new(int32(2))
	})
	for day := range 10 { // from a Wednesday to the Friday of the next week
		c.at(three.Add(time.Duration(24*day) * time.Hour))
		c.complete(true)
	}
	var kept []string
	for _, b := range c.at(three.Add(9*24*time.Hour + time.Minute)) {
		at, _ := retention.TimeOf(b.Status.Snapshot.Key)
		kept = append(kept, at.Format(time.DateOnly))
		if *b.Spec.KeepDaily != 3 || *b.Spec.KeepWeekly != 2 {
			t.Errorf("%s deletes others by %+v", b.Name, b.Spec)
		}
	}
	if want := []string{"2031-05-11", "2031-05-14", "2031-05-15", "2031-05-16"}; !slices.Equal(kept, want) {
		t.Errorf("kept are %v, not %v", kept, want)
	}
}

func TestASnapshotThatFailedIsToldUntilOneSucceeds(t *testing.T) {
	c := newCalendar(t, true, nil)
	c.at(three)
	c.complete(false)
	c.at(three.Add(time.Hour))
	says(t, c.status().Conditions, v1alpha1.ConditionReady, "False", "failed: see its conditions")
	c.at(three.Add(24 * time.Hour))
	c.complete(true)
	c.at(three.Add(25 * time.Hour))
	says(t, c.status().Conditions, v1alpha1.ConditionReady, "True", "")
}

func TestNoSnapshotIsBegunThatWouldFail(t *testing.T) {
	c := newCalendar(t, false, nil)
	if n := len(c.at(three)); n != 0 {
		t.Errorf("%d snapshots of a cluster that cannot be used", n)
	}
	says(t, c.status().Conditions, v1alpha1.ConditionReady, "False", "no member is ready for a snapshot")
}

func TestASnapshotThatWouldBeTooLateIsGivenUp(t *testing.T) {
	c := newCalendar(t, false, func(s *v1alpha1.EtcdBackupScheduleSpec) { s.StartingDeadlineSeconds = new(int64(600)) })
	c.at(three.Add(10 * time.Minute))
	says(t, c.status().Conditions, v1alpha1.ConditionReady, "False", "no member is ready for a snapshot")
	c.at(three.Add(11 * time.Minute))
	says(t, c.status().Conditions, v1alpha1.ConditionReady, "False", "the snapshot of 2031-05-07T03:00:00Z could not be started within 10m0s")
	cluster := operatortest.Read(t, c.Cluster, "x", &v1alpha1.EtcdCluster{})
	cluster.Status = etcd(true).Status
	c.MustUpdateStatus(t, cluster)
	if n := len(c.at(three.Add(12 * time.Minute))); n != 0 {
		t.Errorf("%d snapshots though they are too late", n)
	}
	if n := len(c.at(three.Add(48*time.Hour + time.Minute))); n != 1 { // a day was missed, and this one is in time
		t.Errorf("%d snapshots at the next time that is not missed", n)
	}
}

func TestSchedulesHaveTimeZonesAndCanBeSuspended(t *testing.T) {
	c := newCalendar(t, true, func(s *v1alpha1.EtcdBackupScheduleSpec) { s.TimeZone = "Asia/Tokyo" })
	if n := len(c.at(time.Date(2031, 5, 6, 18, 0, 1, 0, time.UTC))); n != 1 {
		t.Errorf("%d snapshots at three o'clock in Tokyo", n)
	}
	c = newCalendar(t, true, func(s *v1alpha1.EtcdBackupScheduleSpec) { s.Suspend = true })
	if n := len(c.at(three)); n != 0 {
		t.Errorf("%d snapshots of a schedule that is suspended", n)
	}
	c = newCalendar(t, true, func(s *v1alpha1.EtcdBackupScheduleSpec) { s.TimeZone = "Nowhere/Town" })
	c.at(three)
	says(t, c.status().Conditions, v1alpha1.ConditionStalled, "True", "Nowhere/Town")
}
