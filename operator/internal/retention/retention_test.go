package retention

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestNamesTellWhenSnapshotsWereTaken(t *testing.T) {
	at := time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)
	key := Key("team/my-etcd", at.In(time.FixedZone("east", 3600)), 42)
	if got, ok := TimeOf(key); key != "team/my-etcd/20310506T070809Z-42.db" || !ok || !got.Equal(at) {
		t.Errorf("%s is of %s, %t", key, got, ok)
	}
	if at, ok := TimeOf("my-etcd/notes.txt"); ok {
		t.Errorf("notes are of %s", at)
	}
}

func TestTheLastAndThoseOfDaysAndWeeksStay(t *testing.T) {
	// Two a day, from Wednesday to Tuesday, and one of a month before.
	times := []time.Time{time.Date(2031, 3, 30, 2, 0, 0, 0, time.UTC)}
	for day := 30; day <= 36; day++ {
		times = append(times, time.Date(2031, 4, day, 2, 0, 0, 0, time.UTC), time.Date(2031, 4, day, 14, 0, 0, 0, time.UTC))
	}
	for name, c := range map[string]struct {
		policy Policy
		want   []string
	}{
		"the last":           {Policy{Last: 3}, []string{"05-05T14", "05-06T02", "05-06T14"}},
		"one of each day":    {Policy{Daily: 3}, []string{"05-04T14", "05-05T14", "05-06T14"}},
		"one of each week":   {Policy{Weekly: 3}, []string{"03-30T02", "05-04T14", "05-06T14"}},
		"all of these":       {Policy{Last: 2, Daily: 2, Weekly: 2}, []string{"05-04T14", "05-05T14", "05-06T02", "05-06T14"}},
		"more than there is": {Policy{Daily: 100}, []string{"03-30T02", "04-30T14", "05-01T14", "05-02T14", "05-03T14", "05-04T14", "05-05T14", "05-06T14"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for i, kept := range c.policy.Keeps(times) {
				if kept {
					got = append(got, times[i].Format("01-02T15"))
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	for i, kept := range (Policy{}).Keeps(times) {
		if !kept {
			t.Errorf("%s is deleted, though nothing was said", times[i])
		}
	}
	same := []time.Time{times[0], times[0], times[0]}
	if diff := cmp.Diff([]bool{false, false, true}, (Policy{Last: 1}).Keeps(same)); diff != "" {
		t.Errorf("at the same time:\n%s", diff)
	}
}
