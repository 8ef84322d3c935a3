package home

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/tenancy/scheduling"
)

// The root shard has the record of a home, another shard its LogicalCluster, and a user can be answered by either.
func TestAHomeIsTheSameFromItsRecordAndFromItsShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		created := metav1.Now()
		s := &scheduling.Scheduler{}
		lc := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{
			Name: corev1alpha1.LogicalClusterName, CreationTimestamp: created, Annotations: map[string]string{corev1alpha1.PathAnnotation: "user:ada"},
		}, Status: corev1alpha1.LogicalClusterStatus{Phase: corev1alpha1.LogicalClusterPhaseReady, URL: "https://kcp/clusters/h0"}}
		record := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{
			Name: "h0", CreationTimestamp: created, UID: "uid", Annotations: map[string]string{corev1alpha1.PathAnnotation: "user:ada"},
		}, Spec: tenancyv1alpha1.WorkspaceSpec{
			Type: scheduling.HomeType.DeepCopy(), Cluster: "h0", URL: "https://kcp/clusters/user:ada",
		}}
		time.Sleep(time.Second)
		record.Status.Conditions = []corev1alpha1.Condition{
			{Type: tenancyv1alpha1.WorkspaceScheduled, Status: metav1.ConditionTrue, LastTransitionTime: metav1.Now()},
		}
		s.MirrorStatus(record, lc)
		first := showRecord(record)
		time.Sleep(time.Second)
		if diff := cmp.Diff(first, (&Homes{Scheduler: s}).show("h0", lc)); diff != "" {
			t.Errorf("the shard that holds the home shows another one than the root shard: %s", diff)
		}
	})
}

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
