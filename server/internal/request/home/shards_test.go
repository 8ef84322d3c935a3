package home

import (
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestAShardCreatesALimitedNumberOfHomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all creations
		create := func(shard string, number int) (created int) {
			for range number {
				err := permitted(all.charge(t.Context(), shard))
				if err == nil {
					created++
				} else if !apierrors.IsTooManyRequests(err) {
					t.Error(err)
				}
			}
			return created
		}
		for _, step := range []struct {
			after time.Duration
			shard string
			want  int
		}{
			{0, "stolen", creationBurst}, {0, "stolen", 0}, {0, "other", creationBurst}, {10 * time.Second, "stolen", 10 * creationsPerSecond},
		} {
			time.Sleep(step.after)
			if got := create(step.shard, 2*creationBurst); got != step.want {
				t.Errorf("after %s, shard %s creates %d homes, want %d", step.after, step.shard, got, step.want)
			}
		}
		if err := permitted(t.Context()); err != nil {
			t.Errorf("a user of the root shard: %v", err)
		}
	})
}
