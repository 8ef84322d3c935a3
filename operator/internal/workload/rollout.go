package workload

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
)

// Annotations of a StatefulSet with hashes of the inputs of its pods, and of the resulting template.
const (
	askedAnnotation = "operator.kcp.io/asked"
	madeAnnotation  = "operator.kcp.io/made"
)

// Hold returns a condition that is True if the pods of a StatefulSet are not replaced although their template has changed. If neither the
// inputs nor the spec of the owner have changed, only the version of the operator has, and the user has not requested new pods. The
// number of pods does not matter. If no pod is ready, they are always replaced.
func Hold(owner client.Object, live, set *appsv1.StatefulSet, inputs ...any) (metav1.Condition, error) {
	template, err := json.Marshal(set.Spec.Template)
	if err != nil {
		return metav1.Condition{}, err
	}
	asked := fmt.Sprint(owner.GetGeneration(), owner.GetAnnotations()[v1alpha1.RolloutAnnotation], inputs)
	metav1.SetMetaDataAnnotation(&set.ObjectMeta, askedAnnotation, sum([]byte(asked)))
	metav1.SetMetaDataAnnotation(&set.ObjectMeta, madeAnnotation, sum(template))
	condition := metav1.Condition{Type: v1alpha1.ConditionRolloutHeld, Status: metav1.ConditionFalse, Reason: "UpToDate",
		ObservedGeneration: owner.GetGeneration()}
	if live != nil && !Made(live, set) && live.Annotations[askedAnnotation] == set.Annotations[askedAnnotation] &&
		live.Annotations[madeAnnotation] != "" && live.Status.ReadyReplicas > 0 {
		condition.Status, condition.Reason = metav1.ConditionTrue, "OperatorChanged"
		condition.Message = "this version of the operator creates different pods: they are replaced with the next change of the spec or of the " +
			"annotation " +
			v1alpha1.RolloutAnnotation
		if by := metav1.GetControllerOf(owner); by != nil {
			condition.Message += " of " + by.Kind + " " + by.Name
		}
	}
	return condition, nil
}

// MaxWait is how long the pods of a component and the members of its etcd wait for each other. Longer, and one that cannot become healthy
// would keep the repair of the other one from its pods.
const MaxWait = 5 * time.Minute

// Wait returns the condition RolloutHeld of an object whose pods wait for something else to become healthy, and whether they still wait:
// for at most MaxWait since the conditions first had the reason.
func Wait(conditions []metav1.Condition, generation int64, reason, message string, now time.Time) (metav1.Condition, bool) {
	held := metav1.Condition{Type: v1alpha1.ConditionRolloutHeld, Status: metav1.ConditionTrue, Reason: reason, Message: message,
		ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second))}
	if before := meta.FindStatusCondition(conditions, held.Type); before != nil && before.Status == held.Status && before.Reason == reason {
		held.LastTransitionTime = before.LastTransitionTime
	}
	return held, now.Sub(held.LastTransitionTime.Time) < MaxWait
}

// RecoveryTime is how long a pod that was ready may take to become ready again after its etcd was restarted.
const RecoveryTime = time.Minute

// Recovering returns the name of a pod that has run, and has lost its readiness less than RecoveryTime ago; empty if there is none. Its
// startup probe has succeeded, so it is not a pod that cannot start, which a change of the template may correct.
func Recovering(pods []corev1.Pod, now time.Time) string {
	for i := range pods {
		pod := &pods[i]
		if !pod.DeletionTimestamp.IsZero() || len(pod.Status.ContainerStatuses) == 0 {
			continue
		}
		runs := !slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
			return c.State.Running == nil || c.Started == nil || !*c.Started
		})
		lately := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionFalse && now.Sub(c.LastTransitionTime.Time) < RecoveryTime
		})
		if runs && lately {
			return pod.Name
		}
	}
	return ""
}

// SetHeld sets a condition RolloutHeld. The time of the transition is that of its reason.
func SetHeld(conditions *[]metav1.Condition, held metav1.Condition) {
	if before := meta.FindStatusCondition(*conditions, held.Type); before != nil && before.Reason != held.Reason {
		meta.RemoveStatusCondition(conditions, held.Type)
	}
	meta.SetStatusCondition(conditions, held)
}

// Made reports whether a StatefulSet has the same template as another one that was passed to Hold.
func Made(live, set *appsv1.StatefulSet) bool {
	return live.Annotations[madeAnnotation] == set.Annotations[madeAnnotation]
}

// Template returns the hash of the template of a StatefulSet, as it was passed to Hold. Empty: unknown.
func Template(set *appsv1.StatefulSet) string { return set.Annotations[madeAnnotation] }

func sum(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}
