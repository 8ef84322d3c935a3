package workload

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kcplane/kcp/operator/internal/conditions"
)

// CorrectImage is the hint in messages when the kubelet cannot pull the image in a spec.
const CorrectImage = "correct spec.image, or set spec.image.imagePullSecrets"

const (
	// patience is how long a pod may fail to start before its owner is stalled: a registry or a network may be unavailable for a moment.
	patience = 3 * time.Minute
	// crashes is after how many restarts a pod counts as crashing, even if it runs again for a moment.
	crashes = 3
	// crashReset is how long a process runs until the kubelet resets its restart backoff.
	crashReset = 10 * time.Minute
)

// Reasons of conditions for pods that do not start.
const (
	reasonImage   = "ImageUnavailable"
	reasonCrash   = "PodCrashes"
	reasonPending = ""
)

// Trouble describes why pods do not run.
type Trouble struct {
	// reason is empty if the pods may start without a change.
	reason string
	// text is appended to a message.
	text string
	// after is how long to wait until the owner is stalled.
	after time.Duration
}

// String returns the text to append to a message. It may be empty.
func (t Trouble) String() string { return t.text }

// Because returns an error for a condition, with the message and the cause. If the pods have failed for minutes, the owner is stalled.
func (t Trouble) Because(reason, format string, args ...any) error {
	message := fmt.Sprintf(format, args...) + t.text
	if t.Stalled() {
		return conditions.Stall(t.reason, "%s", message)
	}
	return conditions.Unwatched(t.after, conditions.Wait(reason, "%s", message))
}

// Passing returns the trouble as one that may end without a change of the pods.
func (t Trouble) Passing() Trouble {
	return Trouble{text: t.text}
}

// Stalled reports whether a user must act.
func (t Trouble) Stalled() bool { return t.reason != "" && t.after <= 0 }

// symptom is why one pod does not run. A lower rank has precedence.
type symptom struct {
	rank   int
	reason string
	text   string
}

// FindTrouble returns why pods do not run, as the kubelet or the scheduler reports it. The most important cause is first, with one pod as
// an example for each kind. correct is the hint how to correct an image, unready the reason for a running pod that is not ready.
func FindTrouble(pods []corev1.Pod, correct, unready string, now time.Time) Trouble {
	found := map[int]symptom{}
	var t Trouble
	for _, pod := range pods {
		s, ok := symptomOf(pod, correct, unready, now)
		if !ok {
			continue
		}
		if _, known := found[s.rank]; !known {
			found[s.rank] = s
		}
		if s.reason == reasonPending {
			continue
		}
		if after := max(0, unreadySince(pod).Add(patience).Sub(now)); t.reason == "" || after < t.after {
			t.reason, t.after = s.reason, after
		}
	}
	for rank := range rankUnscheduled + 1 {
		t.text += found[rank].text
	}
	return t
}

const (
	rankImage = iota
	rankCrash
	rankOther
	rankRunning
	rankUnscheduled
)

func symptomOf(pod corev1.Pod, correct, unready string, now time.Time) (symptom, bool) {
	told := func(rank int, reason, format string, args ...any) (symptom, bool) {
		return symptom{rank, reason, "; pod " + pod.Name + ": " + fmt.Sprintf(format, args...)}, true
	}
	if !pod.DeletionTimestamp.IsZero() {
		return symptom{}, false
	}
	for _, container := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		w := cmp.Or(container.State.Waiting, &corev1.ContainerStateWaiting{})
		switch {
		case container.Ready:
		case imageReason(w.Reason):
			return told(rankImage, reasonImage, "%s: %s: %s", w.Reason, w.Message, correct)
		case w.Reason == "CrashLoopBackOff" || container.State.Terminated == nil && Crashes(container, crashes, now):
			return told(rankCrash, reasonCrash, "CrashLoopBackOff: %s", cmp.Or(ended(container.LastTerminationState.Terminated), w.Message))
		case w.Reason != "" && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing":
			return told(rankOther, reasonPending, "%s: %s", w.Reason, w.Message)
		case container.State.Running != nil && unready != "":
			return told(rankRunning, reasonPending, "%s", unready)
		}
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return told(rankUnscheduled, reasonPending, "%s", condition.Message)
		}
	}
	return symptom{}, false
}

// Crashes reports whether a container was restarted at least that many times, and its last process ran only briefly and ended recently.
// Earlier restarts, after which the process ran without failures, do not count.
func Crashes(container corev1.ContainerStatus, times int32, now time.Time) bool {
	last := container.LastTerminationState.Terminated
	return container.RestartCount >= times && last != nil &&
		now.Sub(last.FinishedAt.Time) < crashReset && last.FinishedAt.Sub(last.StartedAt.Time) < crashReset
}

// ended describes how a process ended, with its last line of output.
func ended(t *corev1.ContainerStateTerminated) string {
	if t == nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(t.Message), "\n")
	text := fmt.Sprintf("the process exited with code %d (%s)", t.ExitCode, t.Reason)
	if last := lines[len(lines)-1]; last != "" {
		text += ": " + last
	}
	return text
}

// unreadySince returns the time since which a pod has not been ready.
func unreadySince(pod corev1.Pod) time.Time {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady && !condition.LastTransitionTime.IsZero() {
			return condition.LastTransitionTime.Time
		}
	}
	return pod.CreationTimestamp.Time
}

// imageReason reports whether a reason means that the kubelet cannot pull an image.
func imageReason(reason string) bool {
	switch reason {
	case "InvalidImageName", "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable",
		"SignatureValidationFailed":
		return true
	}
	return false
}

// Ready reports whether a pod is ready.
func Ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
