package workload_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/operator/internal/workload"
)

func TestEarlierRestartsAreIgnored(t *testing.T) {
	now := time.Now()
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }
	for _, test := range []struct {
		name            string
		restarts        int32
		started, ended  time.Duration // how long ago
		crashes, noLast bool
	}{
		{"its process crashes repeatedly", 3, time.Minute, 10 * time.Second, true, false},
		{"it ended twice", 2, time.Minute, 10 * time.Second, false, false},
		{"its restarts were yesterday", 30, 24*time.Hour + time.Minute, 24 * time.Hour, false, false},
		{"it ran for a day before it ended", 30, 24 * time.Hour, 10 * time.Second, false, false},
		{"its end is unknown", 30, 0, 0, false, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			container := corev1.ContainerStatus{RestartCount: test.restarts,
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: ago(test.ended)}},
				LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1,
					StartedAt: ago(test.started), FinishedAt: ago(test.ended)}}}
			if test.noLast {
				container.LastTerminationState.Terminated = nil
			}
			pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "kcp-0", CreationTimestamp: ago(time.Hour)},
				Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{container}}}
			trouble := workload.FindTrouble([]corev1.Pod{pod}, "", "it is not ready", now)
			if trouble.Stalled() != test.crashes || strings.Contains(trouble.String(), "CrashLoopBackOff") != test.crashes {
				t.Errorf("stalled: %v, with %q", trouble.Stalled(), trouble)
			}
		})
	}
}
