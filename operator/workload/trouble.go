package workload

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// CorrectImage is what to change where the kubelet cannot get the image that a spec is about.
const CorrectImage = "correct spec.image, or give spec.image.imagePullSecrets"

// Trouble says what keeps one of the pods from running, if the kubelet or the scheduler has told, and, if that is its image, how to
// correct it: what comes behind a message, or nothing.
func Trouble(pods []corev1.Pod, correct string) string {
	for _, pod := range pods {
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
				return fmt.Sprintf("; pod %s: %s", pod.Name, condition.Message)
			}
		}
		for _, container := range pod.Status.ContainerStatuses {
			if w := container.State.Waiting; w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
				return fmt.Sprintf("; pod %s: %s: %s%s", pod.Name, w.Reason, w.Message, remedy(w.Reason, correct))
			}
		}
	}
	return ""
}

// remedy is what to change when the kubelet cannot get an image.
func remedy(reason, correct string) string {
	switch reason {
	case "InvalidImageName", "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable":
		return ": " + correct
	}
	return ""
}
