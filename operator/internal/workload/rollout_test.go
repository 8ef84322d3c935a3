package workload

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPodsWaitForALimitedTimeSinceTheReasonWasReported(t *testing.T) {
	start := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	var conditions []metav1.Condition
	wait := func(reason string, after time.Duration) bool {
		held, waits := Wait(conditions, 1, reason, "because", start.Add(after))
		SetHeld(&conditions, held)
		return waits
	}
	if !wait("First", 0) || !wait("First", MaxWait-time.Second) || wait("First", MaxWait) {
		t.Error("the wait is not limited")
	}
	if !wait("Second", MaxWait) || !wait("Second", 2*MaxWait-time.Second) || wait("Second", 2*MaxWait) {
		t.Error("the wait for another reason does not begin when it is reported")
	}
	SetHeld(&conditions, metav1.Condition{Type: "RolloutHeld", Status: metav1.ConditionFalse, Reason: "UpToDate"})
	if !wait("Second", 9*MaxWait) || len(conditions) != 1 {
		t.Errorf("a later wait does not begin again: %+v", conditions)
	}
}
